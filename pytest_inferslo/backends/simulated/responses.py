"""/v1/responses: the typed events of the OpenAI Responses API, and its body."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import orjson

from pytest_inferslo.backends.simulated.asks import Ask, error_body
from pytest_inferslo.backends.simulated.endings import Ending
from pytest_inferslo.backends.simulated.sequences import Request
from pytest_inferslo.backends.simulated.streams import END, Format, chunk
from pytest_inferslo.backends.simulated.tokens import ENCODED, answer_text
from pytest_inferslo.servers.http import Exchange

_SIZE = len(ENCODED)


class ResponsesFormat:
    """The response object; as a Format it serves the body of requests that do not stream."""

    suffix = terminator = b""

    def __init__(self, identity: str, model: str) -> None:
        self.item = f"msg_{identity}"
        self._head: dict[str, Any] = {
            "id": f"resp_{identity}",
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "error": None,
        }

    def prefix(self) -> bytes:
        return b""

    def first(self) -> bytes:
        return b""

    def last(self, text: str, reason: str | None, stop: str | None) -> dict[str, Any]:
        return {}

    def usage_event(self, request: Request) -> dict[str, Any]:
        return {}

    def opened(self) -> dict[str, Any]:
        return self._head | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}

    def message(self, text: str, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [self.part(text)]
        return {"id": self.item, "type": "message", "status": status, "role": "assistant", "content": content}

    def part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def body(self, text: str, request: Request, stop: str | None) -> dict[str, Any]:
        whole = request.finish_reason == "stop"
        prompt, output = len(request.prompt), request.generated
        reason = "max_output_tokens" if request.finish_reason == "length" else request.finish_reason
        return self._head | {
            "status": "completed" if whole else "incomplete",
            "incomplete_details": None if whole else {"reason": reason},
            "output": [self.message(text, "completed" if whole else "incomplete")],
            "usage": {
                "input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": max(0, request.cached_tokens)},
                "output_tokens": output,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": prompt + output,
            },
        }


class ResponsesSink:
    """Typed, numbered events; the stream ends with `response.completed` and has no [DONE]."""

    def __init__(self, exchange: Exchange, ask: Ask, how: Ending, shape: Format) -> None:
        assert isinstance(shape, ResponsesFormat)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.blank = False
        self._exchange = exchange
        self._ask = ask
        self._stop = how.stop
        self._shape = shape
        self._number = 0
        self._place = {"item_id": shape.item, "output_index": 0, "content_index": 0}
        self._delta = (
            b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"'
            + shape.item.encode()
            + b'","output_index":0,"content_index":0,"logprobs":[],"sequence_number":%d,"delta":"%b"}\n\n'
        )

    def _event(self, kind: str, **fields: Any) -> bytes:
        value = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return chunk(b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(value)))

    def _opening(self) -> bytes:
        shape = self._shape
        return b"".join(
            (
                self._event("response.created", response=shape.opened()),
                self._event("response.in_progress", response=shape.opened()),
                self._event(
                    "response.output_item.added", output_index=0, item=shape.message("", "in_progress")
                ),
                self._event("response.content_part.added", **self._place, part=shape.part("")),
            )
        )

    def deliver(self, request: Request) -> None:
        index = request.generated - 1
        data = self._opening() if index == 0 else b""
        if not self.blank and not (request.finished and self._stop):
            word = ENCODED[(self._ask.answer_start + index) % _SIZE]
            data += chunk(self._delta % (self._number, word if index else word[1:]))
            self._number += 1
        if not request.finished:
            self._exchange.write(data)
            return
        words = 0 if self.blank else request.generated - (self._stop is not None)
        self._end(data + self._closing(request, answer_text(self._ask.answer_start, words)))

    def _closing(self, request: Request, text: str) -> bytes:
        shape = self._shape
        body = shape.body(text, request, self._stop)
        item = shape.message(text, "completed")
        return b"".join(
            (
                self._event("response.output_text.done", **self._place, text=text, logprobs=[]),
                self._event("response.content_part.done", **self._place, part=shape.part(text)),
                self._event("response.output_item.done", output_index=0, item=item),
                self._event("response.completed", response=body),
            )
        )

    def abort(self, request: Request) -> None:
        """Ends the stream with `response.incomplete` and the reason `abort`."""
        text = answer_text(self._ask.answer_start, request.generated)
        self._end(self._event("response.incomplete", response=self._shape.body(text, request, None)))

    def fail(self, message: str) -> None:
        """Ends the stream with `response.failed`."""
        error = error_body(500, message, "InternalServerError")["error"]
        self._end(
            self._event(
                "response.failed", response=self._shape.opened() | {"status": "failed", "error": error}
            )
        )

    def _end(self, data: bytes) -> None:
        if not self.done.done():
            self._exchange.write(data + END)
            self.done.set_result(None)
