"""One real completion: the only proof that a server serves.

Health pages answer long before, and long after, it does.
"""

from __future__ import annotations

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


def complete(probe: Probe, model: str, timeout_s: float) -> Proof:
    """Asks for four tokens by the dialect of the endpoint; embeddings when the model generates none."""
    ways = _TRITON if probe.endpoint.api == "triton" else _OPENAI
    refusals: list[Answer] = []
    for path, body, proves in ways:
        path = path.format(model=model)
        answer = probe.post(path, body(model), timeout_s)
        if answer.status == 200 and proves(answer):
            return Proof(path, answer)
        if answer.status in (401, 403):
            return Proof("", answer, hopeless=True)
        if answer.status != 200 and answer.status not in _OTHER_WAY:
            return Proof("", answer)
        refusals.append(answer)
    return Proof("", refusals[0], hopeless=all(answer.status != 200 for answer in refusals))


def _has(key: str) -> Callable[[Answer], bool]:
    def proves(answer: Answer) -> bool:
        body = answer.json()
        return isinstance(body, dict) and bool(body.get(key)) and not body.get("error")

    return proves


def _is_triton_stream(answer: Answer) -> bool:
    return "text_output" in answer.text and '"error"' not in answer.text


def _triton_text(_: str) -> dict[str, Any]:
    return {"text_input": _PROMPT, "max_tokens": 4, "bad_words": "", "stop_words": "", "stream": False}


_OPENAI: tuple[tuple[str, Callable[[str], Any], Callable[[Answer], bool]], ...] = (
    (
        "/v1/chat/completions",
        lambda model: {"model": model, "messages": [{"role": "user", "content": _PROMPT}], "max_tokens": 4},
        _has("choices"),
    ),
    ("/v1/completions", lambda model: {"model": model, "prompt": _PROMPT, "max_tokens": 4}, _has("choices")),
    ("/v1/embeddings", lambda model: {"model": model, "input": _PROMPT}, _has("data")),
)
_TRITON: tuple[tuple[str, Callable[[str], Any], Callable[[Answer], bool]], ...] = (
    ("/v2/models/{model}/generate", _triton_text, _has("text_output")),
    ("/v2/models/{model}/generate_stream", _triton_text, _is_triton_stream),
)
