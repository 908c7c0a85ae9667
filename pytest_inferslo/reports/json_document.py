"""The verdict as a JSON document: verdict.json and the output of `inferslo judge --json`.

Its shape is schemas/verdict.schema.json. JSON has no infinity, and null means "not measured": an infinite
value is the string "inf".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import Verdict, encoded
from pytest_inferslo.reports.causes import likely_causes
from pytest_inferslo.reports.figures import values


def verdict_document(
    verdict: Verdict, record: Mapping[str, Any], summary: Summary | None = None
) -> dict[str, Any]:
    """The verdict with what a reader needs to place it.

    Which scenario, on which backend, how requests ended.
    """
    scenario, backend = record.get("scenario") or {}, record.get("backend") or {}
    return {
        **verdict.to_dict(),
        "scenario": scenario.get("name"),
        "backend": {"name": backend.get("name"), "simulated": backend.get("simulated")},
        "counts": record.get("counts"),
        "outcomes": record.get("outcomes"),
        "likely_causes": likely_causes(verdict, record, summary),
        "figures": encoded(values(summary, record)) if summary is not None else {},
        "record_notes": list(record.get("notes") or ()),
    }


def render_json(verdict: Verdict, record: Mapping[str, Any], summary: Summary | None = None) -> str:
    """The document as text."""
    document = verdict_document(verdict, record, summary)
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
