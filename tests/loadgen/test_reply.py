"""What an answer means: every way in which a server can answer, and the outcome that it has."""

from __future__ import annotations

import pytest
from replies import DONE, STREAM_HEAD, chunk, delta, event, read, stream, usage, whole

from pytest_inferslo.core.samples import ABSENT, Outcome
from pytest_inferslo.loadgen.dialects import DIALECTS
from pytest_inferslo.loadgen.reply import Reply

GOOD = (delta("a"), delta("b", "stop"))
CHAT = {"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]}
ERROR = {"error": {"message": "engine died", "code": 500}}
HEAD_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
LENGTH_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.parametrize(
    ("name", "data", "outcome"),
    [
        ("complete", stream(*GOOD), Outcome.SUCCESS),
        ("no [DONE]", stream(*GOOD, done=False), Outcome.SUCCESS),
        ("until close", HEAD_CLOSE + event(GOOD[0]) + event(GOOD[1]) + DONE, Outcome.SUCCESS),
        ("HTTP/1.0", HEAD_CLOSE.replace(b"1.1", b"1.0") + event(GOOD[1]), Outcome.SUCCESS),
        (
            "1xx first",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + stream(*GOOD),
            Outcome.SUCCESS,
        ),
        (
            "case 5: FIN before the end",
            STREAM_HEAD + chunk(event(delta("a"))) + chunk(event(delta("b"))),
            Outcome.TRUNCATED,
        ),
        ("finished, but the last chunk is missing", stream(*GOOD)[:-5], Outcome.TRUNCATED),
        ("[DONE] without a finish reason", stream(delta("a")), Outcome.TRUNCATED),
        ("only [DONE]", stream(), Outcome.TRUNCATED),
        (
            "one of two choices ends",
            stream(delta("a", "stop"), {"choices": [{"index": 1, "delta": {"content": "x"}}]}),
            Outcome.TRUNCATED,
        ),
        ("case 4: error in the middle", stream(delta("a"), ERROR), Outcome.ERROR_EVENT),
        ("case 4: error first", stream(ERROR), Outcome.ERROR_EVENT),
        ("case 4: error as a string", stream(delta("a"), {"error": "engine died"}), Outcome.ERROR_EVENT),
        ("case 4: error after the finish", stream(*GOOD, ERROR), Outcome.ERROR_EVENT),
        (
            "error after [DONE]",
            STREAM_HEAD + chunk(event(GOOD[1]) + DONE + event(ERROR)) + b"0\r\n\r\n",
            Outcome.ERROR_EVENT,
        ),
        ("error object", stream({"object": "error", "message": "no"}), Outcome.ERROR_EVENT),
        (
            "error by event name",
            STREAM_HEAD + chunk(b'event: error\ndata: {"message":"no"}\n\n') + b"0\r\n\r\n",
            Outcome.ERROR_EVENT,
        ),
        ("error: null is none", stream({**delta("a", "stop"), "error": None}), Outcome.SUCCESS),
        ("no output", stream(delta("", role="assistant"), delta(finish="stop")), Outcome.NO_OUTPUT),
        ("aborted", stream(delta("a"), delta(finish="abort")), Outcome.ABORTED),
        ("content filter", stream(delta("a"), delta(finish="content_filter")), Outcome.BAD_FINISH_REASON),
        ("unknown finish", stream(delta("a"), delta(finish="because")), Outcome.BAD_FINISH_REASON),
        ("not JSON", stream(delta("a"), b"{oops"), Outcome.MALFORMED_BODY),
        ("JSON of another shape", stream([1, 2]), Outcome.MALFORMED_BODY),
        ("choices of another shape", stream({"choices": 5}), Outcome.MALFORMED_BODY),
        ("token count of another shape", stream(*GOOD, usage(output="two")), Outcome.MALFORMED_BODY),  # type: ignore[arg-type]
        ("one body instead of a stream", whole(CHAT), Outcome.MALFORMED_BODY),
        ("error body instead of a stream", whole(ERROR), Outcome.ERROR_EVENT),
        ("empty body", whole(b""), Outcome.NO_OUTPUT),
        ("204", b"HTTP/1.1 204 No Content\r\n\r\n", Outcome.NO_OUTPUT),
        ("redirect", whole(b"", "307 Temporary Redirect", "Location: http://x/\r\n"), Outcome.HTTP_REDIRECT),
        ("400", whole(ERROR, "400 Bad Request"), Outcome.HTTP_CLIENT_ERROR),
        ("429", whole(ERROR, "429 Too Many Requests"), Outcome.HTTP_OVERLOADED),
        ("503", whole(ERROR, "503 Service Unavailable"), Outcome.HTTP_SERVER_ERROR),
        (
            "503 and Retry-After",
            whole(b"", "503 Service Unavailable", "Retry-After: 1\r\n"),
            Outcome.HTTP_OVERLOADED,
        ),
        ("500 cut short", whole(ERROR, "500 Internal Server Error")[:-3], Outcome.HTTP_SERVER_ERROR),
        ("gzip", whole(b"\x1f\x8b", headers="Content-Encoding: gzip\r\n"), Outcome.UNEXPECTED_ENCODING),
        ("bytes after the answer", stream(*GOOD) + b"x", Outcome.MALFORMED_HTTP),
        ("two answers in one read", stream(*GOOD) + stream(*GOOD), Outcome.MALFORMED_HTTP),
        (
            "longer than announced",
            LENGTH_HEAD % len(event(GOOD[1])) + event(GOOD[1]) + b"x",
            Outcome.MALFORMED_HTTP,
        ),
        ("a stream of known length", LENGTH_HEAD % len(event(GOOD[1])) + event(GOOD[1]), Outcome.SUCCESS),
        ("shorter than announced", whole(CHAT)[:-1], Outcome.TRUNCATED),
        ("no HTTP", b"SSH-2.0-OpenSSH_9.6\r\n", Outcome.MALFORMED_HTTP),
        ("HTTP/2", b"HTTP/2 200\r\n\r\n", Outcome.MALFORMED_HTTP),
        ("LF heads", b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", Outcome.MALFORMED_HTTP),
        ("chunk size with underscore", STREAM_HEAD + b"1_0\r\n", Outcome.MALFORMED_HTTP),
        ("negative chunk size", STREAM_HEAD + b"-1\r\n", Outcome.MALFORMED_HTTP),
        ("chunk without its CRLF", STREAM_HEAD + b"1\r\naXX", Outcome.MALFORMED_HTTP),
        ("both lengths", STREAM_HEAD[:-2] + b"Content-Length: 3\r\n\r\n", Outcome.MALFORMED_HTTP),
        (
            "two lengths",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
            Outcome.MALFORMED_HTTP,
        ),
        (
            "101",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            Outcome.MALFORMED_HTTP,
        ),
        ("nothing", b"", Outcome.TRUNCATED),
    ],
)
def test_outcome_of_a_streamed_answer(name: str, data: bytes, outcome: Outcome) -> None:
    reply = read(data)
    assert reply.outcome is outcome, reply.detail
    assert bool(reply.detail) == (outcome is not Outcome.SUCCESS)
    assert reply.end > 0


@pytest.mark.parametrize("finish", ["stop", "length", "tool_calls", "function_call"])
def test_good_finish_reasons(finish: str) -> None:
    assert read(stream(delta("a"), delta(finish=finish))).outcome is Outcome.SUCCESS


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ('say "error": {"x":1}', 1),
        ("data: x\n\ndata: [DONE]\n\n", 1),
        ("[DONE]", 1),
        ('\\"finish_reason":"abort"', 1),
    ],
)
def test_token_text_is_never_read_as_protocol(text: str, chunks: int) -> None:
    """In front of, between and after texts that the template recognises."""
    plain = [delta("one"), delta("two"), delta("three")]
    for place in range(len(plain) + 1):
        events = [*plain[:place], delta(text), *plain[place:], delta("end", "stop"), usage(9, 5)]
        reply = read(stream(*events))
        assert reply.outcome is Outcome.SUCCESS, reply.detail
        assert (reply.chunks, reply.output_tokens) == (5, 5)


def test_events_like_the_learned_ones_that_say_more_are_parsed() -> None:
    events = [delta("one"), delta("two"), delta("three"), {**delta("four"), "error": {"message": "late"}}]
    assert read(stream(*events, delta("end", "stop"))).outcome is Outcome.ERROR_EVENT
    assert read(stream(*events[:3], delta(""), delta("end", "stop"))).chunks == 4


def feed_one_by_one(*parts: bytes) -> Reply:
    reply = Reply(DIALECTS["chat"], True)
    for t, part in enumerate(parts, start=1):
        reply.feed(part, t * 100)
    return reply


def test_case_15_and_35_role_and_trailing_events_are_no_output() -> None:
    """TTFT is the first content, e2e the last; usage and [DONE] come later and move neither."""
    reply = feed_one_by_one(
        STREAM_HEAD,
        chunk(event(delta("", role="assistant"))),
        chunk(event(delta("Hi"))),
        chunk(event(delta("!", "stop"))),
        chunk(
            event(
                usage(
                    1000,
                    50,
                    prompt_tokens_details={"cached_tokens": 400},
                    completion_tokens_details={"reasoning_tokens": 30},
                )
            )
        ),
        chunk(DONE),
        b"0\r\n\r\n",
    )
    assert reply.outcome is Outcome.SUCCESS
    assert (reply.first, reply.first_content, reply.last, reply.end) == (300, 300, 400, 700)
    assert (reply.gaps, reply.chunks, reply.bursts) == ([100], 2, 0)
    counts = (reply.prompt_tokens, reply.cached_tokens, reply.output_tokens, reply.reasoning_tokens)
    assert counts == (1000, 400, 50, 30)  # case 38


def test_reasoning_is_output_but_not_content() -> None:
    reply = feed_one_by_one(
        STREAM_HEAD,
        chunk(event(delta(reasoning_content="hm"))),
        chunk(event(delta(reasoning="hm"))),
        chunk(event(delta("Hi"))),
        chunk(event(delta(finish="stop"))),
        b"0\r\n\r\n",
    )
    assert (reply.first, reply.first_content, reply.last, reply.chunks) == (200, 400, 400, 3)


@pytest.mark.parametrize(
    ("fields", "chunks"),
    [
        ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}, 1),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}, 1),
        ({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]}, 0),
        ({"tool_calls": []}, 0),
        ({"function_call": {"arguments": "{"}}, 1),
        ({"refusal": "no"}, 1),
        ({"content": None, "role": "assistant"}, 0),
    ],
)
def test_what_counts_as_output(fields: dict[str, object], chunks: int) -> None:
    assert read(stream(delta(**fields), delta(finish="stop"))).chunks == chunks  # type: ignore[arg-type]


def test_case_18_events_of_one_read_are_a_burst() -> None:
    reply = feed_one_by_one(
        STREAM_HEAD, b"".join(chunk(event(delta(text))) for text in "abc"), chunk(event(delta("d", "stop")))
    )
    assert (reply.chunks, reply.bursts, reply.gaps) == (4, 2, [0, 0, 100])


def test_usage_in_every_event_counts_once_and_absent_is_absent() -> None:
    every = [
        {**delta(text), "usage": {"prompt_tokens": 3, "completion_tokens": n}}
        for n, text in enumerate("abc", 1)
    ]
    assert read(stream(*every, delta(finish="stop"))).output_tokens == 3
    assert read(stream(*GOOD)).output_tokens == ABSENT


@pytest.mark.parametrize(
    ("connection", "keep"),
    [("", True), ("Connection: close\r\n", False), ("Connection: Keep-Alive\r\n", True)],
)
def test_keep_alive(connection: str, keep: bool) -> None:
    reply = read(whole(CHAT, headers=connection), streaming=False)
    assert (reply.outcome, reply.keep_alive) == (Outcome.SUCCESS, keep)
    old = whole(CHAT, headers=connection).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
    assert read(old, streaming=False).keep_alive == ("Keep" in connection)


def test_a_reset_reply_remembers_nothing() -> None:
    reply = read(stream(delta("a"), ERROR))
    reply.reset()
    reply.feed(stream(*GOOD), 7)
    assert (reply.outcome, reply.detail, reply.chunks, reply.first) == (Outcome.SUCCESS, "", 2, 7)


def test_rst_is_not_fin() -> None:
    reply = Reply(DIALECTS["chat"], True)
    reply.feed(STREAM_HEAD + chunk(event(delta("a"))), 1)
    reply.closed(2, reset=True)
    assert reply.outcome is Outcome.RESET


@pytest.mark.parametrize("bad", [b"\xff", b"\x01", b"\r", b"\n"])
@pytest.mark.parametrize("field", [b'"id": "c"', b'"content": "four"'])
def test_bytes_that_no_json_string_may_hold_are_not_recognised(bad: bytes, field: bytes) -> None:
    """Also where an event of this shape, without them, is known."""
    events = [event(delta(text)) for text in ("one", "two", "three", "four")]
    compact = [
        e.replace(b'": "', b'":"').replace(b'", "', b'","').replace(b'data: {"id', b'data: {"id')
        for e in events
    ]
    good = [*compact, event(delta("end", "stop"))]
    assert read(STREAM_HEAD + b"".join(map(chunk, good)) + b"0\r\n\r\n").outcome is Outcome.SUCCESS
    target = field.replace(b": ", b":")
    broken = [e.replace(target, target[:-1] + bad + b'"') if target in e else e for e in good]
    assert broken != good
    assert read(STREAM_HEAD + b"".join(map(chunk, broken)) + b"0\r\n\r\n").outcome is Outcome.MALFORMED_BODY
