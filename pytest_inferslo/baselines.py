"""What is known before a load about the promises that compare it with a saved run, the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_inferslo.core.objective import Objective
from pytest_inferslo.core.policy import Policy

#: What to do about promises that have nothing to be compared with.
HINT = (
    "no baseline is named, so that there is nothing to compare with: name a saved run of the same scenario with "
    "--inferslo-baseline=RUN, or record the first one with --inferslo-record-baseline"
)


def uncomparable(policy: Policy) -> list[str]:
    """The promises of `policy`, resolved for its scenario and backend, that need a baseline and decide."""
    return [f"{objective.source}: {objective.text}" for objective in _compared(policy) if _decides(objective)]


def left_out(policies: Sequence[Policy]) -> list[str]:
    """A sentence for each promise that needs a baseline, and without which the verdict is reached all the same."""
    found = [
        f"{objective.source}: {objective.text}: no baseline is named, so that it "
        + ("is left out of the verdict (optional)" if objective.optional else "cannot warn")
        for policy in policies
        for objective in _compared(policy)
        if not _decides(objective)
    ]
    return list(dict.fromkeys(found))


def recording(policies: Sequence[Policy]) -> list[str]:
    """What comes of each promise that has nothing to be compared with in a run that records the baseline."""
    found = [
        f"{objective.source}: {objective.text}: stays open while the baseline is recorded"
        + (", so that the verdict is INCONCLUSIVE at best" if _has_veto(objective, policy) else "")
        for policy in policies
        for objective in _compared(policy)
    ]
    return list(dict.fromkeys(found))


def recorded(scenario: str, path: Path, *, invalid: bool) -> str:
    """What the end of a session says of a run that was to be the first baseline."""
    if invalid:
        return f"{path} is INVALID and can be no baseline of {scenario}: record it again"
    return f"{path} is the baseline of {scenario} now: compare later runs with --inferslo-baseline={path}"


def _compared(policy: Policy) -> Iterator[Objective]:
    return (objective for objective in policy.judged() if objective.limit.reference == "baseline")


def _decides(objective: Objective) -> bool:
    return objective.severity == "fail" and not objective.optional


def _has_veto(objective: Objective, policy: Policy) -> bool:
    weighed = policy.rubric.pass_at is not None and not objective.key
    return _decides(objective) and objective in policy.objectives and not weighed
