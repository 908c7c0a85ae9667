"""What a run says about one promise: the number that was seen, its interval, and whether that decides it.

Four kinds of promise are told apart.

- A percentile, an error rate and a goodput are all "at least this share of the requests is good";
core/statistics
  tests that share exactly. Failed requests are bad ones. Where they alone push the percentile out of every
  finite value the promise is broken whatever the confidence: those requests have no latency to estimate.
- `max` and `min`, and a share of 0 % or 100 %, speak of the requests of this run and of no others: one bad
request
  breaks them, and none keeps them, once there are as many as it takes to prove a p99.
- Means and rates are compared by the bounds of core/means.mean_bounds. A mean is of successful
requests; unless
  the policy limits the error rate as well, one failure makes it infinite.
- Totals that are one number for a run (an increase, an energy, a cost, a recovery) are compared as they are.

What was not measured is broken, never kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from pytest_inferslo.core import sequential, statistics
from pytest_inferslo.core.verdict import Status


@dataclass(frozen=True)
class Evidence:
    """In the metric's base unit. `observed` None: not measured; inf: failures reach that rank.

    `effective` is what the `samples` are worth in independent ones, 0 where that has no meaning. `limit` is
    the number compared with, where it came from another run or another part of this one.
    """

    status: Status
    observed: float | None
    samples: int
    effective: float = 0.0
    interval: tuple[float, float] | None = None
    reason: str = ""
    limit: float | None = None


@dataclass(frozen=True)
class Rules:
    """How to decide: at which confidence, and whether the run may have been stopped by what it showed."""

    confidence: float
    anytime: bool = False
    errors_limited: bool = False

    def proves(self, within: Any, over: Any, share: float) -> Any:
        test = sequential.proves_share if self.anytime else statistics.proves_share
        return test(within, over, share, self.confidence)

    def refutes(self, within: Any, over: Any, share: float) -> Any:
        test = sequential.refutes_share if self.anytime else statistics.refutes_share
        return test(within, over, share, self.confidence)

    def laxer(self, times: int) -> Rules:
        """With so many times the doubt."""
        return replace(self, confidence=max(0.0, 1 - (1 - self.confidence) * times))

    def stricter(self, times: int) -> Rules:
        """For one of `times` questions whose false alarms add up."""
        return replace(self, confidence=1 - (1 - self.confidence) / times)


def what_is_missing(
    within: float, over: float, worth: float, share: float, rate: float, rules: Rules, bad_ones: str
) -> str:
    """How many more requests, and how much time at this rate, would decide if the shares stay as they are.

    `bad_ones` says what befell the `over`.
    """
    factor = statistics.samples_to_decide(within * worth, over * worth, share, rules.confidence)
    n = within + over
    if factor is None:
        return f"{over:g} of {n:g} requests {bad_ones}: too close to what is allowed to decide"
    more = math.ceil(n * (factor - 1))
    alike = (
        "" if worth > 0.8 else f" ({n:g} are worth {n * worth:.0f} independent ones: neighbours are alike)"
    )
    seconds = more / rate
    time = f"{seconds:.0f} more seconds" if seconds < 90 else f"{seconds / 60:.1f} more minutes"
    return f"needs about {more:,} more requests, {time}{alike}"


def not_measured(cause: str) -> Evidence:
    return Evidence(Status.FAIL, None, 0, reason=f"not measured: {cause}")
