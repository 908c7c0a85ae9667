"""An answer means the same in whatever pieces it arrives, and mutated ones neither crash nor succeed by
accident.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from replies import STREAM_HEAD, chunk, delta, stream, usage, whole

from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.loadgen.dialects import DIALECTS
from pytest_inferslo.loadgen.reply import Reply
from pytest_inferslo.loadgen.sse import EventSplitter, fields_of

TEXT = st.text(max_size=8) | st.sampled_from(
    ["data: ", "[DONE]", '"error"', "\n\n", "\r", "\\", "é", "😀", '"}']
)
LINE_END = st.sampled_from([b"\n", b"\r\n", b"\r"])
EVENTS = st.lists(
    TEXT.map(delta)
    | TEXT.map(lambda text: delta(text, "stop"))
    | st.just(usage())
    | TEXT.map(lambda text: delta(reasoning=text))
    | st.sampled_from([{"error": "x"}, delta(finish="abort"), delta("", role="assistant")]),
    max_size=8,
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Events with any line ends, comments, with and without a space after the colon, over several data lines."""
    end = draw(LINE_END)
    lines: list[bytes] = []
    for value in draw(EVENTS):
        if draw(st.booleans()):
            lines.append(draw(st.sampled_from([b": ping", b":", b"id: 7", b"retry: 3", b"event: message"])))
        space = draw(st.sampled_from([b" ", b""]))
        data = json.dumps(value, indent=draw(st.sampled_from([None, 1])), ensure_ascii=draw(st.booleans()))
        lines += [b"data:" + space + line.encode() for line in data.split("\n")]
        lines.append(b"")
    if draw(st.booleans()):
        lines += [b"data: [DONE]", b""]
    return b"".join(line + end for line in lines)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    body = draw(bodies())
    if draw(st.booleans()):
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%b" % (
            len(body),
            body,
        )
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=6)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    return STREAM_HEAD + b"".join(chunk(piece) for piece in pieces if piece) + b"0\r\n\r\n"


def facts(reply: Reply) -> tuple[Any, ...]:
    return (
        reply.outcome,
        reply.status,
        reply.chunks,
        reply.first >= 0,
        reply.first_content >= 0,
        reply.prompt_tokens,
        reply.output_tokens,
        len(reply.gaps),
        reply.keep_alive,
    )


def played(data: bytes, cuts: list[int], api: str = "chat", streaming: bool = True) -> Reply:
    reply = Reply(DIALECTS[api], streaming)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for t, (a, b) in enumerate(itertools.pairwise(edges)):
        if a < b and reply.feed(data[a:b], t) and b < len(data):
            break
    else:
        reply.closed(len(edges))
    return reply


@settings(max_examples=400, deadline=None)
@given(answers(), st.lists(st.integers(0, 10_000), max_size=12))
def test_splits_change_nothing(data: bytes, cuts: list[int]) -> None:
    assert facts(played(data, cuts)) == facts(played(data, []))


@settings(max_examples=60, deadline=None)
@given(answers())
def test_byte_by_byte(data: bytes) -> None:
    assert facts(played(data, list(range(len(data))))) == facts(played(data, []))


@settings(max_examples=100, deadline=None)
@given(answers(), st.data())
def test_an_answer_cut_short_never_succeeds(data: bytes, draw: st.DataObject) -> None:
    assert played(data[: draw.draw(st.integers(0, len(data) - 1))], []).outcome is not Outcome.SUCCESS


@settings(max_examples=600, deadline=None)
@given(
    st.sampled_from([stream(delta("a"), delta("b"), delta("c", "stop"), usage()), whole({"choices": []})]),
    st.lists(
        st.tuples(st.integers(0, 5000), st.integers(0, 2), st.binary(max_size=3)), min_size=1, max_size=4
    ),
    st.lists(st.integers(0, 5000), max_size=4),
)
def test_mutated_answers_end_with_an_outcome(
    data: bytes, edits: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    for place, removed, added in edits:
        at = place % len(data)
        data = data[:at] + added + data[at + removed :] or b"x"
    reply = played(data, cuts)
    assert reply.outcome is not None
    if reply.outcome is Outcome.SUCCESS:
        assert (reply.status, reply.chunks > 0, "stop" in reply.choices.values()) == (200, True, True)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.binary(max_size=12).filter(lambda b: b"\n" not in b and b"\r" not in b), max_size=6),
    LINE_END,
    st.lists(st.integers(0, 200), max_size=8),
)
def test_events_are_what_stands_between_blank_lines(
    payloads: list[bytes], end: bytes, cuts: list[int]
) -> None:
    body = b"".join(b"data: " + payload + end * 2 for payload in payloads)
    splitter, events = EventSplitter(), []
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    for a, b in itertools.pairwise(edges):
        events += [event for event in splitter.feed(body[a:b]) if event.strip(b"\n")]
    assert [fields_of(event)[0] for event in events] == payloads
    assert splitter.pending.strip() == b""


def test_a_byte_order_mark_is_skipped_once() -> None:
    splitter = EventSplitter()
    events = [
        e for piece in (b"\xef", b"\xbb\xbf", b"data: a\n\n", b"data: b\n\n") for e in splitter.feed(piece)
    ]
    assert events == [b"data: a", b"data: b"]
