"""Whether a run that still goes on has shown enough: the decision of `stop_when_certain`.

Looking again and again at a test made for one look finds something sooner or later. So every promise is
tested here as core/sequential allows, at any time, on the seconds whose requests have all ended (those that
ended early are the fast ones). A run that may stop early is also judged that way at its end, so that
stopping does not change a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.baseline import Baseline
from pytest_inferslo.core.distribution import SECOND
from pytest_inferslo.core.judge import Bench
from pytest_inferslo.core.metrics import Source
from pytest_inferslo.core.objective import Objective
from pytest_inferslo.core.policy import Policy
from pytest_inferslo.core.pool import Pool
from pytest_inferslo.core.rubric import Scored, decides, score
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
    bench = Bench(mine, Pool((summary,), (record,), until), baseline)
    bench.rules = replace(bench.rules, anytime=True)
    status, scored = _so_far(mine, bench)
    if status is Status.PASS and (mine.budget is not None or seconds < len(expected) // PARTS_OF_PLAN):
        status = Status.INCONCLUSIVE
    if status not in FEWEST_SECONDS or seconds < FEWEST_SECONDS[status]:
        return Decision(None, _open(scored))
    return Decision(status, f"{status.value} is certain after {seconds}s: {_why(scored, status)}")


def _so_far(policy: Policy, bench: Bench) -> tuple[Status, list[Scored]]:
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
