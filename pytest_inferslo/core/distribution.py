"""What is kept of many requests: the distribution of one metric, and counts of requests, per second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.histogram import LAYOUT, Histogram, Ints

SECOND = 1_000_000_000
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scope:
    """Which requests are meant; None means all. `phase` None is the measured window.

    `adapter` "base" means the requests that name no adapter.
    """

    endpoint: str | None = None
    adapter: str | None = None
    phase: str | None = None
    stream: str | None = None

    def __str__(self) -> str:
        named = {
            "endpoint": self.endpoint,
            "adapter": self.adapter,
            "phase": self.phase,
            "stream": self.stream,
        }
        return ", ".join(f"{key}={value}" for key, value in named.items() if value is not None) or "all"


ALL = Scope()


class Ratio(NamedTuple):
    """`hits` of `trials` requests; the arrays are per second of intended start, from the scope's start on."""

    hits: int
    trials: int
    slot_hits: Ints
    slot_trials: Ints

    @property
    def value(self) -> float | None:
        return self.hits / self.trials if self.trials else None


class SlotsOver(Mapping[float, Ints]):
    """For each limit the values above it, per slot: `over[limit]` is an array of `slots` counts.

    What is kept is how many values of a slot lie between which two limits. A value's bucket tells that,
    except for the few buckets that hold a limit; only their values are compared, unrounded.
    """

    def __init__(self, limits: Sequence[float], slots: int) -> None:
        self._slots = slots
        self._limits = np.unique(np.array(limits, np.float64))
        self._steps = len(self._limits) + 1
        self._counts = np.zeros(slots * self._steps, np.int32)
        if len(self._limits):
            own = LAYOUT.bucket_of(self._limits) + 1
            self._step_of = np.searchsorted(own, np.arange(LAYOUT.buckets + 2)).astype(np.int16)
            self._step_of[own] = -1

    def __getitem__(self, limit: float) -> Ints:
        position = int(np.searchsorted(self._limits, limit))
        if position == len(self._limits) or self._limits[position] != limit:
            raise KeyError(limit)
        return self._per_step()[:, position + 1 :].sum(axis=1, dtype=np.int64)

    @property
    def everything(self) -> Ints:
        """All values per slot."""
        return self._per_step().sum(axis=1, dtype=np.int64)

    def _per_step(self) -> npt.NDArray[np.int32]:
        return self._counts.reshape(self._slots, self._steps)

    def __iter__(self) -> Iterator[float]:
        return iter(self._limits.tolist())

    def __len__(self) -> int:
        return len(self._limits)

    def add(self, values: npt.NDArray[Any], buckets: Ints, slots: Ints) -> None:
        if len(self) == 0:
            add_at(self._counts, slots)
            return
        steps = self._step_of[buckets + 1]
        close = np.flatnonzero(steps < 0)
        if len(close):
            steps[close] = np.searchsorted(self._limits, values[close])
        add_at(self._counts, slots * self._steps + steps)

    def add_folded(self, highs: Ints, counts: Ints, slots: Ints) -> None:
        """`counts` values of buckets whose upper bounds are `highs`: a bucket that holds a limit is over
        it.
        """
        add_at(self._counts, slots * self._steps + np.searchsorted(self._limits, highs), counts)


@dataclass(eq=False)
class Distribution:
    """One metric over the requests of a scope, in the metric's base unit (ns for times).

    `count` values are finite. `failures` rank as +inf: requests that failed, and the `unknown` among the
    successes, whose value exists but was not told (no token usage, no content). `absent` successes have
    no such value by definition (`tpot` of a one-token answer) and rank nowhere.

    Per second of intended start, slot 0 at `start` (ns since the epoch; the last slot may be shorter):
    `slot_count`, `slot_total` (finite values and their sum), `slot_failures`, and for each limit that was
    asked for `slot_over[limit]`, the finite values above it, compared unrounded. They are empty for a
    breakdown. The gaps of `icl` come folded: their totals are those of bucket middles, and a bucket that
    holds a limit counts as over it.
    """

    metric: str
    scope: Scope
    start: int
    slots: int
    limits: tuple[float, ...] = ()
    histogram: Histogram = field(default_factory=Histogram)
    absent: int = 0
    unknown: int = 0
    slot_failures: Ints = field(init=False)
    slot_total: Floats = field(init=False)
    slot_over: SlotsOver = field(init=False)

    def __post_init__(self) -> None:
        self.slot_failures = np.zeros(self.slots, np.int64)
        self.slot_total = np.zeros(self.slots, np.float64)
        self.slot_over = SlotsOver(self.limits, self.slots)

    @property
    def slot_count(self) -> Ints:
        return self.slot_over.everything

    @property
    def count(self) -> int:
        return self.histogram.count

    @property
    def failures(self) -> int:
        return self.histogram.failures

    @property
    def minimum(self) -> float | None:
        return self.histogram.minimum

    @property
    def maximum(self) -> float | None:
        return self.histogram.maximum

    @property
    def total(self) -> float:
        return self.histogram.total

    @property
    def mean(self) -> float | None:
        """Of the finite values alone: judge it together with `failures`."""
        return self.histogram.mean

    def percentile(self, p: float) -> float | None:
        """As Histogram.percentile: `p` is a fraction (0.99), inf where failures reach the rank, None for
        nothing.
        """
        return self.histogram.percentile(p)

    def percentile_bounds(self, p: float) -> tuple[float, float]:
        return self.histogram.percentile_bounds(p)

    def over(self, limit: float) -> int:
        """Finite values above a limit that was asked for."""
        return int(self.slot_over[limit].sum())

    def add(self, values: npt.NDArray[Any], buckets: Ints, slots: Ints) -> None:
        """Adds finite values with their buckets and slots, three arrays of one length."""
        if len(values) == 0:
            return
        self.histogram.add(values, buckets)
        if self.slots:
            add_at(self.slot_total, slots, values)
            self.slot_over.add(values, buckets, slots)

    def add_failures(self, slots: Ints) -> None:
        self.histogram.add_failures(len(slots))
        if self.slots:
            add_at(self.slot_failures, slots)

    def add_buckets(self, buckets: Ints, counts: Ints, bounds: tuple[Ints, Ints], slots: Ints) -> None:
        """Adds folded values: `counts` per bucket and slot; `bounds` are the buckets' lows and highs."""
        lows, highs = bounds
        if len(buckets) == 0:
            return
        self.histogram.add_buckets(buckets, counts)
        if self.slots:
            add_at(self.slot_total, slots, (lows + highs) / 2 * counts)
            self.slot_over.add_folded(highs, counts, slots)


def add_at(target: npt.NDArray[Any], positions: Ints, weights: npt.NDArray[Any] | None = None) -> None:
    """target[positions] += weights (1 each when None), positions repeating at will."""
    if len(positions) == 0:
        return
    low = int(positions.min())
    sums = np.bincount(positions - low, weights=weights)
    target[low : low + len(sums)] += sums.astype(target.dtype, copy=False)
