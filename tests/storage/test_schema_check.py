"""A record that is not what its schema says ends in a named fault, never in a traceback of the judge."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pytest_inferslo.errors import RecordError
from pytest_inferslo.storage.run_directory import RunDirectory

RECORD = json.loads((Path(__file__).parent / "data" / "run.json").read_text())


def test_a_whole_record_has_no_fault(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(RECORD))
    assert RunDirectory.open(tmp_path).read_record() == RECORD


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"counts": {}}, "no field 'counts.intended'"),
        ({"counts": RECORD["counts"] | {"intended": None}}, "'counts.intended' is no integer"),
        ({"counts": RECORD["counts"] | {"intended": "180"}}, "'counts.intended' is no integer"),
        ({"counts": RECORD["counts"] | {"intended": math.nan}}, "'counts.intended' is no integer"),
        ({"counts": RECORD["counts"] | {"intended": True}}, "'counts.intended' is no integer"),
        ({"counts": RECORD["counts"] | {"failed": -1}}, "'counts.failed' is -1"),
        ({"counts": RECORD["counts"] | {"intended": 10**400}}, "'counts.intended' is 1000"),
        ({"window": {"start": 0, "end": 0}}, "the window from 0 to 0 ns is none"),
        ({"window": {"start": 0, "end": 10**18}}, "the window from 0 to"),
        ({"window": {"start": 0, "end": math.inf}}, "'window.end' is no integer"),
        ({"phases": [{"name": "x"}]}, "no field 'phases[0].start'"),
        ({"workers": [None]}, "'workers[0]' is no object"),
        ({"absent": {"icl": 5}}, "'absent.icl' is no string"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    (tmp_path / "run.json").write_text(json.dumps(RECORD | changes))
    with pytest.raises(RecordError) as refused:
        RunDirectory.open(tmp_path)
    assert told in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_a_document_that_nests_too_deep_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("[" * 100_000)
    with pytest.raises(RecordError, match="is damaged"):
        RunDirectory.open(tmp_path)
