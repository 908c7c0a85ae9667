"""How numbers and foreign text are written for people."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from pytest_inferslo.core.metrics import METRICS, Dimension
from pytest_inferslo.core.units import format_quantity
from pytest_inferslo.core.verdict import Finding, Verdict

_ASCII = str.maketrans(
    {"µ": "u", "μ": "u", "≤": "<=", "≥": ">=", "–": "-", "—": "-", "…": "...", "−": "-", "×": "x", "·": "."}
)

_OPERATOR = re.compile(r"\s*(<=|>=|<|>)\s*")


def printable(text: str, *, ascii_only: bool = False) -> str:
    """Text of a server or a user on one line.

    White space joined, control and escape characters shown as `?`.
    """
    joined = " ".join(text.split())
    clean = "".join("?" if unicodedata.category(char) in ("Cc", "Cf", "Cs") else char for char in joined)
    if not ascii_only:
        return clean
    return clean.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


def scope_apart(finding: Finding) -> str:
    """The scope that was judged, where the objective does not say it itself (`within phase:*`); else nothing."""
    told = re.search(rf"\bwithin\s+{re.escape(finding.scope)}(\s|$)", finding.objective)
    return "" if finding.scope in ("", "all") or told else finding.scope


def split_promise(objective: str, limit_text: str) -> tuple[str, str]:
    """`ttft p99 <= 250ms for 5m` as (`ttft p99 for 5m`, `<= 250ms`), for a table with a column of limits.

    `limit_text` is the limit as it was resolved: `120% of baseline (300ms)`. An objective that is not of this
    form stays whole.
    """
    match = _OPERATOR.search(objective)
    written = limit_text.partition(" (")[0]
    if match is None or not written or not objective.startswith(written, match.end()):
        return objective, limit_text
    clauses = objective[match.end() + len(written) :].strip()
    return f"{objective[: match.start()]} {clauses}".strip(), f"{match[1]} {limit_text}"


def count(number: float) -> str:
    """3,600."""
    return f"{number:,.0f}"


def quantity(metric: str, value: float) -> str:
    """A value of a metric, from its base unit: 250ms, 0.1%."""
    return format_quantity(value, METRICS[metric].dimension)


def duration(nanoseconds: float) -> str:
    return format_quantity(nanoseconds, Dimension.TIME)


def percent(share: float) -> str:
    return format_quantity(share, Dimension.SHARE)


def outcome_name(name: str) -> str:
    """`HTTP_OVERLOADED` as people read it: http overloaded."""
    return name.lower().replace("_", " ")


def followers(verdict: Verdict) -> str:
    """The broken guards that only follow from another one, in a line; empty where there are none."""
    found = [f"{guard.name} {guard.observed_text}" for guard in verdict.guards if guard.follows]
    return f"in consequence also: {', '.join(found)}" if found else ""


def backend_name(record: Mapping[str, Any]) -> str:
    """The backend with its version, where that is one short word."""
    backend = record.get("backend") or {}
    name, version = str(backend.get("name") or "unknown backend"), backend.get("version")
    if isinstance(version, Mapping):
        version = version.get("version")
    return f"{name} {version}" if isinstance(version, str) and version else name
