"""A slow and plain reader of whole answers, written from the specifications and not from the fast one.

RFC 9112 for the framing, the HTML standard (9.2.6) for events, the APIs' documents for what they mean. It
only says of a finished byte sequence whether it is a completed answer, and what was in it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

GOOD = {
    "stop", "length", "tool_calls", "function_call", "model_length", "eos_token", "stop_sequence", "end_turn",
}  # fmt: skip


@dataclass(frozen=True)
class Completed:
    outputs: int
    prompt_tokens: int | None
    output_tokens: int | None


class Incomplete(Exception):
    """Why the bytes are no completed answer."""


def completed(raw: bytes, api: str, streaming: bool) -> Completed:
    """What the answer says; raises Incomplete. `raw` is all that came before the peer closed with FIN."""
    try:
        headers, body = http_body(raw)
        if not streaming:
            return whole(parsed(body), api)
        if headers.get("content-type", "").split(";")[0].strip().lower() not in ("", "text/event-stream"):
            raise Incomplete("no event stream")
        return stream(body, api)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise Incomplete(repr(error)) from error


def parsed(text: bytes) -> Any:
    """JSON, but for what it forbids inside strings: raw control characters and bytes that are no UTF-8. A
    reader that counts tokens need not look at their text.
    """
    return json.loads(text.decode("utf-8", "replace"), strict=False)


def http_body(raw: bytes) -> tuple[dict[str, str], bytes]:
    while True:
        head, found, rest = raw.lstrip(b"\r\n").partition(b"\r\n\r\n")
        if not found:
            raise Incomplete("no head")
        status = re.match(rb"HTTP/1\.[01] ([0-9]{3})(?: |\r\n|$)", head)
        if not status:
            raise Incomplete("no status line")
        if int(status[1]) >= 200:
            break
        raw = rest
    if not 200 <= int(status[1]) < 300 or int(status[1]) == 204:
        raise Incomplete("not a success")
    headers: dict[str, str] = {}
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise Incomplete("a header without a colon")
        headers[name.strip().lower()] = value.strip()
    if headers.get("content-encoding", "identity").lower() not in ("identity", ""):
        raise Incomplete("encoded")
    if "transfer-encoding" in headers:
        if headers["transfer-encoding"].lower() != "chunked":
            raise Incomplete("another transfer coding")
        return headers, chunked(rest)
    if "content-length" in headers:
        length = int(headers["content-length"])
        if len(rest) < length:
            raise Incomplete("short body")
        return headers, rest[:length]
    return headers, rest


def chunked(rest: bytes) -> bytes:
    body = b""
    while True:
        line, found, rest = rest.partition(b"\r\n")
        size = re.fullmatch(rb"([0-9a-fA-F]{1,16})[ \t]*(;.*)?", line, re.DOTALL)
        if not found or not size:
            raise Incomplete("no chunk size")
        length = int(size[1], 16)
        if length == 0:
            break
        if len(rest) < length + 2 or rest[length : length + 2] != b"\r\n":
            raise Incomplete("a chunk of another size")
        body, rest = body + rest[:length], rest[length + 2 :]
    while True:  # trailers
        line, found, rest = rest.partition(b"\r\n")
        if not found:
            raise Incomplete("no end of the trailers")
        if not line:
            return body
        if b":" not in line:
            raise Incomplete("a trailer without a colon")


def events(body: bytes) -> list[tuple[str, bytes]]:
    """(event name, data) of every event that a blank line ended."""
    text = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").removeprefix(b"\xef\xbb\xbf")
    blocks = text.split(b"\n\n")[:-1]
    found = []
    for block in blocks:
        name, data = "", []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value.decode("utf-8", "replace")
        if data:
            found.append((name, b"\n".join(data)))
    return found


def stream(body: bytes, api: str) -> Completed:
    outputs, done, ended = 0, False, False
    finish: dict[int, Any] = {}
    counts: dict[str, Any] = {}
    for name, data in events(body):
        if data.strip() == b"[DONE]":
            done = True
            continue
        value = parsed(data)
        if not isinstance(value, dict):
            raise Incomplete("no object")
        if is_error(name, value, api):
            raise Incomplete("an error")
        if api == "responses":
            said = value.get("type", "")
            outputs += bool(said.endswith(".delta") and value.get("delta")) and not done
            if said in ("response.completed", "response.incomplete", "response.failed", "response.cancelled"):
                response_end(value["response"])
                counts |= value["response"].get("usage") or {}
                ended = True
        elif api == "generate_stream":
            outputs += bool(value["text_output"]) and value["text_output"] != [""] and not done
        else:
            counts |= {k: v for k, v in (value.get("usage") or {}).items() if v is not None}
            outputs += choices(value, finish, "delta" if api == "chat" else "text") and not done
    if api in ("chat", "completions") and (
        not finish or any(reason not in GOOD for reason in finish.values())
    ):
        raise Incomplete(f"finish reasons {finish}")
    if api == "responses" and not ended:
        raise Incomplete("no last event")
    if not outputs:
        raise Incomplete("no output")
    return Completed(outputs, counts.get(_PROMPT.get(api, "")), counts.get(_OUTPUT.get(api, "")))


def is_error(name: str, value: dict[str, Any], api: str) -> bool:
    """By the event's name, its type, or an `error` member; the typed events of Responses have no such
    member.
    """
    if name == "error" or value.get("object") == "error" or value.get("type") == "error":
        return True
    return bool(value.get("error")) and not (api == "responses" and value.get("type"))


_PROMPT = {"chat": "prompt_tokens", "completions": "prompt_tokens", "responses": "input_tokens"}
_OUTPUT = {"chat": "completion_tokens", "completions": "completion_tokens", "responses": "output_tokens"}


def choices(value: dict[str, Any], finish: dict[int, Any], part: str) -> bool:
    """Whether the choices carry output in their `part` (delta, message, text); notes each finish reason."""
    output = False
    for choice in value.get("choices") or ():
        index = choice.get("index", 0)
        finish.setdefault(index, None)
        if choice.get("finish_reason") is not None:
            finish[index] = choice["finish_reason"]
        said = choice.get(part)
        output |= bool(said) if part == "text" else has_output(said or {})
    return output


def has_output(message: dict[str, Any]) -> bool:
    if any(message.get(key) for key in ("content", "refusal", "audio", "reasoning_content", "reasoning")):
        return True
    calls = [call["function"] for call in message.get("tool_calls") or () if call.get("function")]
    calls += [message["function_call"]] if message.get("function_call") else []
    return any(call.get("name") or call.get("arguments") for call in calls)


def response_end(response: dict[str, Any]) -> None:
    reason = (response.get("incomplete_details") or {}).get("reason")
    if response["status"] == "completed" or (
        response["status"] == "incomplete" and reason == "max_output_tokens"
    ):
        return
    raise Incomplete("response not completed")


def whole(value: Any, api: str) -> Completed:
    if not isinstance(value, dict) or value.get("error"):
        raise Incomplete("an error or no object")
    if api in ("chat", "completions"):
        finish: dict[int, Any] = {}
        part = "message" if api == "chat" else "text"
        if not choices(value, finish, part) or any(reason not in GOOD for reason in finish.values()):
            raise Incomplete("no good choice")
        counts = value.get("usage") or {}
        return Completed(1, counts.get("prompt_tokens"), counts.get("completion_tokens"))
    if api == "responses":
        messages = [item for item in value["output"] if item["type"] == "message"]
        texts = [part.get("text") or part.get("refusal") for item in messages for part in item["content"]]
        if not any(texts) and len(messages) == len(value["output"]):
            raise Incomplete("no text")
        response_end(value)
        counts = value.get("usage") or {}
        return Completed(1, counts.get("input_tokens"), counts.get("output_tokens"))
    if api == "embeddings":
        if not value["data"] or not all(row["embedding"] for row in value["data"]):
            raise Incomplete("no embedding")
        counts = value.get("usage") or {}
        return Completed(1, counts.get("prompt_tokens"), counts.get("completion_tokens"))
    if api == "generate":
        if not value["text_output"] or value["text_output"] == [""]:
            raise Incomplete("no text")
        return Completed(1, None, None)
    if not any(item for output in value["outputs"] for item in output["data"]):
        raise Incomplete("no output tensor")
    return Completed(1, None, None)
