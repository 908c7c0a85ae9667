"""Answers of real servers, damaged in every way that a seed can think of, through the reply reader."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
from reference_reader import Completed, Incomplete, completed

from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.loadgen.dialects import DIALECTS
from pytest_inferslo.loadgen.reply import Reply
from pytest_inferslo.servers import wire

RECORDED = Path(__file__).parents[1] / "data" / "streams"

#: What damage is made of: the marks of every layer, whole events, and values that mean something.
WORDS = [
    b"\r\n", b"\n", b"\r", b"\n\n", b"\r\n\r\n", b"data: ", b"data:", b": ping\n\n", b"event: error\n", b"[DONE]",
    b"data: [DONE]\n\n", b"0\r\n\r\n", b"0", b"f", b"1;x=y\r\n", b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b'"error":{"message":"x"},', b'{"error":"died"}', b'data: {"error":{"message":"x","code":500}}\n\n',
    b'"finish_reason":"stop"', b'"finish_reason":"abort"', b'"finish_reason":null', b'"finish_reason":"content_filter"',
    b'"content":""', b'"content":"x"', b'"text":""', b"null", b"{}", b"[]", b'"', b"\\", b"\\u0000", b"\xef\xbb\xbf",
    b"\xff", b"\xe2\x82", b"\x00", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n",
    b"Content-Encoding: gzip\r\n", b"connection: close\r\n", b"1e999", b"-1", b"99999999999999999999", b'"choices":[],',
    b'"usage":{"prompt_tokens":1,"completion_tokens":2},', b'"index":1,', b"," , b"}", b"]", b" ",
]  # fmt: skip


#: Replacements that change what an answer means.
TURNS = [
    (b'"stop"', b'"abort"'), (b'"length"', b'"error"'), (b'"stop"', b'"content_filter"'), (b'"stop"', b"null"),
    (b'"length"', b"null"), (b'"finish_reason":null', b'"finish_reason":"stop"'), (b'"content":"', b'"content":"\\"'),
    (b'"completed"', b'"failed"'), (b'"completed"', b'"incomplete"'), (b'"index":0', b'"index":1'),
    (b'"delta":', b'"error":'), (b'"content"', b'"reasoning_content"'), (b'"choices"', b'"choice"'),
    (b'"usage":{', b'"usage":null,"u":{'), (b'_tokens":', b'_tokens":-'),
    (b'"text_output":"', b'"text_output":"","x":"'),
    (b"data: ", b"data:"), (b"\n", b"\r\n"), (b"\n", b"\r"), (b"200 OK", b"503 Busy"), (b"200 OK", b"302 Found"),
    (b"chunked", b"gzip, chunked"), (b"text/event-stream", b"application/json"), (b"HTTP/1.1", b"HTTP/1.0"),
]  # fmt: skip

#: Events that may stand anywhere.
EVENTS = [
    b"data: [DONE]\n\n", b": ping\n\n", b"\n\n", b"event: error\ndata: {}\n\n", b'data: {"error":"died"}\n\n',
    b'data: {"error":{"message":"x","code":500}}\n\n', b'data: {"error":null}\n\n', b"data: null\n\n", b"data: [1]\n\n",
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n', b'data: {"choices":[]}\n\n',
    b'data: {"choices":[{"index":1,"delta":{"content":"y"},"finish_reason":null}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"data: [DONE]"},"finish_reason":"stop"}]}\n\n',
    b'data: {"type":"response.failed","response":{"status":"failed","error":{"message":"x"}}}\n\n',
]  # fmt: skip


@dataclass(frozen=True)
class Base:
    """One good answer to damage: its head without framing, and its body in parts (events)."""

    name: str
    api: str
    streaming: bool
    head: bytes
    parts: tuple[bytes, ...]


@dataclass(frozen=True)
class Mutant:
    base: Base
    data: bytes
    cuts: tuple[int, ...]  # where reads end
    reset: bool  # the connection ends by RST instead of FIN


def corpus() -> list[Base]:
    """Recorded streams of real servers, and one answer of each API as the scripted server writes it."""
    bases = [recorded(path) for path in sorted(RECORDED.glob("*.txt"))]
    for api in wire.APIS:
        usage = wire.usage_of(api, 9, 3, 4, 1)
        tokens = [wire.token_event(api, "m", f" w{n}", "content") for n in range(4)]
        tail = [wire.finish_event(api, "m", "stop", usage), wire.usage_event(api, "m", usage)]
        parts = [part for part in (wire.role_event(api, "m"), *tokens, *tail, wire.done_event(api)) if part]
        bases.append(Base(f"{api} stream", api, True, _STREAM, tuple(parts)))
        # the shortest streams come whole in one read, which is read in a way of its own: more of them
        short = tuple(part for part in parts if part not in tokens[1:])
        bases += [Base(f"{api} token", api, True, _STREAM, short)] * 2
        plain = "generate" if api == "generate_stream" else api
        body = wire.whole_body(api, "m", "w0 w1", "stop", usage)
        bases.append(Base(f"{plain} body", plain, False, _JSON, (body,)))
    embedding = {"data": [{"embedding": [0.1, 0.2]}], "usage": {"prompt_tokens": 3}}
    tensors = {"outputs": [{"name": "text_output", "datatype": "BYTES", "shape": [1], "data": ["hello"]}]}
    bases.append(Base("embeddings body", "embeddings", False, _JSON, (orjson.dumps(embedding),)))
    bases.append(Base("infer body", "infer", False, _JSON, (orjson.dumps(tensors),)))
    return bases


_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def recorded(path: Path) -> Base:
    """A recording is the head as it came and the body without its chunks."""
    text = path.read_bytes().replace(b"\r\n", b"\n")
    head, _, body = text.partition(b"\n\n")
    kept = [line for line in head.split(b"\n") if not line.startswith(b"transfer-encoding")]
    parts = tuple(event + b"\n\n" for event in body.strip().split(b"\n\n"))
    api = "completions" if "completions" in path.stem else "chat"
    return Base(path.stem, api, True, b"".join(line + b"\r\n" for line in kept), parts)


def framed(head: bytes, parts: Sequence[bytes], framing: int) -> bytes:
    body = b"".join(parts)
    if framing == 0:
        return head + b"content-length: %d\r\n\r\n" % len(body) + body
    if framing == 1:
        return head + b"connection: close\r\n\r\n" + body
    pieces = parts if framing == 2 else [body]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece)
    return head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def mutants(seed: int, count: int) -> Iterator[Mutant]:
    source = random.Random(seed)
    bases = corpus()
    for _ in range(count):
        base = source.choice(bases)
        head, parts = base.head, list(base.parts)
        for _ in range(source.choice((0, 0, 1, 1, 2, 4))):
            parts = rearranged(parts, source)
        if source.random() < 0.1:
            head = turned(head, source)
        data = framed(head, parts, source.choice((0, 1, 2, 2, 2, 3)))
        for _ in range(source.choice((0, 0, 1, 1, 2, 6))):
            data = damaged(data, source, bases)
        cuts = sorted(source.randrange(len(data) + 1) for _ in range(source.choice((0, 0, 1, 2, 8))))
        yield Mutant(base, data, tuple(cuts), source.random() < 0.1)


def rearranged(parts: list[bytes], source: random.Random) -> list[bytes]:
    """The events, one of them gone, doubled, moved, changed in meaning, damaged, or a new one among them."""
    at = source.randrange(len(parts) + 1)
    kind = source.randrange(6)
    if kind == 0 or at == len(parts):
        return [*parts[:at], source.choice(EVENTS), *parts[at:]]
    if kind == 1:
        return [*parts[:at], *parts[at + 1 :]]
    if kind == 2:
        return [*parts[: at + 1], *parts[at:]]
    if kind == 3:
        rest = [*parts[:at], *parts[at + 1 :]]
        to = source.randrange(len(rest) + 1)
        return [*rest[:to], parts[at], *rest[to:]]
    if kind == 4:
        return [*parts[:at], damaged(parts[at], source, []), *parts[at + 1 :]]
    if source.random() < 0.5:
        return [turned(part, source) for part in parts]
    return [*parts[:at], turned(parts[at], source), *parts[at + 1 :]]


def turned(data: bytes, source: random.Random) -> bytes:
    fitting = [(old, new) for old, new in TURNS if old in data]
    if not fitting:
        return data
    return data.replace(*source.choice(fitting))


def damaged(data: bytes, source: random.Random, bases: list[Base]) -> bytes:
    at = source.randrange(len(data) + 1)
    to = min(len(data), at + source.choice((1, 1, 2, 8, 40, 400)))
    kind = source.randrange(8 if bases else 7)
    if kind == 0:
        return data[:at] + bytes([source.randrange(256)]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + data[to:]
    if kind == 2:
        return data[:at] + data[at:to] * 2 + data[to:]
    if kind == 3:
        return data[:at]
    if kind == 4:
        rest = data[:at] + data[to:]
        moved_to = source.randrange(len(rest) + 1)
        return rest[:moved_to] + data[at:to] + rest[moved_to:]
    if kind == 7:
        other = source.choice(bases)
        return data[:at] + b"".join(other.parts)[source.randrange(40) :]
    return data[:at] + source.choice(WORDS) + data[at:]


def read(mutant: Mutant) -> Reply:
    """The reply after all reads and the end of the connection."""
    reply = Reply(DIALECTS[mutant.base.api], mutant.base.streaming)
    edges = [0, *mutant.cuts, len(mutant.data)]
    for time, (begin, end) in enumerate(itertools.pairwise(edges)):
        first = not reply.started
        if begin < end and reply.feed(mutant.data[begin:end], time + 1):
            if first:
                reply.learn(mutant.data[begin:end])
            return reply
    reply.closed(len(edges) + 1, reset=mutant.reset)
    return reply


def fault(mutant: Mutant) -> str | None:
    """What is wrong with how the mutant was read; None when nothing is.

    No crash, always an outcome, and SUCCESS only for what the reference reader calls completed, with as many
    output events and the same token counts.
    """
    try:
        ending = Reply(DIALECTS[mutant.base.api], mutant.base.streaming).at_once(mutant.data)
        reply = read(mutant)
    except Exception as error:
        return f"crashed: {error!r}"
    if reply.outcome is None:
        return "no outcome"
    if ending is not None:
        whole = read(replace(mutant, cuts=()))
        if whole.outcome is not Outcome.SUCCESS or not whole.keep_alive or whole.ending() != ending:
            return f"{ending} at once, but {whole.outcome.name} and {whole.ending()} when it is read"
    if reply.outcome is not Outcome.SUCCESS:
        return None if reply.detail else f"{reply.outcome.name} without a word why"
    try:
        truth = completed(mutant.data, mutant.base.api, mutant.base.streaming)
    except Incomplete as error:
        return f"SUCCESS for an answer that is not completed: {error}"
    return disagreement(reply, truth)


def disagreement(reply: Reply, truth: Completed) -> str | None:
    seen = (reply.chunks, reply.prompt_tokens, reply.output_tokens)
    told = (
        truth.outputs,
        -1 if truth.prompt_tokens is None else truth.prompt_tokens,
        -1 if truth.output_tokens is None else truth.output_tokens,
    )
    if seen != told:
        return f"events, prompt and output tokens {seen}, but the reference reads {told}"
    if reply.first < 0 or reply.last < reply.first or len(reply.gaps) != reply.chunks - 1:
        return f"times {reply.first}, {reply.last} and {len(reply.gaps)} gaps of {reply.chunks} events"
    return None
