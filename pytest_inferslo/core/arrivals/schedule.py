"""When requests are due: the schedule that arrivals produce, and the protocol that all arrivals keep."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]
Tokens = npt.NDArray[np.int32]


class Span(NamedTuple):
    """A named stretch of time, seconds from the start of the measured window. Names may repeat (`burst`)."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class ArrivalSchedule:
    """Every request of a run, or one worker's share of them.

    `intended` int64[n], ns since the run's epoch, sorted; `index` int64[n], the position in the whole
    schedule, unique in a run and the same however many workers there are; `stream` int8[n], which of the
    scenario's streams; `input_tokens`, `output_tokens` int32[n] where a trace says them, ABSENT (-1) in rows
    of other streams, None where there is no trace.

    `closed`: `intended` then holds the first request of each user alone; the later ones follow from the
    answers (see `ClosedLoop`), until `end` ns.
    """

    intended: Times
    index: Times
    stream: npt.NDArray[np.int8]
    end: int
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    closed: bool = False

    def __len__(self) -> int:
        return len(self.intended)

    def stripe(self, worker: int, workers: int) -> ArrivalSchedule:
        """The rows whose index is `worker` modulo `workers`; they keep their index."""
        return self.rows(np.flatnonzero(self.index % workers == worker))

    def rows(self, places: npt.NDArray[np.int64]) -> ArrivalSchedule:
        """The rows at `places`, in that order."""
        return replace(
            self,
            intended=self.intended[places],
            index=self.index[places],
            stream=self.stream[places],
            input_tokens=None if self.input_tokens is None else self.input_tokens[places],
            output_tokens=None if self.output_tokens is None else self.output_tokens[places],
        )


def of_times(
    intended: Times, end: int, *, input_tokens: Tokens | None = None, output_tokens: Tokens | None = None
) -> ArrivalSchedule:
    """A schedule of one stream from sorted `intended` times."""
    n = len(intended)
    return ArrivalSchedule(
        intended, np.arange(n, dtype=np.int64), np.zeros(n, np.int8), end, input_tokens, output_tokens
    )


def nanoseconds(seconds: npt.NDArray[np.float64]) -> Times:
    return np.rint(seconds * 1e9).astype(np.int64)


class Arrivals(Protocol):
    """What every kind of arrivals can do. Times are seconds."""

    kind: ClassVar[str]

    @property
    def open_loop(self) -> bool:
        """Whether requests come when they are due, whatever the server does."""
        ...

    @property
    def length(self) -> float | None:
        """How long they last, where they know it themselves."""
        ...

    def schedule(self, seconds: float, seed: int, lead: float = 0.0) -> ArrivalSchedule:
        """Arrivals in [0, seconds), of which the first `lead` seconds are the warm-up.

        In the warm-up the rate is what it is at the start of the measured window; the shape's own time zero
        falls at its end.
        """
        ...

    def spans(self, seconds: float) -> list[Span]:
        """The named phases of `seconds` of measured window."""
        ...

    def check(self, seconds: float, lead: float) -> None:
        """Raises ScenarioError when the shape does not fit a window of `seconds` after `lead` of warm-up."""
        ...

    def scaled(self, factor: float) -> Arrivals:
        """The same rates with every time of the shape multiplied by `factor`."""
        ...
