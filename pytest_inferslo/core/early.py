"""Whether a run that still goes on has shown enough: the decision of `stop_when_certain`.

Looking again and again at a test made for one look finds something sooner or later. So every promise is
tested here as core/sequential allows, at any time, on the seconds whose requests have all ended (those that
ended early are the fast ones). A run that may stop early is also judged that way at its end, so that
stopping does not change a verdict.

What such a test cannot see from a short run is how the requests cluster that have not come yet. It needs 556
independent requests to prove a clean p99, and where few came near the limit nothing tells that they were
not independent. So a PASS of a percentile must be borne out a second time, by requests that did come: either
at the limit itself, counted as much alike as the values are, or at 0.45 of the limit, where there are enough
slow ones to see how they cluster. There a promise "at most a share q is over the limit" allows q ** 0.45, which
any latency with a tail no heavier than an exponential one exceeds when it breaks the promise: its survival
S satisfies S(u x) >= S(x) ** u for u < 1 (increasing failure rate on average; Barlow and Proschan 1975, chapter
4). Busy queues have such tails. With q = 1 % that is 12.6 %, which takes about 40 independent requests
instead of 556. It is a second condition and never proves anything alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.baseline import Baseline
from pytest_inferslo.core.clustering import discount, level_clustering, slots_over
from pytest_inferslo.core.distribution import SECOND, Scope
from pytest_inferslo.core.evidence import Evidence, Rules
from pytest_inferslo.core.judge import Bench
from pytest_inferslo.core.metrics import Source
from pytest_inferslo.core.objective import Objective
from pytest_inferslo.core.policy import Policy, exact_limit
from pytest_inferslo.core.pool import Pool
from pytest_inferslo.core.questions import LOWER_LIMIT, limits
from pytest_inferslo.core.rubric import Scored, decides, score
from pytest_inferslo.core.share_evidence import required_share, trials_of
from pytest_inferslo.core.statistics import Clustering, share_clustering
from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import Finding, Status

#: Seconds of a run before which nothing is certain: how neighbours are alike cannot be seen sooner.
FEWEST_SECONDS = {Status.FAIL: 5, Status.PASS: 14}
#: Nor does a PASS come before one part in so many of what was planned: events as rare as the plan foresees need time.
PARTS_OF_PLAN = 10


@dataclass(frozen=True)
class Decision:
    """`status` PASS or FAIL when it is certain, None while the run should go on; `reason` for people."""

    status: Status | None
    reason: str = ""


def complete_seconds(expected: npt.NDArray[Any], summary: Summary) -> int:
    """The seconds from the start of the window whose requests have all ended.

    `expected[i]` is how many requests the schedule starts in second i of the window.
    """
    seen = summary.ratio("error_rate").slot_trials[: len(expected)]
    behind = np.flatnonzero(seen < expected[: len(seen)])
    return int(behind[0]) if len(behind) else len(seen)


def decide(
    policy: Policy,
    summary: Summary,
    record: Mapping[str, Any],
    expected: npt.NDArray[Any],
    *,
    baseline: Baseline | None = None,
) -> Decision:
    """What the requests so far make certain. `summary` is of a fold that goes on; `record` names the window.

    FAIL is certain when it is for a whole policy. PASS is, when every promise can be kept for good: not
    those of extremes, windows, totals and error budgets, which the rest of the run could still break.
    """
    seconds = complete_seconds(expected, summary)
    if seconds < min(FEWEST_SECONDS.values()):
        return Decision(None, f"{seconds} whole seconds so far")
    mine = policy.for_record(record)
    until = summary.frame.window[0] + seconds * SECOND
    bench = _SoFar(mine, Pool((summary,), (record,), until), baseline)
    status, scored = _so_far(mine, bench)
    if status is Status.PASS and (mine.budget is not None or seconds < len(expected) // PARTS_OF_PLAN):
        status = Status.INCONCLUSIVE
    if status not in FEWEST_SECONDS or seconds < FEWEST_SECONDS[status]:
        return Decision(None, _open(scored))
    return Decision(status, f"{status.value} is certain after {seconds}s: {_why(scored, status)}")


class _SoFar(Bench):
    """Judges what a run has shown so far, at any time of it."""

    def __init__(self, policy: Policy, pool: Pool, baseline: Baseline | None) -> None:
        super().__init__(policy, pool, baseline)
        self.rules = replace(self.rules, anytime=True)

    def _evidence(self, objective: Objective, scope: Scope) -> Evidence:
        seen = super()._evidence(objective, scope)
        known = limits(objective, scope, self._baseline)
        if seen.status is not Status.PASS or objective.statistic.kind != "percentile" or not known:
            return seen
        if objective.metric.source not in (Source.SAMPLE, Source.GAP):
            return seen
        if _borne_out(objective, self.pool, scope, known[0], self.rules):
            return seen
        return replace(seen, status=Status.INCONCLUSIVE)


def _borne_out(objective: Objective, pool: Pool, scope: Scope, limit: float, rules: Rules) -> bool:
    """Whether a proved percentile also holds for what has not been seen, as the head of this module says."""
    found, strata = pool.distributions(objective.metric.name, scope), pool.strata(scope)
    trials = trials_of(objective, pool, scope, limit)

    def proved(over: npt.NDArray[Any], alike: Clustering, share: float) -> bool:
        worth = min(discount([alike], rules.confidence), trials.most)
        n, t = trials.all_trials.sum(), over.sum()
        return bool(rules.proves((n - t) * worth, t * worth, share))

    share = float(required_share(objective, limit))
    if proved(trials.all_bad, level_clustering(found, strata), share):
        return True
    if not objective.upper:
        return False
    over = slots_over(found, exact_limit(objective, limit) * LOWER_LIMIT)
    lower_share = 1 - (1 - share) ** LOWER_LIMIT
    return proved(over, share_clustering(over, trials.all_trials, strata), lower_share)


def _so_far(policy: Policy, bench: _SoFar) -> tuple[Status, list[Scored]]:
    scored = [
        Scored(_sure(objective, found), objective.weight, objective.key)
        for objective in policy.objectives
        for found in bench.findings(objective)
    ]
    penalties = [
        bench.worst([_sure(penalty.promise, found) for found in bench.findings(penalty.promise)])
        for penalty in policy.rubric.penalties
    ]
    return score(policy.rubric, scored, penalties)[0], scored


def _sure(objective: Objective, found: Finding) -> Finding:
    """The finding as far as the rest of the run cannot change it."""
    lasting = (
        objective.statistic.kind in ("percentile", "mean", "whole")
        and objective.metric.source is not Source.TOTAL
        and not objective.window_ns
    )
    unmeasured = found.observed is None or objective.metric.source is Source.TOTAL
    if (found.status is Status.PASS and not lasting) or (found.status is Status.FAIL and unmeasured):
        return replace(found, status=Status.INCONCLUSIVE)
    return found


def _open(scored: list[Scored]) -> str:
    waiting = [
        s.finding.objective for s in scored if s.finding.status is Status.INCONCLUSIVE and decides(s.finding)
    ]
    return f"not yet certain: {', '.join(dict.fromkeys(waiting)) or 'nothing'}"


def _why(scored: list[Scored], status: Status) -> str:
    deciding = [s.finding for s in scored if s.finding.status is status and decides(s.finding)]
    if status is Status.PASS:
        return f"all {len(deciding)} objectives are proved"
    return "; ".join(f"{found.objective} ({found.observed_text})" for found in deciding)
