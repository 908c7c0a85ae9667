"""Frozen dataclasses to JSON and back, exactly: each class carries its `kind`, each field stands under its
name.

Sequences come back as tuples, `bytes` travel as base64. Floats survive because JSON writers of Python use the
shortest text that reads back as the same number.
"""

from __future__ import annotations

import base64
import dataclasses
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
        return {name: to_json(item) for name, item in value.items()}
    return value


def from_json(data: Any, kinds: Mapping[str, type]) -> Any:
    """The inverse of `to_json`; `kinds` maps each `kind` to its class. Raises ScenarioError for an unknown
    one.
    """
    if isinstance(data, list):
        return tuple(from_json(item, kinds) for item in data)
    if not isinstance(data, dict):
        return data
    fields = dict(data)
    kind = fields.pop("kind", None)
    if kind is None:
        return {name: from_json(item, kinds) for name, item in fields.items()}
    if kind == "bytes":
        return base64.b64decode(fields["base64"])
    if kind not in kinds:
        raise ScenarioError(
            f"kind {kind!r} in a saved scenario is unknown; it was written by another version"
        )
    return kinds[kind](**{name: from_json(item, kinds) for name, item in fields.items()})
