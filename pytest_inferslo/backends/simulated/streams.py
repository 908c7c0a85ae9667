"""Answers on the wire, in the formats that vLLM's servers send: one chunk per token, in one write per step.

A sink belongs to one request: `deliver` is called whenever the engine made one more token. Everything
that does not change from token to token is serialised once.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

import orjson

from pytest_inferslo.backends.simulated.asks import Ask, error_body
from pytest_inferslo.backends.simulated.endings import Ending
from pytest_inferslo.backends.simulated.sequences import Request
from pytest_inferslo.backends.simulated.tokens import ENCODED, answer_text
from pytest_inferslo.servers.http import Exchange

FINGERPRINT = "simulated"
_DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"
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
    blank: bool
    """Every token's text is empty (a fault)."""

    def deliver(self, request: Request) -> None: ...

    def abort(self, request: Request) -> None: ...


class Format(Protocol):
    """The shape of one API's events and bodies. A token's event is prefix + escaped text + suffix."""

    suffix: bytes
    terminator: bytes
    """What follows the last event of a stream."""

    def prefix(self) -> bytes: ...

    def first(self) -> bytes: ...

    def last(self, text: str, reason: str | None, stop: str | None) -> dict[str, Any]: ...

    def usage_event(self, request: Request) -> dict[str, Any]: ...

    def body(self, text: str, request: Request, stop: str | None) -> dict[str, Any]: ...


class ChatFormat:
    """/v1/chat/completions"""

    suffix = b'"},"logprobs":null,"finish_reason":null,"token_ids":null}]}'
    terminator = chunk(_DONE)

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

    def last(self, text: str, reason: str | None, stop: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": reason}
        return self._head | {"choices": [choice | {"stop_reason": stop, "token_ids": None}]}

    def usage_event(self, request: Request) -> dict[str, Any]:
        return self._head | {"choices": [], "usage": usage(request), "system_fingerprint": FINGERPRINT}

    def body(self, text: str, request: Request, stop: str | None) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": text,
            "refusal": None,
            "tool_calls": [],
            "reasoning": None,
        }
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": request.finish_reason}
        return self._head | {
            "object": "chat.completion",
            "choices": [choice | {"stop_reason": stop, "token_ids": None}],
            "system_fingerprint": FINGERPRINT,
            "usage": usage(request),
        }


class CompletionFormat:
    """/v1/completions"""

    suffix = (
        b'","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,'
        b'"token_ids":null}]}'
    )
    terminator = chunk(_DONE)

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

    def last(self, text: str, reason: str | None, stop: str | None) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason, "stop_reason": stop}
        return self._head | {"choices": [choice | {"prompt_token_ids": None, "token_ids": None}]}

    def usage_event(self, request: Request) -> dict[str, Any]:
        return self._head | {"choices": [], "usage": usage(request), "system_fingerprint": FINGERPRINT}

    def body(self, text: str, request: Request, stop: str | None) -> dict[str, Any]:
        counts = {"usage": usage(request), "system_fingerprint": FINGERPRINT}
        return self.last(text, request.finish_reason, stop) | counts


class StreamSink:
    """Server-sent events: deltas, the finish reason with the last one, usage on demand, the terminator.

    After the first token, an event holds `interval` tokens, as with vLLM's --stream-interval.
    """

    def __init__(self, exchange: Exchange, ask: Ask, how: Ending, shape: Format, interval: int = 1) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.blank = False
        self._exchange = exchange
        self._shape = shape
        self._ask = ask
        self._stop = how.stop
        self._at = ask.answer_start
        self._prefix = b"data: " + shape.prefix()
        self._suffix = shape.suffix + b"\n\n"
        self._fixed = len(self._prefix) + len(self._suffix)
        self._interval = interval
        self._held = b""

    def deliver(self, request: Request) -> None:
        index = request.generated - 1
        word = b"" if self.blank else ENCODED[(self._at + index) % _SIZE]
        if index == 0:
            word = word[1:]
        elif self._interval > 1:
            word = self._held = self._held + word
            if index % self._interval and not request.finished:
                return
            self._held = b""
        if request.finished:
            self._finish(request, word.decode())
        elif self._ask.continuous_usage:
            self._exchange.write(self._general(request, word.decode(), None))
        else:
            data = b"%x\r\n%b%b%b\r\n" % (self._fixed + len(word), self._prefix, word, self._suffix)
            self._exchange.write(self._shape.first() + data if index == 0 else data)

    def _general(self, request: Request, word: str, reason: str | None) -> bytes:
        first = self._shape.first() if request.generated == 1 else b""
        value = self._shape.last(word, reason, self._stop if reason else None)
        return first + event(value | {"usage": usage(request)} if self._ask.continuous_usage else value)

    def _finish(self, request: Request, word: str) -> None:
        if self._stop is not None:
            word = word[: -len(ENCODED[(self._at + request.generated - 1) % _SIZE])]
        data = self._general(request, word, request.finish_reason)
        if self._ask.include_usage:
            data += event(self._shape.usage_event(request))
        self._end(data)

    def abort(self, request: Request) -> None:
        """Ends the stream as vLLM does when it is told to stop: finish_reason `abort`, terminator."""
        self._end(event(self._shape.last("", "abort", None)))

    def fail(self, message: str) -> None:
        """An error event in the middle of the stream: the status was sent long ago."""
        self._end(event(error_body(500, message, "InternalServerError")))

    def _end(self, data: bytes) -> None:
        if not self.done.done():
            self._exchange.write(data + self._shape.terminator + END)
            self.done.set_result(None)


class BodySink:
    """One JSON body when the last token is there."""

    def __init__(self, exchange: Exchange, ask: Ask, how: Ending, shape: Format) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.blank = False
        self._exchange = exchange
        self._shape = shape
        self._ask = ask
        self._stop = how.stop

    def deliver(self, request: Request) -> None:
        if request.finished:
            self._reply(request, request.generated - (self._stop is not None))

    def abort(self, request: Request) -> None:
        """Answers with what there is so far and finish_reason `abort`."""
        self._reply(request, request.generated)

    def _reply(self, request: Request, words: int) -> None:
        if not self.done.done():
            text = "" if self.blank else self._ask.echo + answer_text(self._ask.answer_start, words)
            self._exchange.reply_json(200, self._shape.body(text, request, self._stop))
            self.done.set_result(None)
