"""One run, or several repeats of it as one: what the judge asks, answered over all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.distribution import SECOND, Distribution, Floats, Ratio, Scope
from pytest_inferslo.core.frame import Frame
from pytest_inferslo.core.histogram import Histogram
from pytest_inferslo.core.readings import IDLE, LOAD
from pytest_inferslo.core.series import relative, within
from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.tally import Counts, Tokens

Array = npt.NDArray[Any]


class Trials(NamedTuple):
    """Requests per second of a scope and those of them that break a per-request promise, one pair per run.

    `most` is what one of them is worth at most: the gaps of an answer are together worth one request.
    """

    bad: tuple[Array, ...]
    trials: tuple[Array, ...]
    most: float = 1.0

    @property
    def all_bad(self) -> Array:
        return np.concatenate(self.bad)

    @property
    def all_trials(self) -> Array:
        return np.concatenate(self.trials)


def sliding(slots: Sequence[Array], width: int) -> Array:
    """The sums of every `width` successive slots, in no run across its end."""
    edges = [np.concatenate([[0], np.cumsum(each)]) for each in slots if len(each) >= width]
    return np.concatenate([edge[width:] - edge[:-width] for edge in edges]) if edges else np.empty(0, int)


@dataclass(frozen=True)
class Seconds:
    """The first `slots` seconds of a distribution; its histogram is of all of them."""

    whole: Distribution
    slots: int

    @property
    def histogram(self) -> Histogram:
        return self.whole.histogram

    @property
    def count(self) -> int:
        return self.whole.count

    @property
    def failures(self) -> int:
        return self.whole.failures

    @property
    def slot_count(self) -> Array:
        return self.whole.slot_count[: self.slots]

    @property
    def slot_failures(self) -> Array:
        return self.whole.slot_failures[: self.slots]

    @property
    def slot_total(self) -> Floats:
        return self.whole.slot_total[: self.slots]

    @property
    def limits(self) -> list[float]:
        return list(self.whole.slot_over)

    def slot_over(self, limit: float) -> Array:
        """The finite values above a limit that was asked for."""
        return self.whole.slot_over[limit][: self.slots]


@dataclass(frozen=True)
class Pool:
    """`summaries` and `records` of the same scenario, one each per run; never empty.

    `until` (ns since the epoch) leaves out the seconds that end later: those of a run that still goes on.
    Histograms are not cut, so that only what is counted per second can be trusted then.
    """

    summaries: tuple[Summary, ...]
    records: tuple[Mapping[str, Any], ...]
    until: int | None = None

    @property
    def first(self) -> Summary:
        return self.summaries[0]

    @property
    def record(self) -> Mapping[str, Any]:
        return self.records[0]

    def absent(self, metric: str, scope: Scope) -> str | None:
        """Why at least one of the runs did not measure it; None when all did."""
        causes = [summary.absent(metric, scope) for summary in self.summaries]
        return next((cause for cause in causes if cause is not None), None)

    def distributions(self, metric: str, scope: Scope) -> list[Seconds]:
        return [
            Seconds(summary.distribution(metric, scope), self._slots(summary, scope))
            for summary in self.summaries
        ]

    def histogram(self, metric: str, scope: Scope) -> Histogram:
        merged = Histogram()
        for distribution in self.distributions(metric, scope):
            merged.merge(distribution.histogram)
        return merged

    def ratios(self, metric: str, scope: Scope) -> list[Ratio]:
        found = []
        for summary in self.summaries:
            ratio, slots = summary.ratio(metric, scope), self._slots(summary, scope)
            hits, trials = ratio.slot_hits[:slots], ratio.slot_trials[:slots]
            found.append(Ratio(int(hits.sum()), int(trials.sum()), hits, trials))
        return found

    def seconds(self, scope: Scope) -> float:
        spans = [(summary, summary.frame.span(scope.phase)) for summary in self.summaries]
        if self.until is None:
            return sum(span.seconds for _, span in spans)
        return float(sum(self._slots(summary, scope) for summary, _ in spans))

    def per_second(self, metric: str, scope: Scope) -> tuple[Floats, Floats]:
        """Events and the length of each one-second slot (the last one may be shorter), all runs in a row."""
        events, lengths = [], []
        for summary in self.summaries:
            counted, slots = summary.slots(metric, scope), self._slots(summary, scope)
            length = np.ones(len(counted))
            length[-1] = max(1e-9, 1.0 - (len(counted) - summary.frame.span(scope.phase).seconds) % 1.0)
            events.append(counted[:slots])
            lengths.append(length[:slots])
        return np.concatenate(events), np.concatenate(lengths)

    def strata(self, scope: Scope) -> Array:
        """The number of the phase in which the middle of each second of a scope lies, all runs in a row."""
        return np.concatenate(
            [
                _phase_numbers(summary.frame, scope)[: self._slots(summary, scope)]
                for summary in self.summaries
            ]
        )

    def _slots(self, summary: Summary, scope: Scope) -> int:
        """How many seconds of a scope count."""
        span = summary.frame.span(scope.phase)
        if self.until is None:
            return span.slots
        return min(span.slots, max(0, (self.until - span.start) // SECOND))

    def totals(self, metric: str, scope: Scope) -> list[float]:
        """A total of each run that has one."""
        found = [summary.total(metric, scope) for summary in self.summaries]
        return [value for value in found if value is not None]

    def tokens(self) -> Tokens:
        each = [summary.tokens() for summary in self.summaries]
        names = ("prompt", "cached", "output", "reasoning", "requests", "untold")
        return Tokens(*(sum(getattr(one, name) for one in each) for name in names))

    def counts(self, scope: Scope) -> list[Counts]:
        return [summary.counts(scope) for summary in self.summaries]

    def level(self, metric: str, scope: Scope) -> float | None:
        """The mean reading of the busiest source and run; None without readings."""
        means = [summary.reading(metric, "mean", scope) for summary in self.summaries]
        return max((mean for mean in means if mean is not None), default=None)

    def readings(
        self, metric: str, scope: Scope, totals: Mapping[str, float] | None, *, idle: bool = False
    ) -> list[list[Floats]]:
        """Of each run and source, under load or before it; with `totals` as shares of a source's own total."""
        found = []
        for summary in self.summaries:
            series = summary.series(metric, IDLE if idle else LOAD)
            if not idle:
                series = within(series, summary.frame.span(scope.phase).stretches)
            if totals is not None:
                series = relative(series, totals)
            found.append([one.values for one in series])
        return found


def _phase_numbers(frame: Frame, scope: Scope) -> Array:
    span = frame.span(scope.phase)
    middles = span.start + np.arange(span.slots) * SECOND + SECOND // 2
    names = {name: number for number, (name, _, _) in enumerate(frame.phases)}
    numbers = np.full(span.slots, -1)
    for name, start, end in frame.phases:
        numbers[(middles >= start) & (middles < end)] = names[name]
    return numbers
