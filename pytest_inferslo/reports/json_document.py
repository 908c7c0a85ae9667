"""The verdict as a JSON document: verdict.json and the output of `inferslo judge --json`.

Its shape is schemas/verdict.schema.json. JSON has no infinity, and null means "not measured": an infinite
value is the string "inf".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from typing import Any

from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import Verdict
from pytest_inferslo.reports.causes import likely_causes
from pytest_inferslo.reports.figures import values

SCHEMA_VERSION = 1


def verdict_document(
    verdict: Verdict, record: Mapping[str, Any], summary: Summary | None = None
) -> dict[str, Any]:
    """The verdict with what a reader needs to place it.

    Which scenario, on which backend, how requests ended.
    """
    scenario, backend = record.get("scenario") or {}, record.get("backend") or {}
    document = {
        "schema_version": SCHEMA_VERSION,
        "status": verdict.status,
        "exit_code": verdict.status.exit_code,
        "scenario": scenario.get("name"),
        "backend": {"name": backend.get("name"), "simulated": backend.get("simulated")},
        **asdict(verdict),
        "counts": record.get("counts"),
        "outcomes": record.get("outcomes"),
        "likely_causes": likely_causes(verdict, record, summary),
        "figures": values(summary, record) if summary is not None else {},
        "record_notes": list(record.get("notes") or ()),
    }
    encoded: dict[str, Any] = _encoded(document)
    return encoded


def render_json(verdict: Verdict, record: Mapping[str, Any], summary: Summary | None = None) -> str:
    """The document as text."""
    document = verdict_document(verdict, record, summary)
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _encoded(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): _encoded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encoded(each) for each in value]
    return value
