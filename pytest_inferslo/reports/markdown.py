"""A verdict in Markdown, for the job summary of a CI run or a comment on a change."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from typing import Any

from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import Finding, Status, Verdict
from pytest_inferslo.reports.causes import likely_causes, ranked_outcomes
from pytest_inferslo.reports.figures import figures
from pytest_inferslo.reports.wording import backend_name, count, followers, percent, printable, scope_apart

_MARKS = {Status.PASS: "✅", Status.FAIL: "❌", Status.INCONCLUSIVE: "❔", Status.INVALID: "⚠️"}


def render_markdown(verdict: Verdict, record: Mapping[str, Any], summary: Summary | None) -> str:
    """GitHub-flavoured Markdown: a heading, the table of objectives, and the rest folded away."""
    scenario = (record.get("scenario") or {}).get("name", "run")
    title = f"{scenario} on {backend_name(record)}: {verdict.status.value}"
    lines = [
        f"### {_MARKS[verdict.status]} {_cell(title)}",
        "",
        f"Policy {_code(verdict.policy)} at {percent(verdict.confidence)} confidence.",
        *(f"**{_cell(note)}.**" for note in record.get("notes") or ()),
        "",
        *_table(
            ["objective", "limit", "observed", "interval", "samples", "verdict"], map(_row, verdict.findings)
        ),
        *_bullets("Measurement invalid", _broken(verdict)),
        *_bullets("Why", _reasons(verdict)),
        *_bullets("Likely cause", [_cell(cause) for cause in likely_causes(verdict, record, summary)]),
        *_bullets("Notes", [_cell(note) for note in verdict.notes]),
        *_folded(
            "Requests of the last run" if len(verdict.run_ids) > 1 else "Requests", _outcomes(record, summary)
        ),
        *(_folded("Figures", _figures(summary, record)) if summary is not None else []),
        f"Run {', '.join(_code(run_id) for run_id in verdict.run_ids) or 'unknown'}",
    ]
    return "\n".join(lines) + "\n"


def _row(finding: Finding) -> list[str]:
    scope = f" ({apart})" if (apart := scope_apart(finding)) else ""
    observed = finding.observed_text or "not measured"
    if finding.observed == math.inf:
        observed += " (failures)"
    status = f"{_MARKS[finding.status]} {finding.status.value}"
    if finding.optional and finding.observed is None:
        status = "left out (optional)"
    elif finding.severity == "warn":
        status += " (warns only)"
    return [
        _code(finding.objective + scope),
        _cell(finding.limit_text),
        _cell(observed),
        _cell(finding.interval_text),
        count(finding.samples),
        status,
    ]


def _reasons(verdict: Verdict) -> list[str]:
    return [
        f"{_code(finding.objective)} ({_cell(finding.source)}{', warns only' if finding.severity == 'warn' else ''}): "
        f"{_cell(finding.reason)}"
        for finding in verdict.findings
        if finding.status is not Status.PASS and finding.reason
    ]


def _broken(verdict: Verdict) -> list[str]:
    found = [
        f"{_code(guard.name)} {_cell(guard.observed_text)}, allowed {_cell(guard.threshold_text)}: "
        f"{_cell(guard.reason)}"
        for guard in verdict.guards
        if not guard.ok and not guard.follows
    ]
    followed = followers(verdict)
    return [*found, _cell(followed)] if followed else found


def _outcomes(record: Mapping[str, Any], summary: Summary | None) -> list[str]:
    counts = vars(summary.counts()) if summary is not None else record["counts"]
    rows = [["succeeded", count(counts["succeeded"]), ""]]
    rows += [[_code(name), count(n), _cell(example)] for name, n, example in ranked_outcomes(record, summary)]
    return _table(["outcome", "requests", "an example"], rows)


def _figures(summary: Summary, record: Mapping[str, Any]) -> list[str]:
    return _table(
        ["figure", "value"], [[name, _cell(text)] for name, text in figures(summary, record).items()]
    )


def _table(head: list[str], rows: Any) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _bullets(title: str, items: list[str]) -> list[str]:
    return ["", f"**{title}**", "", *(f"- {item}" for item in items)] if items else []


def _folded(title: str, lines: list[str]) -> list[str]:
    return ["", f"<details><summary>{title}</summary>", "", *lines, "", "</details>", ""]


def _cell(text: str) -> str:
    """Foreign text as text: neither markup nor a table's bar."""
    escaped = html.escape(printable(text), quote=False).replace("|", "\\|")
    for char in "*_`[]":
        escaped = escaped.replace(char, f"\\{char}")
    return escaped


def _code(text: str) -> str:
    """A code span; GitHub takes a bar in a table for a cell's end even there, unless it is escaped."""
    return f"`{printable(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`"
