"""Frozen dataclasses to JSON and back, exactly: each class has its `kind`, each field its name.

Sequences come back as tuples, `bytes` travel as base64, mappings as they are. Floats survive because JSON
writers of Python use the shortest text that reads back as the same number.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

from pytest_inferslo.errors import ScenarioError


def to_json(value: Any) -> Any:
    """`value` as what the json module can write."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": value.kind, **fields}  # type: ignore[attr-defined]
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    if isinstance(value, bytes):
        return {"kind": "bytes", "base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {"kind": "mapping", "items": dict(value)}
    return value


def without_contents(data: Any) -> Any:
    """`to_json`'s answer with each `bytes` replaced by its length and hash: for a record alone."""
    if isinstance(data, list):
        return [without_contents(item) for item in data]
    if not isinstance(data, dict):
        return data
    if data.get("kind") == "bytes":
        content = base64.b64decode(data["base64"])
        return {"kind": "bytes", "length": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return {name: without_contents(item) for name, item in data.items()}


def from_json(data: Any, kinds: Mapping[str, type]) -> Any:
    """The inverse of `to_json`; `kinds` maps each `kind` to its class. Raises ScenarioError."""
    if isinstance(data, list):
        return tuple(from_json(item, kinds) for item in data)
    if not isinstance(data, dict):
        return data
    fields = dict(data)
    kind = fields.pop("kind", None)
    if kind == "bytes":
        return base64.b64decode(fields["base64"])
    if kind == "mapping":
        return fields["items"]
    if kind not in kinds:
        raise ScenarioError(
            f"kind {kind!r} in a saved scenario is unknown; it was written by another version"
        )
    try:
        return kinds[kind](**{name: from_json(item, kinds) for name, item in fields.items()})
    except TypeError as error:
        raise ScenarioError(f"a saved scenario was written by another version: {error}") from None
