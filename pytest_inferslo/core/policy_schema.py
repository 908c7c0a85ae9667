"""The JSON Schema of policy files, for editors; the parser says more and has the last word."""

from __future__ import annotations

from typing import Any

from pytest_inferslo.core.cost import Prices
from pytest_inferslo.core.guards import GUARDS
from pytest_inferslo.core.metrics import METRICS

_TEXT = {"type": "string", "minLength": 1}


def policy_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a policy file as YAML loads it."""
    promise = {
        "type": "string",
        "pattern": f"^\\s*({'|'.join(METRICS)})\\b.*(<|>|≤|≥)",
        "description": _GRAMMAR,
    }
    objective = {
        "anyOf": [
            promise,
            _mapping(
                {
                    "objective": promise,
                    "optional": {
                        "type": "boolean",
                        "description": "left out of the verdict when not measured",
                    },
                    "severity": {"enum": ["fail", "warn"]},
                    "weight": {"type": "number", "exclusiveMinimum": 0},
                    "key": {"type": "boolean", "description": "keeps its veto under a weighted score"},
                },
                ["objective"],
            ),
        ]
    }
    objectives = {"type": "array", "items": objective}
    names = {"type": "array", "items": _TEXT}
    guard = {"anyOf": [_TEXT, {"const": False}]}
    guards = _mapping({g.name: guard | {"description": g.meaning} for g in GUARDS.values()})
    change = _mapping({"objectives": objectives, "remove": names, "guards": guards, "confidence": _TEXT})
    changes = {"type": "object", "additionalProperties": change}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://pytest-inferslo.readthedocs.io/schemas/policy.schema.json",
        "title": "pytest-inferslo SLO policy",
        **_mapping(
            {
                "policy": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$"},
                "extends": {"anyOf": [_TEXT, names]},
                "owner": _TEXT,
                "description": _TEXT,
                "confidence": {"type": "string", "pattern": "%$", "default": "99%"},
                "objectives": objectives,
                "remove": names,
                "guards": guards,
                "rubric": _rubric(),
                "error_budget": _budget(promise),
                "prices": _prices(),
                "scenarios": names,
                "overrides": _mapping({"scenarios": changes, "backends": changes}),
            },
            ["policy"],
        ),
    }


_GRAMMAR = "METRIC [STATISTIC] OP LIMIT [for DURATION] [within SCOPE] [after PHASE], like ttft p99 <= 250ms"


def _mapping(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": required} if required else {})


def _rubric() -> dict[str, Any]:
    points = {"type": "string", "pattern": "^[0-9.]+ points?$"}
    penalty = {"type": "object", "additionalProperties": points, "minProperties": 1, "maxProperties": 1}
    penalties = {"type": "array", "items": penalty}
    return _mapping({"fail_at": points, "pass_at": _TEXT, "penalties": penalties})


def _budget(promise: dict[str, Any]) -> dict[str, Any]:
    rate = {"type": "number", "exclusiveMinimum": 0}
    rule = _mapping({"rate": rate, "long": _TEXT, "short": _TEXT}, ["rate", "long", "short"])
    burn = {"type": "array", "items": rule}
    return _mapping({"objective": promise, "period": _TEXT, "burn": burn}, ["objective", "period", "burn"])


def _prices() -> dict[str, Any]:
    kinds: dict[str, Any] = dict.fromkeys(Prices.__dataclass_fields__, _TEXT)
    return _mapping(
        kinds | {"instances": {"type": "number", "exclusiveMinimum": 0}, "count": {"enum": ["output", "all"]}}
    )
