"""A document against its published JSON Schema, as far as those schemas go.

The tests check whole records with the package jsonschema; a run must not need that. Known here: `type`, `required`,
`properties`, `items`, `additionalProperties` as a schema, and `minimum`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip
#: No count and no time in ns of a run is larger: it would not fit the columns of a sample.
_LARGEST = 1 << 62


def faults(value: Any, rules: dict[str, Any], name: str = "") -> Iterator[str]:
    """What is wrong with `value`, one text each, naming the field like 'window.end'."""
    kinds = rules.get("type", ())
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield f"{name!r} is no {' or '.join(kinds)}"
    elif isinstance(value, dict):
        yield from _in_object(value, rules, name)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from faults(item, rules.get("items", {}), f"{name}[{number}]")
    elif _is(value, "number") and not rules.get("minimum", -_LARGEST) <= value <= _LARGEST:
        yield f"{name!r} is {value!r:.40}"


def _in_object(value: dict[str, Any], rules: dict[str, Any], name: str) -> Iterator[str]:
    path = f"{name}." if name else ""
    for required in rules.get("required", ()):
        if required not in value:
            yield f"no field {path + required!r}"
    known, others = rules.get("properties", {}), rules.get("additionalProperties", {})
    for key, item in value.items():
        yield from faults(item, known.get(key, others if isinstance(others, dict) else {}), path + key)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, _TYPES[kind])
