"""What clients ask for: bodies, checked and reduced to what the engine needs, with vLLM's error answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from pytest_inferslo.backends.simulated.tokens import answer_start, chat_tokens, tokenize

_COMPLETION_TOKENS = 16


class ApiError(Exception):
    """An answer that refuses a request, in vLLM's error format."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "BadRequestError",
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        self.body = error_body(status, message, kind, param)

    def encoded(self) -> bytes:
        return orjson.dumps(self.body)


def error_body(status: int, message: str, kind: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(slots=True)
class Ask:
    """One generation request, checked. `model` is the name that the client used."""

    model: str
    adapter: str | None
    prompt: Sequence[object]
    output_tokens: int
    limited: bool
    """The length came from the request, so reaching it means `length` rather than `stop`."""
    stream: bool
    include_usage: bool
    continuous_usage: bool
    answer_start: int
    ignore_eos: bool
    min_tokens: int
    stop: list[str]
    echo: str = ""


@dataclass(frozen=True)
class Limits:
    """What the server checks requests against."""

    max_model_len: int
    chat_output_tokens: int


def parse_json(body: bytes) -> dict[str, Any]:
    """The body's object, or vLLM's 400."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _validation(
            f"{{'type': 'json_invalid', 'loc': ('body', {error.pos}), 'msg': 'JSON decode error', "
            f"'input': {{}}, 'ctx': {{'error': '{error.msg}'}}}}",
            f"body.{error.pos}",
        ) from error
    if not isinstance(value, dict):
        raise _validation(
            "{'type': 'model_attributes_type', 'loc': ('body',), 'msg': 'Input should be a dictionary'}",
            "body",
        )
    return value


def _validation(detail: str, param: str) -> ApiError:
    return ApiError(400, f"1 validation error:\n  {detail}", "Bad Request", param)


def _wrong_type(field: str, wanted: str) -> ApiError:
    return _validation(
        f"{{'type': 'type_error', 'loc': ('body', '{field}'), 'msg': 'Input should be a valid {wanted}'}}",
        f"body.{field}",
    )


def missing(field: str, value: Mapping[str, Any]) -> ApiError:
    """The answer to a body without a mandatory field."""
    return _validation(
        f"{{'type': 'missing', 'loc': ('body', '{field}'), 'msg': 'Field required', 'input': {dict(value)}}}",
        f"body.{field}",
    )


def invalid(field: str, problem: str, value: Any) -> ApiError:
    """The answer to a field whose value is out of its range."""
    return ApiError(400, f"{field} {problem}, got {value}. (parameter={field}, value={value})", param=field)


def checked_messages(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conversation of a chat body: at least one message, each an object."""
    messages = value.get("messages")
    if messages is None:
        raise missing("messages", value)
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise _wrong_type("messages", "list of messages")
    if not messages:
        raise ApiError(
            400, "messages must hold at least one message. (parameter=messages, value=[])", param="messages"
        )
    return messages


def chat_ask(value: Mapping[str, Any], adapter: str | None, limits: Limits) -> Ask:
    """An ask from the body of /v1/chat/completions."""
    messages = checked_messages(value)
    limit = value.get("max_completion_tokens")
    if limit is None:
        limit = value.get("max_tokens")
    return _ask(value, adapter, chat_tokens(messages), limit, limits.chat_output_tokens, limits)


def completion_ask(value: Mapping[str, Any], adapter: str | None, limits: Limits) -> Ask:
    """An ask from the body of /v1/completions; one prompt per request, as a text or as token ids."""
    prompt = value.get("prompt")
    if prompt is None:
        raise missing("prompt", value)
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, str):
        tokens: Sequence[object] = tokenize(prompt)
    elif isinstance(prompt, list) and all(isinstance(token, int) for token in prompt):
        tokens = prompt
    else:
        raise ApiError(
            400, "the simulator takes one prompt per request: a string or a list of token ids", param="prompt"
        )
    if not tokens:
        raise ApiError(400, "prompt must hold at least one token. (parameter=prompt, value=)", param="prompt")
    ask = _ask(value, adapter, tokens, value.get("max_tokens"), _COMPLETION_TOKENS, limits)
    if value.get("echo") and isinstance(prompt, str):
        ask.echo = prompt
    return ask


def response_ask(value: Mapping[str, Any], adapter: str | None, limits: Limits) -> Ask:
    """An ask from the body of /v1/responses: `input` is a text or a list of messages."""
    given = value.get("input")
    if given is None:
        raise missing("input", value)
    messages = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ApiError(400, "input must be a string or a list of messages", param="input")
    if value.get("instructions"):
        messages = [{"role": "system", "content": str(value["instructions"])}, *messages]
    limit = value.get("max_output_tokens")
    return _ask(value, adapter, chat_tokens(messages), limit, limits.chat_output_tokens, limits)


def embedding_inputs(value: Mapping[str, Any], limits: Limits) -> list[list[object]]:
    """The inputs of /v1/embeddings as token lists: one text, texts, token ids, or lists of them."""
    given = value.get("input")
    if given is None:
        raise missing("input", value)
    if isinstance(given, str) or (given and isinstance(given, list) and isinstance(given[0], int)):
        given = [given]
    if not isinstance(given, list) or not given or not all(isinstance(entry, str | list) for entry in given):
        raise ApiError(400, "input must be a string, a list of token ids, or a list of these", param="input")
    inputs: list[list[object]] = [
        list(tokenize(entry)) if isinstance(entry, str) else list(entry) for entry in given
    ]
    for tokens in inputs:
        if not tokens:
            raise ApiError(400, "input must hold at least one token", param="input")
        _check_context(len(tokens), 0, limits.max_model_len)
    return inputs


def text_ask(text: Any, limit: Any, model: str, stream: bool, limits: Limits) -> Ask:
    """An ask from a bare text, as Triton's generate extension sends it."""
    if not isinstance(text, str) or not tokenize(text):
        raise ApiError(400, "text_input must hold at least one token", param="text_input")
    value = {"model": model, "stream": stream}
    return _ask(value, None, tokenize(text), limit, _COMPLETION_TOKENS, limits)


def _ask(
    value: Mapping[str, Any],
    adapter: str | None,
    prompt: Sequence[object],
    limit: Any,
    default: int,
    limits: Limits,
) -> Ask:
    room = limits.max_model_len - len(prompt)
    asked = _integer("max_tokens", limit, 1)
    _check_context(len(prompt), asked, limits.max_model_len)
    output_tokens = asked if asked is not None else max(1, min(default, room))
    _check_sampling(value)
    options = value.get("stream_options") or {}
    if not isinstance(options, dict):
        raise _wrong_type("stream_options", "dictionary")
    stop = value.get("stop") or []
    if not isinstance(stop, str | list):
        raise _wrong_type("stop", "string or list")
    return Ask(
        model=value["model"],
        adapter=adapter,
        prompt=prompt,
        output_tokens=output_tokens,
        limited=asked is not None,
        stream=bool(value.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        answer_start=answer_start(" ".join(map(str, prompt[-64:])).encode()),
        ignore_eos=bool(value.get("ignore_eos")),
        min_tokens=_integer("min_tokens", value.get("min_tokens"), 0) or 0,
        stop=[stop] if isinstance(stop, str) else [str(text) for text in stop],
    )


def _integer(field: str, value: Any, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _validation(
            f"{{'type': 'int_parsing', 'loc': ('body', '{field}'), 'msg': 'Input should be a valid integer', "
            f"'input': {value!r}}}",
            f"body.{field}",
        )
    if value < least:
        raise invalid(field, f"must be at least {least}", value)
    return value


def _check_context(prompt: int, asked: int | None, largest: int) -> None:
    output = 1 if asked is None else asked
    if prompt + output > largest:
        raise ApiError(
            400,
            f"This model's maximum context length is {largest} tokens. However, you requested {output} "
            f"output tokens and your prompt contains {prompt} input tokens, for a total of {prompt + output} "
            "tokens. Please reduce the length of the input prompt or the number of requested output tokens. "
            f"(parameter=input_tokens, value={prompt})",
            param="input_tokens",
        )


_RANGES = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}


def _check_sampling(value: Mapping[str, Any]) -> None:
    for field, (low, high) in _RANGES.items():
        number = value.get(field)
        if number is not None and not (isinstance(number, int | float) and low <= number <= high):
            shown = float(number) if isinstance(number, int) else number
            raise invalid(field, f"must be in [{low:g}, {high:g}]", shown)
    if value.get("n") not in (None, 1):
        raise invalid("n", "must be 1 on the simulator", value["n"])
