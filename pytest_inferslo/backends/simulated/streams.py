"""Answers on the wire, in the formats that vLLM's servers send: one chunk per token, in one write per step.

A sink belongs to one request: the server's delivery loop calls `deliver` whenever the engine made one more token.
Everything that does not change from token to token is serialised once.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

import orjson

from pytest_inferslo.backends.simulated.asks import Ask, error_body
from pytest_inferslo.backends.simulated.engine import Request
from pytest_inferslo.backends.simulated.tokens import ENCODED, answer_text
from pytest_inferslo.servers.http import Exchange

FINGERPRINT = "simulated"
_DONE = b"data: [DONE]\n\n"
_END = b"0\r\n\r\n"
_SIZE = len(ENCODED)


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    """One server-sent event in an HTTP chunk."""
    return chunk(b"data: " + orjson.dumps(value) + b"\n\n")


def usage(request: Request) -> dict[str, Any]:
    """Token counts as vLLM reports them."""
    prompt, output = len(request.prompt), request.generated
    counts: dict[str, Any] = {
        "prompt_tokens": prompt,
        "total_tokens": prompt + output,
        "completion_tokens": output,
    }
    if request.cached_tokens > 0:
        counts["prompt_tokens_details"] = {"cached_tokens": request.cached_tokens}
    return counts


class Sink(Protocol):
    """Delivers one request's tokens; `done` resolves when its answer is complete."""

    done: asyncio.Future[None]

    def deliver(self, request: Request) -> None: ...

    def abort(self, request: Request) -> None: ...


class Format(Protocol):
    """The shape of one API's events and bodies."""

    def prefix(self) -> bytes: ...

    suffix: bytes

    def first(self) -> bytes: ...

    def last(self, text: str, reason: str) -> dict[str, Any]: ...

    def usage_event(self, request: Request) -> dict[str, Any]: ...

    def body(self, text: str, request: Request) -> dict[str, Any]: ...


class ChatFormat:
    """/v1/chat/completions"""

    suffix = b'"},"logprobs":null,"finish_reason":null,"token_ids":null}]'

    def __init__(self, identity: str, model: str) -> None:
        self._head = {
            "id": f"chatcmpl-{identity}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
        }
        self._head["model"] = model

    def prefix(self) -> bytes:
        return orjson.dumps(self._head)[:-1] + b',"choices":[{"index":0,"delta":{"content":"'

    def first(self) -> bytes:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return event(self._head | {"choices": [choice], "prompt_token_ids": None, "prompt_text": None})

    def last(self, text: str, reason: str) -> dict[str, Any]:
        choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": reason}
        return self._head | {"choices": [choice | {"stop_reason": None, "token_ids": None}]}

    def usage_event(self, request: Request) -> dict[str, Any]:
        return self._head | {"choices": [], "usage": usage(request), "system_fingerprint": FINGERPRINT}

    def body(self, text: str, request: Request) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None, "tool_calls": [], "reasoning": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": request.finish_reason}
        return self._head | {
            "object": "chat.completion",
            "choices": [choice | {"stop_reason": None, "token_ids": None}],
            "system_fingerprint": FINGERPRINT,
            "usage": usage(request),
        }


class CompletionFormat:
    """/v1/completions"""

    suffix = b'","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]'

    def __init__(self, identity: str, model: str) -> None:
        self._head = {
            "id": f"cmpl-{identity}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def prefix(self) -> bytes:
        return orjson.dumps(self._head)[:-1] + b',"choices":[{"index":0,"text":"'

    def first(self) -> bytes:
        return b""

    def last(self, text: str, reason: str) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        return self._head | {"choices": [choice | {"prompt_token_ids": None, "token_ids": None}]}

    def usage_event(self, request: Request) -> dict[str, Any]:
        return self._head | {"choices": [], "usage": usage(request), "system_fingerprint": FINGERPRINT}

    def body(self, text: str, request: Request) -> dict[str, Any]:
        return self.last(text, request.finish_reason) | {
            "usage": usage(request),
            "system_fingerprint": FINGERPRINT,
        }


class StreamSink:
    """Server-sent events: deltas, the finish reason with the last one, usage on demand, [DONE]."""

    def __init__(self, exchange: Exchange, ask: Ask, shape: Format) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exchange = exchange
        self._shape = shape
        self._ask = ask
        self._at = ask.answer_start
        self._prefix = b"data: " + shape.prefix()
        self._suffix = shape.suffix + b"}\n\n"
        self._fixed = len(self._prefix) + len(self._suffix)

    def deliver(self, request: Request) -> None:
        index = request.generated - 1
        word = ENCODED[(self._at + index) % _SIZE]
        if index == 0:
            word = word[1:]
        if request.finished:
            self._finish(request, word.decode())
        elif self._ask.continuous_usage:
            self._exchange.write(self._counted(request, word.decode(), None))
        else:
            data = b"%x\r\n%b%b%b\r\n" % (self._fixed + len(word), self._prefix, word, self._suffix)
            self._exchange.write(self._shape.first() + data if index == 0 else data)

    def _counted(self, request: Request, word: str, reason: str | None) -> bytes:
        first = self._shape.first() if request.generated == 1 else b""
        value = self._shape.last(word, reason)  # type: ignore[arg-type]
        return first + event(value | {"usage": usage(request)} if self._ask.continuous_usage else value)

    def _finish(self, request: Request, word: str) -> None:
        data = self._counted(request, word, request.finish_reason)
        if self._ask.include_usage:
            data += event(self._shape.usage_event(request))
        self._exchange.write(data + chunk(_DONE) + _END)
        self._resolve()

    def abort(self, request: Request) -> None:
        """Ends the stream as vLLM does when it is told to stop: finish_reason `abort`, then [DONE]."""
        if not self.done.done():
            data = event(self._shape.last("", "abort"))
            self._exchange.write(data + chunk(_DONE) + _END)
            self._resolve()

    def fail(self, message: str) -> None:
        """An error event in the middle of the stream, then [DONE]: the status was sent long ago."""
        self._exchange.write(event(error_body(500, message, "InternalServerError")) + chunk(_DONE) + _END)
        self._resolve()

    def _resolve(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class BodySink:
    """One JSON body when the last token is there."""

    def __init__(self, exchange: Exchange, ask: Ask, shape: Format) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._exchange = exchange
        self._shape = shape
        self._ask = ask

    def deliver(self, request: Request) -> None:
        if request.finished:
            text = self._ask.echo + answer_text(self._ask.answer_start, request.generated)
            self._exchange.reply_json(200, self._shape.body(text, request))
            self._resolve()

    def abort(self, request: Request) -> None:
        """Answers with what there is so far and finish_reason `abort`."""
        if not self.done.done():
            self._exchange.reply_json(
                200, self._shape.body(answer_text(self._ask.answer_start, request.generated), request)
            )
            self._resolve()

    def _resolve(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
