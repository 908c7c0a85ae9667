"""Building answers of servers for the tests of this folder."""

from __future__ import annotations

import json
from typing import Any

from pytest_inferslo.loadgen.dialects import DIALECTS
from pytest_inferslo.loadgen.reply import Reply

STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def delta(content: str | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    fields = more if content is None else {"content": content, **more}
    return {"id": "c", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def usage(prompt: int = 3, output: int = 2, **more: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output, **more}}


def stream(*events: Any, done: bool = True) -> bytes:
    """A complete chunked answer, each event in a chunk of its own."""
    parts = [chunk(event(value)) for value in events]
    return STREAM_HEAD + b"".join(parts) + (chunk(DONE) if done else b"") + b"0\r\n\r\n"


def whole(body: Any, status: str = "200 OK", headers: str = "") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
    )
    return head.encode() + data


def read(data: bytes, api: str = "chat", streaming: bool = True, close: bool = True) -> Reply:
    """The reply that `data`, in one read at 1, makes; then the connection closes at 2."""
    reply = Reply(DIALECTS[api], streaming)
    if not reply.feed(data, 1) and close:
        reply.closed(2)
    return reply
