"""What the events and bodies of each API look like on the wire, as real servers send them."""

from __future__ import annotations

from typing import Any

import orjson

APIS = ("chat", "completions", "responses", "generate_stream")

Json = dict[str, Any]


def sse(value: Any) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def token_event(api: str, model: str, text: str, kind: str) -> bytes:
    """One output event; `kind` is content, reasoning or tool (the latter two in chats and responses)."""
    if api == "completions":
        return sse(_completion(model, {"text": text, "finish_reason": None}))
    if api == "generate_stream":
        return sse({"model_name": model, "model_version": "1", "text_output": text})
    if api == "responses":
        name = {"content": "output_text", "reasoning": "reasoning_text", "tool": "function_call_arguments"}[
            kind
        ]
        return _named(
            {"type": f"response.{name}.delta", "item_id": "item_0", "output_index": 0, "delta": text}
        )
    delta: Json = {"content": text}
    if kind == "reasoning":
        delta = {"reasoning_content": text}
    elif kind == "tool":
        delta = {"tool_calls": [{"index": 0, "id": "call_0", "function": {"name": "f", "arguments": text}}]}
    return sse(_chat_chunk(model, {"index": 0, "delta": delta, "finish_reason": None}))


def role_event(api: str, model: str) -> bytes:
    """What a stream begins with before any output; nothing where the API has no such event."""
    if api == "chat":
        delta = {"role": "assistant", "content": ""}
        return sse(_chat_chunk(model, {"index": 0, "delta": delta, "finish_reason": None}))
    if api == "responses":
        response = {"id": "resp_0", "object": "response", "status": "in_progress", "model": model}
        return _named({"type": "response.created", "response": response})
    return b""


def finish_event(api: str, model: str, reason: str, usage: Json | None) -> bytes:
    """The event that ends the output. Responses carry their usage here; generate_stream has no such event."""
    if api == "generate_stream":
        return b""
    if api == "completions":
        return sse(_completion(model, {"text": "", "finish_reason": reason}))
    if api == "responses":
        return _named(
            {"type": f"response.{_status(reason)}", "response": _response(model, reason, usage, [])}
        )
    return sse(_chat_chunk(model, {"index": 0, "delta": {}, "finish_reason": reason}))


def usage_event(api: str, model: str, usage: Json) -> bytes:
    """Token counts in an event of their own; nothing where the API has none."""
    if api == "chat":
        return sse(_chat_chunk(model, None) | {"usage": usage})
    if api == "completions":
        return sse(_completion(model, None) | {"usage": usage})
    return b""


def done_event(api: str) -> bytes:
    return b"data: [DONE]\n\n" if api in ("chat", "completions") else b""


def whole_body(api: str, model: str, text: str, reason: str, usage: Json | None) -> bytes:
    """An unstreamed answer."""
    if api == "generate_stream":
        return orjson.dumps({"model_name": model, "model_version": "1", "text_output": text})
    if api == "responses":
        part = {"type": "output_text", "text": text, "annotations": []}
        message = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
        return orjson.dumps(_response(model, reason, usage, [message]))
    message_or_text = {"text": text} if api == "completions" else {
        "message": {"role": "assistant", "content": text}
    }  # fmt: skip
    choice = {"index": 0, **message_or_text, "finish_reason": reason}
    kind = "text_completion" if api == "completions" else "chat.completion"
    body: Json = {"id": "scripted-0", "object": kind, "created": 0, "model": model, "choices": [choice]}
    return orjson.dumps(body | ({"usage": usage} if usage else {}))


def usage_of(api: str, prompt: int, output: int, cached: int, reasoning: int) -> Json:
    """The token counts under the names that the API gives them."""
    names = ("input", "output") if api == "responses" else ("prompt", "completion")
    return {
        f"{names[0]}_tokens": prompt,
        f"{names[1]}_tokens": output,
        "total_tokens": prompt + output,
        f"{names[0]}_tokens_details": {"cached_tokens": cached},
        f"{names[1]}_tokens_details": {"reasoning_tokens": reasoning},
    }


def _named(value: Json) -> bytes:
    return b"event: " + value["type"].encode() + b"\n" + sse(value)


def _status(reason: str) -> str:
    return {"stop": "completed", "length": "incomplete"}.get(reason, "failed")


def _response(model: str, reason: str, usage: Json | None, output: list[Json]) -> Json:
    response: Json = {"id": "resp_0", "object": "response", "status": _status(reason), "model": model}
    response |= {"output": output, "usage": usage}
    if reason == "length":
        response["incomplete_details"] = {"reason": "max_output_tokens"}
    return response


def _chat_chunk(model: str, choice: Json | None) -> Json:
    choices = [choice] if choice else []
    return {
        "id": "scripted-0",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": model,
        "choices": choices,
    }


def _completion(model: str, choice: Json | None) -> Json:
    choices = [{"index": 0, "logprobs": None, **choice}] if choice else []
    return {"id": "scripted-0", "object": "text_completion", "created": 0, "model": model, "choices": choices}
