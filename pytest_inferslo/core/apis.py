"""The APIs that a scenario may use, and what it may add to the body of their requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_inferslo.core import fields

#: APIs that a scenario may use, and which of them can stream.
APIS = {
    "chat": True,
    "completions": True,
    "responses": True,
    "generate_stream": True,
    "generate": False,
    "infer": False,
    "embeddings": False,
}
#: Fields of a request's body that follow from prompts and `streaming`.
_OWN_FIELDS = ("stream", "messages", "prompt", "input", "inputs", "text_input")


def json_fields(value: Mapping[str, Any]) -> dict[str, Any]:
    """`extra_body` as JSON holds it. Raises ScenarioError for what it cannot hold."""
    fields.instance("extra_body", value, Mapping, "a dictionary of request fields")
    try:
        return dict(json.loads(json.dumps(dict(value), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise fields.refuse("extra_body", value, f"it must be JSON ({error})") from None


def refuse_own_fields(extra_body: Mapping[str, Any], routed: bool) -> None:
    """Raises ScenarioError for fields that the scenario sets itself; `routed`: also `model`, which names an adapter."""
    own = [name for name in extra_body if name in _OWN_FIELDS or (routed and name == "model")]
    if own:
        raise fields.refuse(
            "extra_body", dict(extra_body), f"{own[0]!r} is set by the scenario itself; leave it out"
        )
