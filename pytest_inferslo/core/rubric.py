"""Scores: penalties in points, and a weighted score of the objectives.

Without a rubric every objective vetoes: one FAIL fails the verdict. `penalties` add to that: each condition
that holds costs its points, and `fail_at` points fail the verdict. `pass_at` replaces the veto by a weighted
score, the share of the objectives' weights that passed; objectives marked `key` keep their veto.

What the evidence leaves open counts both ways: the verdict is PASS only if it stands with every open
condition against it, FAIL only if it stands with every one in its favour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_inferslo.core.objective import Objective
from pytest_inferslo.core.verdict import Finding, Status


@dataclass(frozen=True)
class Penalty:
    """`points` are due when `promise` is broken; `text` is the condition as it was written."""

    text: str
    points: float
    promise: Objective


@dataclass(frozen=True)
class Rubric:
    penalties: tuple[Penalty, ...] = ()
    fail_at: float | None = None
    pass_at: float | None = None

    def __bool__(self) -> bool:
        return bool(self.penalties) or self.pass_at is not None


@dataclass(frozen=True)
class Scored:
    """One judged promise as the score sees it."""

    finding: Finding
    weight: float = 1.0
    key: bool = False


def veto(findings: Sequence[Finding]) -> Status:
    """The worst status of those that decide: FAIL before INCONCLUSIVE before PASS."""
    deciding = {finding.status for finding in findings if decides(finding)}
    return next((s for s in (Status.FAIL, Status.INCONCLUSIVE) if s in deciding), Status.PASS)


def decides(finding: Finding) -> bool:
    """Whether a finding counts in the verdict: not a warning, nor an optional one that was not measured."""
    return finding.severity == "fail" and not (finding.optional and finding.observed is None)


def score(
    rubric: Rubric, scored: Sequence[Scored], penalties: Sequence[Finding]
) -> tuple[Status, dict[str, Any]]:
    """The verdict of promises and penalties (in the rubric's order), and the score for the reports."""
    details: dict[str, Any] = {}
    if rubric.pass_at is None:
        statuses = [veto([one.finding for one in scored])]
    else:
        statuses = [
            veto([one.finding for one in scored if one.key]),
            _weighted(rubric.pass_at, scored, details),
        ]
    if rubric.penalties:
        statuses.append(_points(rubric, penalties, details))
    status = next((s for s in (Status.FAIL, Status.INCONCLUSIVE) if s in statuses), Status.PASS)
    return status, details


def _weighted(pass_at: float, scored: Sequence[Scored], details: dict[str, Any]) -> Status:
    counted = [one for one in scored if decides(one.finding)]
    total = sum(one.weight for one in counted)
    sure = sum(one.weight for one in counted if one.finding.status is Status.PASS)
    possible = sure + sum(one.weight for one in counted if one.finding.status is Status.INCONCLUSIVE)
    low, high = (sure / total, possible / total) if total else (0.0, 1.0)  # nothing was measured
    details["score"] = {"low": low, "high": high, "pass_at": pass_at}
    return Status.PASS if low >= pass_at else Status.INCONCLUSIVE if high >= pass_at else Status.FAIL


def _points(rubric: Rubric, findings: Sequence[Finding], details: dict[str, Any]) -> Status:
    low = high = 0.0
    rows = []
    for penalty, finding in zip(rubric.penalties, findings, strict=True):
        due = {Status.FAIL: "due", Status.INCONCLUSIVE: "open"}.get(finding.status, "none")
        if not decides(finding):
            due = "none"
        low += penalty.points if due == "due" else 0.0
        high += penalty.points if due in ("due", "open") else 0.0
        row = {"condition": penalty.text, "points": penalty.points, "due": due}
        rows.append(row | {"observed": finding.observed_text, "reason": finding.reason})
    details["points"] = {"low": low, "high": high, "fail_at": rubric.fail_at, "penalties": rows}
    assert rubric.fail_at is not None
    return (
        Status.FAIL
        if low >= rubric.fail_at
        else Status.INCONCLUSIVE
        if high >= rubric.fail_at
        else Status.PASS
    )
