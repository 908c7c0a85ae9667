"""JSON documents of a run: written whole or not at all, read with errors that say what to do."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from pytest_inferslo.errors import RecordError


def write_text(path: Path, text: str) -> None:
    """Replace `path` atomically: a reader, or a crash, sees the old text or the new, never a part of one.

    Raises RecordError when it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RecordError(
            f"{path}: cannot be written ({error}); free some space or write elsewhere"
        ) from error


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write strict JSON (RFC 8259). Numbers that it cannot hold become the strings "inf", "-inf" and "nan":
    never null, which would read as "not measured"."""
    text = json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False, default=_encode)
    write_text(path, text + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises RecordError when the file is missing, cut short or not an object."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RecordError(f"{path} is missing: {_missing_cause(path)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged ({error}); restore it from a copy, or measure again") from error
    if not isinstance(document, dict):
        raise RecordError(f"{path} holds no JSON object; restore it from a copy, or measure again")
    return document


def _missing_cause(path: Path) -> str:
    if not path.parent.is_dir():
        return (
            f"there is no directory {path.parent}; give the directory of a run, as `.inferslo/runs/<run id>`"
        )
    if (path.parent / "samples.arrow").exists():
        return "the run was killed before it wrote its record, so its samples cannot be judged; measure again"
    return "the directory is not a run; give one that holds run.json, as `.inferslo/runs/<run id>`"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value


def _encode(value: Any) -> Any:
    """Values that callers may leave in a document: paths, and numpy scalars (by their `item`)."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "item"):
        return _finite(value.item())
    raise TypeError(f"a run record cannot hold {type(value).__name__}: {value!r}")
