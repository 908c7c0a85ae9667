"""One directory per run: all that was seen, in files that other tools open (docs/run-directory.md)."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_inferslo.core.readings import Reading
from pytest_inferslo.core.samples import SampleBatch
from pytest_inferslo.errors import RecordError
from pytest_inferslo.storage.json_file import read_json, write_json, write_text
from pytest_inferslo.storage.readings import read_readings
from pytest_inferslo.storage.redaction import redacted
from pytest_inferslo.storage.samples import read_batches
from pytest_inferslo.storage.schema_check import faults

SCHEMA_VERSION = 1
RUN_FILE = "run.json"
VERDICT_FILE = "verdict.json"
SERVER_LOG = "server.log"

#: ns; the figures of a run are kept by the second, so that a damaged window must not ask for more memory than there is.
_LONGEST_WINDOW = 10**16
_MOST_FAULTS = 5  # of a document, told at once


class RunDirectory:
    """The files of one run. `create` makes a new one, `open` checks one that was recorded earlier."""

    def __init__(self, path: Path, created: datetime | None = None) -> None:
        self.path = path
        self._created = created or datetime.now(UTC)

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def server_log(self) -> Path:
        return self.path / SERVER_LOG

    @classmethod
    def create(
        cls, base: Path, scenario_name: str, *, now: datetime | None = None, token: str | None = None
    ) -> RunDirectory:
        """Make `base/runs/<run id>/` and point `base/latest` at it.

        The id sorts by time: UTC instant, scenario, a few random letters (two of one instant differ).
        Raises RecordError when the directory cannot be made.
        """
        instant = (now or datetime.now(UTC)).astimezone(UTC)
        stamp = f"{instant:%Y%m%dT%H%M%S}.{instant.microsecond // 1000:03d}Z"
        run_id = f"{stamp}-{_slug(scenario_name)}-{token or secrets.token_hex(3)}"
        path = base / "runs" / run_id
        make_base(base)
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise _cannot_be_made(path, error) from error
        _point_latest(base, run_id)
        return cls(path, instant)

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """A recorded run, by its directory or by any file in it. Raises RecordError when its record is
        missing, damaged or of another version."""
        directory = cls((path.parent if path.is_file() else path).resolve())
        directory.read_record()
        return directory

    def write_record(self, record: dict[str, Any]) -> None:
        """Write run.json atomically, as often as there is more to say. `schema_version`, `run_id` and, where
        absent, `created` are set here; secrets on command lines and in headers are left out."""
        head = {"schema_version": SCHEMA_VERSION, "run_id": self.run_id, "created": self._created.isoformat()}
        document = {**head, **redacted(record), "run_id": self.run_id}
        write_json(self.path / RUN_FILE, document)

    def read_record(self) -> dict[str, Any]:
        """The run record, checked against the version and the required fields of its published schema."""
        record = _checked(self.path / RUN_FILE, "run.schema.json")
        start, end = record["window"]["start"], record["window"]["end"]
        if not 0 <= start < end <= start + _LONGEST_WINDOW:
            raise RecordError(
                f"{self.path / RUN_FILE} is damaged (the window from {start} to {end} ns is none); restore it from a "
                "copy, or measure again"
            )
        return record

    def write_verdict(self, document: dict[str, Any]) -> None:
        write_json(self.path / VERDICT_FILE, {"schema_version": SCHEMA_VERSION, **document})

    def read_verdict(self) -> dict[str, Any]:
        return _checked(self.path / VERDICT_FILE, "verdict.schema.json")

    def write_file(self, name: str, text: str) -> None:
        """Write a rendered report beside the record, atomically."""
        write_text(self.path / name, text)

    def batches(self) -> Iterator[SampleBatch]:
        return read_batches(self.path)

    def readings(self) -> Iterator[list[Reading]]:
        return read_readings(self.path)


@cache
def schema(name: str) -> dict[str, Any]:
    """A JSON Schema that ships with the package: `run.schema.json` or `verdict.schema.json`."""
    text = resources.files("pytest_inferslo").joinpath("schemas", name).read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def _checked(path: Path, schema_name: str) -> dict[str, Any]:
    document = read_json(path)
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"{path} has schema_version {version!r}, this program reads {SCHEMA_VERSION}: use the version of "
            "pytest-inferslo that wrote it, or measure again"
        )
    found = list(islice(faults(document, schema(schema_name)), _MOST_FAULTS))
    if found:
        raise RecordError(f"{path} is damaged ({'; '.join(found)}); restore it from a copy, or measure again")
    return document


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:60].rstrip("-.") or "run"


def make_base(base: Path) -> None:
    """The directory of all runs, logs included; kept out of git when it is made here.

    Raises RecordError when it cannot be made.
    """
    if base.exists():
        return  # the user's to decide about
    try:
        base.mkdir(parents=True)
        (base / ".gitignore").write_text("# Made by pytest-inferslo.\n*\n", encoding="utf-8")
    except OSError as error:
        raise _cannot_be_made(base, error) from error


def _cannot_be_made(path: Path, error: OSError) -> RecordError:
    return RecordError(f"{path}: cannot be made ({error}); choose a writable directory with --inferslo-dir")


def _point_latest(base: Path, run_id: str) -> None:
    temporary = base / f".latest.{os.getpid()}"
    try:
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(Path("runs") / run_id, target_is_directory=True)
        temporary.replace(base / "latest")
    except OSError:
        # A convenience only: file systems without symbolic links do without it.
        temporary.unlink(missing_ok=True)
