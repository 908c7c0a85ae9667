"""The run directory: ids, atomic documents, published schemas, and refusal of what cannot be trusted."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from pytest_inferslo.core.readings import IDLE, LOAD, Reading
from pytest_inferslo.errors import RecordError
from pytest_inferslo.storage import json_file
from pytest_inferslo.storage.readings import TELEMETRY_FILE, ReadingWriter, read_readings
from pytest_inferslo.storage.run_directory import RunDirectory, make_base, schema

RECORD = json.loads((Path(__file__).parent / "data" / "run.json").read_text())
NOON = datetime(2026, 11, 30, 12, 0, 0, 7_000, tzinfo=UTC)

VERDICT: dict[str, Any] = {
    "status": "FAIL",
    "policy": "chat",
    "policy_sha256": "ab" * 32,
    "confidence": 0.99,
    "findings": [
        {
            "objective": "ttft p99 <= 250ms",
            "metric": "ttft",
            "statistic": "p99",
            "scope": "",
            "limit": 250e6,
            "limit_text": "250 ms",
            "observed": math.inf,
            "observed_text": "failures",
            "interval": (300e6, math.inf),
            "interval_text": "300 ms..failures",
            "samples": 100,
            "effective_samples": 80.5,
            "status": "FAIL",
            "reason": "",
            "severity": "fail",
            "optional": False,
            "source": "chat.yaml:5",
        }
    ],
    "guards": [
        {"name": "send_lag", "ok": True, "observed_text": "1 ms", "threshold_text": "10 ms", "reason": ""}
    ],
    "notes": [],
    "rubric": None,
    "run_ids": ["r1"],
}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "base", "test_bursty", now=NOON, token="abc123")


def test_an_id_tells_when_and_what(run: RunDirectory, tmp_path: Path) -> None:
    assert run.run_id == "20261130T120000.007Z-test_bursty-abc123"
    assert run.path == tmp_path / "base" / "runs" / run.run_id
    assert (tmp_path / "base" / "latest").resolve() == run.path.resolve()


def test_ids_sort_by_time_whatever_the_zone_or_name(tmp_path: Path) -> None:
    later = datetime.fromisoformat("2026-11-30T13:00:01+01:00")
    ids = [
        RunDirectory.create(tmp_path, "b", now=NOON).run_id,
        RunDirectory.create(tmp_path, "a", now=later).run_id,
    ]
    assert ids == sorted(ids)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("scenarios/test_x.py::test_y[vllm-7B]", "scenarios-test_x.py-test_y-vllm-7B"),
        ("../../etc", "etc"),
        ("", "run"),
        ("größe", "gr-e"),
        ("x" * 200, "x" * 60),
    ],
)
def test_names_become_safe_folders(tmp_path: Path, name: str, slug: str) -> None:
    run = RunDirectory.create(tmp_path, name, now=NOON, token="t")
    assert run.run_id == f"20261130T120000.007Z-{slug}-t"
    assert run.path.parent == tmp_path / "runs"


def test_two_runs_of_one_instant_do_not_collide(tmp_path: Path) -> None:
    assert len({RunDirectory.create(tmp_path, "same", now=NOON).run_id for _ in range(20)}) == 20


def test_a_new_base_is_kept_out_of_git_and_an_old_one_is_not_touched(
    tmp_path: Path, run: RunDirectory
) -> None:
    assert "*" in (tmp_path / "base" / ".gitignore").read_text().splitlines()
    RunDirectory.create(tmp_path, "here")
    assert not (tmp_path / ".gitignore").exists()


def test_a_base_that_cannot_be_made_is_named_with_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match=r"file/base: cannot be made .*--inferslo-dir"):
        make_base(tmp_path / "file" / "base")


def test_an_unwritable_base_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="--inferslo-dir"):
        RunDirectory.create(tmp_path / "file", "x")


def test_a_record_comes_back_and_follows_its_schema(run: RunDirectory) -> None:
    given = {
        key: value for key, value in RECORD.items() if key not in ("schema_version", "run_id", "created")
    }
    run.write_record(given)
    found = RunDirectory.open(run.path).read_record()
    assert found == {**given, "schema_version": 1, "run_id": run.run_id, "created": NOON.isoformat()}
    jsonschema.validate(found, schema("run.schema.json"), format_checker=jsonschema.FormatChecker())


@pytest.mark.parametrize("name", ["run.schema.json", "verdict.schema.json"])
def test_the_schemas_are_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("counts", "succeeded"), -1),
        (("counts",), {"intended": 1}),
        (("backend", "simulated"), "no"),
        (("outcomes", "SUCCESS"), {"example": "x"}),
        (("absent",), {"gpu_memory": None}),
        (("window",), None),
    ],
)
def test_the_schema_refuses_wrong_records(path: tuple[str, ...], value: object) -> None:
    record = json.loads(json.dumps(RECORD))
    place = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(record, schema("run.schema.json"))


def test_a_run_opens_by_any_of_its_files_and_by_the_link(run: RunDirectory, tmp_path: Path) -> None:
    run.write_record(RECORD)
    for path in (run.path, run.path / "run.json", tmp_path / "base" / "latest"):
        assert RunDirectory.open(path).run_id == run.run_id


def test_the_link_follows_the_newest_run(tmp_path: Path) -> None:
    first = RunDirectory.create(tmp_path, "a", now=NOON)
    assert (tmp_path / "latest").resolve() == first.path.resolve()
    second = RunDirectory.create(tmp_path, "b", now=NOON + timedelta(seconds=1))
    assert (tmp_path / "latest").resolve() == second.path.resolve()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"run\.json is missing: the directory is not a run"),
        ("", r"run\.json is damaged.*measure again"),
        ('{"schema_version": 1, "run_id"', r"run\.json is damaged"),
        ("[]", "no JSON object"),
        (json.dumps({**RECORD, "schema_version": 2}), r"schema_version 2, this program reads 1"),
        (json.dumps({**RECORD, "schema_version": "1"}), r"schema_version '1'"),
        (json.dumps({k: v for k, v in RECORD.items() if k != "counts"}), "no field 'counts'"),
        (json.dumps({**RECORD, "window": None}), "'window' is no object"),
        (json.dumps({**RECORD, "open_loop": 1}), "'open_loop' is no boolean"),
        (json.dumps({**RECORD, "seed": True}), "'seed' is no integer"),
    ],
)
def test_a_record_that_cannot_be_trusted_is_refused(
    run: RunDirectory, text: str | None, message: str
) -> None:
    if text is not None:
        (run.path / "run.json").write_text(text)
    with pytest.raises(RecordError, match=message):
        RunDirectory.open(run.path)


def test_a_killed_run_and_a_wrong_path_are_told_apart(run: RunDirectory, tmp_path: Path) -> None:
    (run.path / "samples.arrow").write_bytes(b"")
    with pytest.raises(RecordError, match="killed before it wrote its record"):
        RunDirectory.open(run.path)
    with pytest.raises(RecordError, match="there is no directory"):
        RunDirectory.open(tmp_path / "typo")


def test_a_verdict_follows_its_schema_and_infinity_never_becomes_null(run: RunDirectory) -> None:
    run.write_verdict(VERDICT)
    found = run.read_verdict()
    jsonschema.validate(found, schema("verdict.schema.json"))
    assert found["findings"][0]["observed"] == "inf"
    assert found["findings"][0]["interval"] == [300e6, "inf"]


def test_documents_are_strict_json_and_take_numpy_and_paths(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    json_file.write_json(
        path, {"n": np.int64(3), "f": np.float64("nan"), "p": Path("a/b"), 1: (math.inf, 0.5)}
    )

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(path.read_text(), parse_constant=refuse)
    assert found == {"n": 3, "f": "nan", "p": "a/b", "1": ["inf", 0.5]}
    with pytest.raises(TypeError, match="set"):
        json_file.write_json(path, {"x": {1, 2}})
    assert json.loads(path.read_text()) == found, "a failed write leaves the old document"


def test_a_write_that_fails_leaves_the_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    json_file.write_text(path, "old")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json_file.os, "fsync", no_space)
    with pytest.raises(RecordError, match="No space left"):
        json_file.write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_readings_come_back_also_from_an_open_file(tmp_path: Path) -> None:
    first = [Reading(-5, IDLE, "server_cpu", "server", 0.25), Reading(7, LOAD, "gpu_memory", "GPU-1", 5e9)]
    second = [Reading(9, LOAD, "server_memory", "server", 1.5e9)]
    writer = ReadingWriter(tmp_path)
    writer.append(first)
    writer.append([])
    reports: list[str] = []
    assert list(read_readings(tmp_path, on_incomplete=reports.append)) == [first]
    assert len(reports) == 1
    writer.append(second)
    writer.close()
    assert list(read_readings(tmp_path)) == [first, second]


def test_missing_telemetry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=TELEMETRY_FILE):
        list(read_readings(tmp_path))
