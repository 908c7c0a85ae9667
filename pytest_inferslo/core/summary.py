"""A measured run in numbers: what objectives are judged on and reports show. core/fold makes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pytest_inferslo.core.distribution import ALL, SECOND, Distribution, Floats, Ratio, Scope
from pytest_inferslo.core.frame import Frame
from pytest_inferslo.core.histogram import ceiling_rank
from pytest_inferslo.core.metrics import METRICS, Source
from pytest_inferslo.core.readings import IDLE, LOAD
from pytest_inferslo.core.series import Series, SeriesStore, combined, relative, within
from pytest_inferslo.core.tally import Counts, Goals, Tally, Tokens

__all__ = ["ALL", "Breakdown", "Counts", "Distribution", "Question", "Ratio", "Scope", "Summary", "Tokens"]

Key = tuple[str, Scope]


@dataclass(frozen=True)
class Question:
    """What a judge will want to know; asked before the samples are read, so that they are read once.

    `limits` are per-request limits in base units whose exceedance is counted exactly: a value over a limit is
    one greater than it. For "at or over" ask for `math.nextafter(limit, 0)`.
    """

    metric: str
    scope: Scope = ALL
    limits: tuple[float, ...] = ()


@dataclass(frozen=True)
class Breakdown:
    """One endpoint's, adapter's, stream's or phase's share of the run."""

    name: str
    counts: Counts
    ttft: Distribution
    e2e: Distribution


@dataclass(eq=False)
class Summary:
    """Everything is of the measured window unless a scope names a phase. Times are ns, shares 0..1.

    Asking for a metric in a scope that no Question named raises LookupError, except for the whole run
    (`ALL`).
    """

    frame: Frame
    facts: dict[str, float]
    goals: Goals
    _distributions: Mapping[Key, Distribution]
    _tallies: Mapping[Scope, Tally]
    _readings: SeriesStore
    _causes: Mapping[str, str]  # of metrics that were not measured
    _breakdowns: Mapping[str, Sequence[Breakdown]] = field(default_factory=dict)

    def distribution(self, metric: str, scope: Scope = ALL) -> Distribution:
        """A metric of Source.SAMPLE or Source.GAP; empty (count 0) where the scope has no requests."""
        found = self._distributions.get((metric, scope))
        if found is None:
            raise LookupError(f"{metric} was not folded for the scope {scope}: ask a Question for it")
        return found

    def ratio(self, metric: str, scope: Scope = ALL) -> Ratio:
        """`error_rate`: hits are the failed, unfinished and never-sent of all intended requests.
        `goodput`: hits are the requests that succeeded and met every goal."""
        tally = self._tally(scope)
        if metric == "error_rate":
            return tally.errors
        if metric == "goodput":
            return tally.goodput
        raise LookupError(f"{metric} is no ratio")

    def counts(self, scope: Scope = ALL) -> Counts:
        return self._tally(scope).counts

    def tokens(self, scope: Scope = ALL) -> Tokens:
        """Server-counted tokens of the successful requests that were intended in the scope."""
        return self._tally(scope).tokens

    def total(self, metric: str, scope: Scope = ALL) -> float | None:
        """A metric of Source.TOTAL; None where it was not measured (`absent` has the cause).

        `recovery_time` needs a limit and has its own method; a cost needs prices (core/cost).
        """
        if metric in ("throughput", "goodput_rate", "output_tokens_per_second"):
            if self.absent(metric, scope) is not None:
                return None
            return float(self.slots(metric, scope).sum()) / self._tally(scope).span.seconds
        if metric == "server_cpu_increase":
            return self._cpu_increase(scope)
        if metric == "gpu_energy":
            return self._energy(scope)
        raise LookupError(f"{metric} is no total of samples and readings alone")

    def slots(self, metric: str, scope: Scope = ALL) -> Floats:
        """Per second of the scope: finished requests (`throughput`), good requests (`goodput_rate`) or output
        tokens (`output_tokens_per_second`); the last second may be shorter."""
        tally = self._tally(scope)
        if metric == "throughput":
            return tally.slot_finished.astype(np.float64)
        if metric == "goodput_rate":
            return tally.slot_good.astype(np.float64)
        if metric == "output_tokens_per_second":
            return tally.clock.per_slot()
        raise LookupError(f"{metric} is not counted per second")

    def recovery_time(self, phase: str, limit: float, p: float = 0.99, metric: str = "ttft") -> float | None:
        """From the last end of `phase` until the metric's percentile over 1-s windows is within `limit` and
        stays so, in ns; 0 when it never left, inf when the last window that has requests is still over it.

        None when no request was intended after the phase, or there is no such phase. Needs a Question for
        the metric, the whole run and the limit. A window without requests says nothing; failures are over
        any limit.
        """
        found = self.distribution(metric)
        if self.frame.missing(Scope(phase=phase)) is not None:
            return None
        end = self.frame.span(phase).end
        first = max(0, math.ceil((end - found.start) / SECOND))
        trials = (found.slot_count + found.slot_failures)[first:]
        over = (found.slot_over[limit] + found.slot_failures)[first:]
        bad = [
            slot
            for slot, (n, t) in enumerate(zip(trials.tolist(), over.tolist(), strict=True))
            if n and t > n - ceiling_rank(p, n)
        ]
        if not trials.any():
            return None
        if not bad:
            return 0.0
        later = np.flatnonzero(trials[bad[-1] + 1 :])
        if len(later) == 0:
            return math.inf
        return float((first + bad[-1] + 1) * SECOND + found.start - end)

    def series(self, metric: str, phase: str | None = None) -> list[Series]:
        """All readings, one series per source; `phase` is one of core.readings (idle, load, drain)."""
        return self._readings.of(metric, phase)

    def reading(
        self,
        metric: str,
        statistic: str | float,
        scope: Scope = ALL,
        of_total: Mapping[str, float] | None = None,
    ) -> float | None:
        """One number of a metric's readings in the scope's time: `mean`, `peak`, `min` or a fraction (0.99).

        The worst source counts, or the sum where the metric is one (core.series.SUMMED). `of_total` turns
        each source's readings into shares of its own total (a GPU's memory). None without readings.
        """
        found = within(self._readings.of(metric, LOAD), self.frame.span(scope.phase).stretches)
        return combined(metric, found if of_total is None else relative(found, of_total), statistic)

    def absent(self, metric: str, scope: Scope = ALL) -> str | None:
        """Why a metric was not measured in a scope; None when it was."""
        cause = self.frame.missing(scope) or self._causes.get(metric)
        if cause is not None:
            return cause
        known = METRICS[metric]
        if known.source is Source.READING:
            return None if self.reading(metric, "mean", scope) is not None else "no reading came"
        if metric == "server_cpu_increase":
            unread = self.absent("server_cpu", scope)
            no_idle = "no reading of the idle server with its CPU above 0"
            return unread or (no_idle if self._cpu_increase(scope) is None else None)
        if metric == "gpu_energy":
            return None if self._energy(scope) is not None else "no reading came"
        if known.streaming and not any(self.frame.streamed):
            return "the scenario does not stream its answers"
        if known.tokens and scope in self._tallies:
            return self._untold(metric, scope)
        return self._empty(metric, scope)

    def breakdown(self, kind: str) -> Sequence[Breakdown]:
        """By `endpoint`, `adapter`, `phase` or `stream`; empty where the run has only one of them."""
        return self._breakdowns.get(kind, ())

    def _tally(self, scope: Scope) -> Tally:
        found = self._tallies.get(scope)
        if found is None:
            raise LookupError(f"requests were not counted for the scope {scope}: ask a Question for it")
        return found

    def _untold(self, metric: str, scope: Scope) -> str | None:
        tokens = self._tally(scope).tokens
        if tokens.requests and tokens.untold == tokens.requests:
            return "the server sent no token counts (usage)"
        return self._empty(metric, scope)

    def _empty(self, metric: str, scope: Scope) -> str | None:
        if metric == "goodput" or metric == "goodput_rate":
            return self._goodput_unmeasured(scope)
        found = self._distributions.get((metric, scope))
        if found is None or found.count + found.failures:
            return None
        if found.absent:
            return f"{metric} is undefined for all {found.absent} successful answers"
        return "no request"

    def _goodput_unmeasured(self, scope: Scope) -> str | None:
        tally = self._tally(scope)
        if not self.goals:
            return "no per-request objective says what a good request is"
        succeeded = tally.counts.succeeded
        for (metric, _), undefined in zip(self.goals, tally.undefined, strict=True):
            if succeeded and undefined == succeeded:
                return f"{metric} is undefined for all {succeeded} successful answers"
        return None if tally.intended else "no request"

    def _cpu_increase(self, scope: Scope) -> float | None:
        idle = combined("server_cpu", self._readings.of("server_cpu", IDLE), "mean")
        loaded = self.reading("server_cpu", "mean", scope)
        if idle is None or loaded is None or idle == 0:
            return None
        return (loaded - idle) / idle

    def _energy(self, scope: Scope) -> float | None:
        """`gpu_energy` readings are counters: what each grew by in the scope's time, summed."""
        found = within(self._readings.of("gpu_energy", LOAD), self.frame.span(scope.phase).stretches)
        return sum(float(one.values[-1] - one.values[0]) for one in found) if found else None
