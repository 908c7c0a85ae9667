"""One request's way through the steps of a script: which bytes leave when.

Waits are counted from the instant the request was complete, so that one late wake-up delays nothing after it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from pytest_inferslo.servers import script as s
from pytest_inferslo.servers import wire
from pytest_inferslo.servers.http import Exchange
from pytest_inferslo.servers.pacer import Pacer

_ODD = 0x9E3779B97F4A7C15


@dataclass
class Played:
    """What one request got. Times are ns of time.monotonic_ns, taken just before the bytes were written."""

    number: int  # from 1; 0 for an uncounted one
    line: int  # of the answer in the script; 0 for a plain one
    path: str
    received: int
    first_byte: int | None = None
    outputs: list[int] = field(default_factory=list)  # one per output event
    tokens: int = 0
    ended: int | None = None
    how: str = "open"  # complete, closed, reset, hung, peer left

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Over(Exception):
    """The script ended this connection."""


class Play:
    """Plays steps on one exchange and writes what it did into `played`. Raises Over where the connection
    ended.
    """

    def __init__(self, script: s.Script, exchange: Exchange, pacer: Pacer, played: Played) -> None:
        self._script = script
        self._exchange = exchange
        self._pacer = pacer
        self._played = played
        self._random = random.Random(script.seed * _ODD + played.number)
        self._due = played.received
        self._length: int | None = None  # as in script.Head, of the head that was sent
        self._usage: wire.Json | None = None

    async def all_of(self, steps: tuple[s.Step, ...]) -> None:
        for step in steps:
            if isinstance(step, s.Wait):
                await self._wait(step.delay)
            elif isinstance(step, s.Repeat):
                for _ in range(step.times):
                    await self.all_of(step.steps)
            elif isinstance(step, s.Answer):
                await self._whole_answer(step)
            elif isinstance(step, s.Split):
                await self._split(step)
            elif isinstance(step, s.Hang):
                self._played.how = "hung"
                await asyncio.get_running_loop().create_future()
            elif isinstance(step, (s.Close, s.Reset)):
                self._leave(step)
            else:
                self._write(self._bytes_of(step), _is_output(step))

    def _leave(self, step: s.Close | s.Reset) -> None:
        if isinstance(step, s.Close):
            self._exchange.close()
            raise Over("closed")
        self._exchange.reset()
        raise Over("reset")

    async def _wait(self, delay: s.Delay) -> None:
        self._due += delay.draw(self._random)
        await self._pacer.until(self._due)

    async def _split(self, step: s.Split) -> None:
        data = b"".join(self._flat(step.steps))
        outputs = sum(1 for _ in _outputs(step.steps))
        cuts = step.at if step.every is None else tuple(range(step.every, len(data), step.every))
        edges = [0, *(cut for cut in cuts if cut < len(data)), len(data)]
        for begin, end in itertools.pairwise(edges):
            if begin:
                await self._wait(step.pause)
            self._write(data[begin:end], outputs if end == len(data) else 0)

    def _flat(self, steps: tuple[s.Step, ...]) -> Iterator[bytes]:
        for step in steps:
            if isinstance(step, s.Repeat):
                for _ in range(step.times):
                    yield from self._flat(step.steps)
            else:
                yield self._bytes_of(step)

    async def _whole_answer(self, step: s.Answer) -> None:
        asked = _asked(self._exchange.body)
        tokens = step.tokens if step.tokens is not None else int(asked.get("max_tokens") or 16)
        api, model = self._script.api, self._script.model
        streamed = bool(asked.get("stream", api == "generate_stream"))
        if streamed:
            self._write(self._bytes_of(_HEAD) + self._framed(wire.role_event(api, model)), 0)
        async for first, last in self._events(step, tokens):
            self._played.tokens += last - first
            if streamed:
                kind = "reasoning" if first < step.reasoning else "content"
                self._event(wire.token_event(api, model, _text(first, last), kind))
        usage = None if step.usage is None else self._counts(step.usage)
        if not streamed:
            body = wire.whole_body(api, model, _text(0, tokens), step.finish, usage)
            self._write(self._bytes_of(s.Reply(200, body, (("content-type", "application/json"),))), 1)
            return
        tail = [wire.finish_event(api, model, step.finish, usage)]
        tail += [wire.usage_event(api, model, usage)] if usage else []
        self._write(self._framed(b"".join([*tail, wire.done_event(api)])) + b"0\r\n\r\n", 0)

    async def _events(self, step: s.Answer, tokens: int) -> AsyncIterator[tuple[int, int]]:
        for first in range(0, tokens, step.per_event):
            await self._wait(step.every if first else step.first)
            yield first, min(first + step.per_event, tokens)

    def _event(self, data: bytes) -> None:
        self._write(self._framed(data), 1)

    def _write(self, data: bytes, outputs: int) -> None:
        if not data:
            return
        now = self._pacer.now()
        if self._played.first_byte is None:
            self._played.first_byte = now
        self._played.outputs.extend([now] * outputs)
        self._exchange.write(data)

    def _bytes_of(self, step: s.Step) -> bytes:
        api, model = self._script.api, self._script.model
        match step:
            case s.Head():
                return self._head(step)
            case s.Raw():
                return step.data
            case s.Body():
                return self._framed(step.data)
            case s.Event():
                return self._framed(wire.sse(step.value))
            case s.Token():
                self._played.tokens += 1
                return self._framed(wire.token_event(api, model, step.text, step.kind))
            case s.Role():
                return self._framed(wire.role_event(api, model))
            case s.Usage():
                self._usage = self._counts(step)
                return self._framed(wire.usage_event(api, model, self._usage))
            case s.Finish():
                return self._framed(wire.finish_event(api, model, step.reason, self._usage))
            case s.Done():
                return self._framed(wire.done_event(api))
            case s.End():
                return b"0\r\n\r\n" if self._length is None else b""
            case s.Reply():
                return (
                    _head(step.status, (*step.headers, ("content-length", str(len(step.body))))) + step.body
                )
        raise AssertionError(step)

    def _head(self, step: s.Head) -> bytes:
        self._length = step.length
        if step.length is None:
            return _head(step.status, (*step.headers, ("transfer-encoding", "chunked")))
        if step.length < 0:
            return _head(step.status, (*step.headers, ("connection", "close")))
        return _head(step.status, (*step.headers, ("content-length", str(step.length))))

    def _framed(self, data: bytes) -> bytes:
        if not data or self._length is not None:
            return data
        return b"%x\r\n%b\r\n" % (len(data), data)

    def _counts(self, usage: s.Usage) -> wire.Json:
        output = self._played.tokens if usage.output is None else usage.output
        return wire.usage_of(self._script.api, usage.prompt, output, usage.cached, usage.reasoning)


_HEAD = s.Head(200, (("content-type", "text/event-stream; charset=utf-8"),), None)


def _head(status: int, headers: tuple[tuple[str, str], ...]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _text(first: int, last: int) -> str:
    return "".join(f" w{n}" for n in range(first, last))


def _is_output(step: s.Step) -> int:
    return int(isinstance(step, s.Token) and bool(step.text))


def _outputs(steps: tuple[s.Step, ...]) -> Iterator[s.Step]:
    for step in steps:
        if isinstance(step, s.Repeat):
            for _ in range(step.times):
                yield from _outputs(step.steps)
        elif _is_output(step):
            yield step


def _asked(body: bytes) -> dict[str, Any]:
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return asked if isinstance(asked, dict) else {}
