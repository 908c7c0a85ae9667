"""An answer that comes whole is known at once only where a reader of every byte would say the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.loadgen.dialects import DIALECTS
from pytest_inferslo.loadgen.lexicon import lexicon_of
from pytest_inferslo.loadgen.reply import Reply
from pytest_inferslo.servers.null_answers import stream_parts

KNOWN = b"".join(stream_parts(1, 7))
TEXT = b'" token0"'


def at_once(data: bytes) -> object:
    return Reply(DIALECTS["chat"], streaming=True).at_once(data)


def read(data: bytes) -> Reply:
    reply = Reply(DIALECTS["chat"], streaming=True)
    if not reply.feed(data, 1):
        reply.closed(2)
    return reply


@pytest.fixture(autouse=True)
def learned() -> None:
    """The first answer teaches the shapes of the events, the second one that of the whole."""
    lexicon_of(DIALECTS["chat"]).credit = 1000  # other tests may have spent it
    for number in range(3):
        data = b"".join(stream_parts(1, number))
        reply = read(data)
        reply.learn(data)
        assert reply.outcome is Outcome.SUCCESS


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"chatcmpl-", b"chatcmpl_"),
        (TEXT, b'" other!"'),
        (TEXT, '" äöü"'.encode()),
        (TEXT, b'"data: {"'),
        (b'"created":1796064758', b'"created":1796064759'),
    ],
)
def test_answers_that_differ_in_what_means_nothing_are_known(old: bytes, new: bytes) -> None:
    data = KNOWN.replace(old, new)
    assert data != KNOWN
    assert at_once(data) == read(data).ending()


@pytest.mark.parametrize("head", [b"date: Tue, 01 Dec 2026 00:00:01 GMT\r\n", b"x-request-id: 0a\r\n"])
def test_another_head_is_known_when_it_was_parsed(head: bytes) -> None:
    data = KNOWN.replace(b"\r\n", b"\r\n" + head, 1)
    assert at_once(data) is None
    read(data).learn(data)
    later = data.replace(b"00:00:01", b"00:00:02").replace(b"0a", b"0b")
    assert at_once(later) is None
    assert read(later).outcome is Outcome.SUCCESS
    assert at_once(later) == read(later).ending()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (TEXT, b'" toke\\""'),
        (TEXT, b'" tok\\n0"'),
        (TEXT, b'" toke"0"'),
        (TEXT, b'" token\n"'),
        (TEXT, b'" token\xff"'),
        (TEXT, b'" token\x00"'),
        (b'"length"', b'"abort!"'),
        (b'"length"', b'"error!"'),
        (b'"object":"chat.completion.chunk"', b'"object":"error","x":"yyyyyyyyy"'),
        (b'"object"', b'"error!"'),
        (b'"usage":{', b'"error":{'),
        (b'"choices":[]', b'"error":"x" '),
        (b"data: [DONE]", b"data: [DONE}"),
        (b"0\r\n\r\n", b"1\r\n\r\n"),
        (b"\r\n0\r\n\r\n", b"\n\r0\r\n\r\n"),
        (b"e\r\ndata: [DONE]", b"f\r\ndata: [DONE]"),
        (b"200 OK", b"201 OK"),
        (b"200 OK", b"503 OK"),
        (b"chunked", b"gzipped"),
        (b"text/event-stream", b"application/jsonx"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"assistant", b'assist"nt'),
    ],
)
def test_a_difference_that_means_something_is_for_the_general_reader(old: bytes, new: bytes) -> None:
    data = KNOWN.replace(old, new)
    assert (len(data), data == KNOWN) == (len(KNOWN), False)
    read(data)  # its head is a parsed one now, if it is one at all
    assert at_once(data) is None


@given(st.integers(0, len(KNOWN) - 1), st.integers(0, 255))
def test_with_any_byte_changed_both_ways_agree(place: int, byte: int) -> None:
    data = KNOWN[:place] + bytes([byte]) + KNOWN[place + 1 :]
    ending = at_once(data)
    if ending is not None:
        reply = read(data)
        assert (reply.outcome, reply.keep_alive, reply.ending()) == (Outcome.SUCCESS, True, ending)


@given(st.integers(1, len(KNOWN) - 1))
def test_a_part_of_an_answer_is_never_known(size: int) -> None:
    assert at_once(KNOWN[:size]) is None
    assert at_once(KNOWN + KNOWN[:size]) is None


def test_what_is_not_streamed_is_not_looked_at() -> None:
    assert at_once(KNOWN) is not None
    assert Reply(DIALECTS["chat"], streaming=False).at_once(KNOWN) is None


@pytest.mark.parametrize("cut", range(1, 17))
def test_reads_of_whole_events_are_read_as_by_the_byte(cut: int) -> None:
    """A stream of 16 tokens in reads that end between events, where reads are recognised as a whole."""
    parts = stream_parts(16, 3)
    reads = [b"".join(parts[n : n + cut]) for n in range(0, 16, cut)]
    recognised, bytewise = (Reply(DIALECTS["chat"], streaming=True) for _ in range(2))
    for pieces in (reads, reads):
        recognised.reset()
        for time, piece in enumerate(pieces):
            recognised.feed(piece, time)
    for time, piece in enumerate(reads):
        for byte in piece:
            bytewise.feed(bytes([byte]), time)
    assert (recognised.outcome, recognised.chunks, recognised.gaps, recognised.ending()) == (
        Outcome.SUCCESS,
        16,
        bytewise.gaps,
        bytewise.ending(),
    )
    assert recognised.bursts == 16 - len(reads)
