"""One real completion: the only proof that a server serves.

Health pages answer long before, and long after, it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_inferslo.backends.probe import Answer, Probe

#: Answers that say "not this way of asking" rather than "not now": the next way is tried.
_OTHER_WAY = {400, 404, 405, 422, 501}
_PROMPT = "Say hello."


@dataclass(frozen=True)
class Proof:
    """`way`: the path that answered with a completion, "" when none did; `answer`: the last answer seen.

    `hopeless`: asking again cannot help (the server refuses this request in every way it could be asked).
    """

    way: str
    answer: Answer
    hopeless: bool = False

    @property
    def answered_as(self) -> str | None:
        """The model that the answer names; None where it names none."""
        body = self.answer.json()
        named = body.get("model") or body.get("model_name") if self.way and isinstance(body, dict) else None
        return named if isinstance(named, str) else None


def complete(probe: Probe, model: str, timeout_s: float) -> Proof:
    """Asks for four tokens by the dialect of the endpoint, else for an embedding or an inference on zeros."""
    ways = _TRITON if probe.endpoint.api == "triton" else _OPENAI
    refusals: list[Answer] = []
    for way, body_for, proves in ways:
        path = way.format(model=model)
        body = body_for(probe, model)
        if body is None:
            continue
        answer = probe.post(path, body, timeout_s)
        if answer.status == 200 and proves(answer):
            return Proof(path, answer)
        if answer.status in (401, 403):
            return Proof("", answer, hopeless=True)
        if answer.status != 200 and answer.status not in _OTHER_WAY:
            return Proof("", answer)
        refusals.append(answer)
    return Proof("", refusals[0], hopeless=all(answer.status != 200 for answer in refusals))


_Body = Callable[[Probe, str], dict[str, Any] | None]
_Proves = Callable[[Answer], bool]


def _has(key: str) -> _Proves:
    def proves(answer: Answer) -> bool:
        body = answer.json()
        return isinstance(body, dict) and bool(body.get(key)) and not body.get("error")

    return proves


def _is_triton_stream(answer: Answer) -> bool:
    return "text_output" in answer.text and '"error"' not in answer.text


def _chat(_: Probe, model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": _PROMPT}], "max_tokens": 4}


def _completion(_: Probe, model: str) -> dict[str, Any]:
    return {"model": model, "prompt": _PROMPT, "max_tokens": 4}


def _embedding(_: Probe, model: str) -> dict[str, Any]:
    return {"model": model, "input": _PROMPT}


def _triton_text(_: Probe, model: str) -> dict[str, Any]:
    return {"text_input": _PROMPT, "max_tokens": 4, "bad_words": "", "stop_words": "", "stream": False}


def _zeros(probe: Probe, model: str) -> dict[str, Any] | None:
    """Inputs of zeros in the shape that the model's configuration asks for; None when it tells none.

    https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_model_configuration.md
    """
    config = probe.get(f"/v2/models/{model}/config", 10.0).json()
    if not isinstance(config, dict) or not config.get("input"):
        return None
    batch = [1] if config.get("max_batch_size", 0) > 0 else []
    inputs = []
    for tensor in config["input"]:
        if tensor.get("optional"):
            continue
        shape = batch + [max(1, int(size)) for size in tensor["dims"]]
        kind = tensor["data_type"].removeprefix("TYPE_")
        value: Any = "" if kind == "STRING" else False if kind == "BOOL" else 0
        datatype = "BYTES" if kind == "STRING" else kind
        data = [value] * math.prod(shape)
        inputs.append({"name": tensor["name"], "shape": shape, "datatype": datatype, "data": data})
    return {"inputs": inputs}


_OPENAI: tuple[tuple[str, _Body, _Proves], ...] = (
    ("/v1/chat/completions", _chat, _has("choices")),
    ("/v1/completions", _completion, _has("choices")),
    ("/v1/embeddings", _embedding, _has("data")),
)
_TRITON: tuple[tuple[str, _Body, _Proves], ...] = (
    ("/v2/models/{model}/generate", _triton_text, _has("text_output")),
    ("/v2/models/{model}/generate_stream", _triton_text, _is_triton_stream),
    ("/v2/models/{model}/infer", _zeros, _has("outputs")),
)
