"""What a person reads on a terminal: the verdict of a run, and several runs side by side.

The same text is the failing test's message, so it is complete: what was promised and seen, why it is not a
pass, what most likely caused it, whether the measurement holds, and how the requests ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_inferslo.core.guards import cut_short
from pytest_inferslo.core.rubric import decides
from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import Finding, Status, Verdict
from pytest_inferslo.reports.causes import likely_causes, ranked_outcomes
from pytest_inferslo.reports.figures import figures
from pytest_inferslo.reports.page import STYLES, Column, Page
from pytest_inferslo.reports.progress import ProgressLine
from pytest_inferslo.reports.wording import (
    backend_name,
    count,
    followers,
    percent,
    scope_apart,
    split_promise,
)

__all__ = ["ProgressLine", "comparison_table", "render_verdict"]

_COLUMNS = (
    Column("objective", rest=True, least=20),
    Column("limit", most=15),
    Column("observed", most=22),
    Column("samples", right=True, least=7),
    Column("verdict", least=7),
)


#: Of a comparison: what no run has, the width of its first column, and what stands between two.
_NONE = "-"
_NAMES = 35
_GAP = 3


def render_verdict(
    verdict: Verdict,
    record: Mapping[str, Any],
    summary: Summary | None,
    *,
    width: int = 80,
    colour: bool = False,
    unicode: bool = False,
) -> str:
    """The whole verdict as text of at most `width` columns.

    Plain ASCII without colour unless asked otherwise.
    """
    page = Page(width, colour=colour, unicode=unicode)
    _headline(page, verdict, record)
    rows = [_row(finding) for finding in verdict.findings]
    page.table(_COLUMNS, rows, [_style(finding) for finding in verdict.findings])
    if verdict.status is Status.INVALID:
        _broken(page, verdict)
    _reasons(page, verdict)
    _rubric(page, verdict)
    _items(page, "Likely cause", likely_causes(verdict, record, summary))
    if verdict.guards and all(guard.ok for guard in verdict.guards):
        page.gap()
        page.line(f"Measurement valid: all {len(verdict.guards)} guards hold")
    _requests(page, record, summary, len(verdict.run_ids))
    _items(page, "Notes", [*verdict.notes, *(n for n in record.get("notes") or () if n not in verdict.notes)])
    _where(page, verdict, record)
    return page.text()


def comparison_table(
    runs: Sequence[tuple[str, Mapping[str, Any], Verdict, Summary | None]],
    *,
    width: int = 80,
    colour: bool = False,
    unicode: bool = False,
) -> str:
    """Several runs of one scenario side by side: one column per run, one line per objective and figure.

    `runs` are (label, record, verdict, summary); a label may have several lines. Runs for which there is no room
    beside the others come in a table below.
    """
    page = Page(width, colour=colour, unicode=unicode)
    rows = _compared_rows(runs)
    cells = [[label, *(row[number] for row in rows)] for number, (label, *_) in enumerate(runs, start=1)]
    wide = [max(len(line) for cell in column for line in cell.split("\n")) for column in cells]
    for number, together in enumerate(_side_by_side(wide, width - _NAMES)):
        if number:
            page.gap()
        titles = [Column(runs[at][0], least=min(wide[at], width - _NAMES - _GAP)) for at in together]
        shown = [[row[0], *(row[at + 1] for at in together)] for row in rows]
        page.table([Column("", rest=True, least=_NAMES - _GAP), *titles], shown)
    if any(cell == _NONE for column in cells for cell in column):
        page.line(f"{_NONE}: not promised by the policy of that run, or not measured in it")
    return page.text()


def _side_by_side(wide: Sequence[int], room: int) -> list[list[int]]:
    """Which columns, of `wide` cells each, stand together where there is `room`."""
    blocks: list[list[int]] = []
    left = 0
    for number, width in enumerate(wide):
        if not blocks or width + _GAP > left:
            blocks.append([])
            left = room
        blocks[-1].append(number)
        left -= width + _GAP
    return blocks


def _compared_rows(
    runs: Sequence[tuple[str, Mapping[str, Any], Verdict, Summary | None]],
) -> list[list[str]]:
    """Each with its name first, and then a cell per run."""
    rows = [["verdict", *(verdict.status.value for _, _, verdict, _ in runs)]]
    simulated = [bool((record.get("backend") or {}).get("simulated")) for _, record, _, _ in runs]
    if any(simulated):
        rows.append(["simulated", *("yes" if each else "no" for each in simulated)])
    for objective in dict.fromkeys(_identity(f) for _, _, verdict, _ in runs for f in verdict.findings):
        found = [next((f for f in v.findings if _identity(f) == objective), None) for _, _, v, _ in runs]
        rows.append([" ".join(filter(None, objective)), *(_compared(finding) for finding in found)])
    for name, cells in _measures(runs).items():
        rows.append([name, *cells])
    return rows


def _headline(page: Page, verdict: Verdict, record: Mapping[str, Any]) -> None:
    scenario = record.get("scenario") or {}
    window = record.get("window") or {}
    seconds = (window.get("end", 0) - window.get("start", 0)) / 1e9
    page.line(
        f"{verdict.status.value}: {scenario.get('name', 'run')} on {backend_name(record)}, "
        f"policy {verdict.policy}",
        style=STYLES[verdict.status.value],
    )
    judged = [finding for finding in verdict.findings if decides(finding)]
    passed = sum(finding.status is Status.PASS for finding in judged)
    proven = f"{passed} of {len(judged)} objectives proven at {percent(verdict.confidence)} confidence"
    if verdict.status is Status.INVALID:
        proven = "the measurement cannot be trusted, so nothing is proven"
    length = f"{seconds:g} s {'asked for' if cut_short(record) else 'measured'}"
    if len(verdict.run_ids) > 1:
        length = f"{len(verdict.run_ids)} runs, the last: {length}"
    page.line(f"{proven}; {length}, seed {record.get('seed', 'unknown')}")


def _row(finding: Finding) -> list[str]:
    promise, limit = split_promise(finding.objective, finding.limit_text)
    if scope := scope_apart(finding):
        promise += f"\n{scope}"
    observed = finding.observed_text or "not measured"
    if finding.observed == math.inf:
        observed += " (failures)"
    if finding.interval_text:
        observed += f"\n{finding.interval_text}"
    samples = count(finding.samples)
    if 0 < finding.effective_samples < 0.95 * finding.samples:  # 0: a point value, which has none
        samples += f"\neff. {count(max(1, finding.effective_samples))}"
    return [promise, limit, observed, samples, _status(finding)]


def _status(finding: Finding) -> str:
    if finding.optional and finding.observed is None:
        return "left out\noptional"
    return finding.status.value + ("\nwarns only" if finding.severity == "warn" else "")


def _style(finding: Finding) -> str:
    return "" if finding.optional and finding.observed is None else STYLES[finding.status.value]


def _reasons(page: Page, verdict: Verdict) -> None:
    not_passed = [finding for finding in verdict.findings if finding.status is not Status.PASS]
    if not not_passed:
        return
    page.heading("Why")
    for finding in not_passed:
        about = ", ".join(filter(None, (finding.source, "warns only" if finding.severity == "warn" else "")))
        reason = finding.reason or f"observed {finding.observed_text}"
        page.line(f"{finding.objective}{f' ({about})' if about else ''}: {reason}", indent=2, hang=2)


def _rubric(page: Page, verdict: Verdict) -> None:
    """The rubric's score, of the shape that core.rubric.score gives."""
    rubric = verdict.rubric or {}
    if not rubric:
        return
    page.heading("Score")
    if points := rubric.get("points"):
        page.line(
            f"{_range(points, '{:g}')} penalty points, fails at {points['fail_at']:g}", indent=2, hang=2
        )
        for penalty in points["penalties"]:
            due = {"due": "due", "open": "may be due", "none": "not due"}[penalty["due"]]
            observed = f" (observed {penalty['observed']})" if penalty["observed"] else ""
            page.line(
                f"- {penalty['condition']}{observed}: {penalty['points']:g} points {due}", indent=2, hang=2
            )
    if score := rubric.get("score"):
        page.line(f"score {_range(score, '{:.1%}')}, passes at {score['pass_at']:.1%}", indent=2, hang=2)


def _range(found: Mapping[str, Any], form: str) -> str:
    low, high = form.format(found["low"]), form.format(found["high"])
    return low if low == high else f"{low} to {high}"


def _broken(page: Page, verdict: Verdict) -> None:
    """Why nothing is proven: the broken guards, and in one line those that were bound to break with them."""
    broken = [guard for guard in verdict.guards if not guard.ok]
    page.heading(f"Measurement invalid: {len(broken)} of {len(verdict.guards)} guards broken")
    for guard in broken:
        if not guard.follows:
            reason = f": {guard.reason}" if guard.reason else ""
            page.line(
                f"{guard.name} {guard.observed_text}, allowed {guard.threshold_text}{reason}",
                indent=2,
                hang=2,
            )
    if followed := followers(verdict):
        page.line(followed, indent=2, hang=2)


def _requests(page: Page, record: Mapping[str, Any], summary: Summary | None, repeats: int) -> None:
    counts = vars(summary.counts()) if summary is not None else record["counts"]
    scope = "in the window" if summary is not None else "in the run"
    scope += " of the last run" if repeats > 1 else ""
    parts = [
        f"{count(counts[name])} {name.replace('_', ' ')}"
        for name in ("succeeded", "failed", "unfinished", "never_sent")
        if counts[name] or name == "succeeded"
    ]
    page.gap()
    page.line(f"Requests {scope}: {count(counts['intended'])} intended = {' + '.join(parts)}", hang=2)
    for name, number, example in ranked_outcomes(record, summary):
        said = f", as: {example}" if example else ""
        page.line(f"{name} {count(number)}{said}", indent=2, hang=2)


def _items(page: Page, title: str, items: Sequence[str]) -> None:
    if items:
        page.heading(title)
        for item in items:
            page.line(f"- {item}", indent=2, hang=2)


def _where(page: Page, verdict: Verdict, record: Mapping[str, Any]) -> None:
    for run_id in verdict.run_ids or ((record["run_id"],) if record.get("run_id") else ()):
        page.gap()
        page.line(f"Run {run_id}")


def _identity(finding: Finding) -> tuple[str, str]:
    return finding.objective, "" if finding.scope in ("", "all") else finding.scope


def _compared(finding: Finding | None) -> str:
    if finding is None:
        return _NONE
    if finding.optional and finding.observed is None:
        return "not measured"
    mark = "" if finding.status is Status.PASS else f"\n{finding.status.value}"
    return (finding.observed_text or "not measured") + mark


def _measures(
    runs: Sequence[tuple[str, Mapping[str, Any], Verdict, Summary | None]],
) -> dict[str, list[str]]:
    """Figures that a reader compares whatever the policy promises; a line that no run has is left out."""
    columns = [figures(s, record) if s is not None else {} for _, record, _, s in runs]
    names = dict.fromkeys(name for column in columns for name in column)
    return {name: [column.get(name, _NONE) for column in columns] for name in names}
