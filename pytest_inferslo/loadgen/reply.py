"""One HTTP answer of an inference server, read as it arrives; no sockets, no clock.

    reply = Reply(DIALECTS["chat"], streaming=True)
    ended = reply.feed(raw_bytes_of_the_http_response, t_ns)   # in any pieces; True once `outcome` stands
    ended = reply.closed(t_ns)                                 # the peer closed (reset=True: by RST)
    reply.outcome, reply.detail, reply.status, reply.first, reply.first_content, reply.last, reply.end,
    reply.chunks, reply.bursts, reply.gaps, reply.output_tokens, ...; reply.keep_alive

`outcome` is None while the answer goes on. It is SUCCESS only when HTTP's framing ended as announced and the
dialect's own end was there: for OpenAI's streams a known-good finish reason of every choice, with or without
`[DONE]`.
The first failure that was seen stays; what follows it is read only to keep the connection.
"""

from __future__ import annotations

from typing import Any

import orjson

from pytest_inferslo.core.samples import ABSENT, Outcome
from pytest_inferslo.loadgen.answer import CONTENT, Answer
from pytest_inferslo.loadgen.dialects import Dialect, End
from pytest_inferslo.loadgen.framing import (
    CHUNK_SIZES,
    HEAD_LIMIT,
    LINE_LIMIT,
    Framing,
    Head,
    MalformedHttp,
    head_of,
)
from pytest_inferslo.loadgen.lexicon import Said, lexicon_of, opening_of
from pytest_inferslo.loadgen.sse import EventSplitter, fields_of

#: An unstreamed body longer than this is refused; of a failed answer's body so much is kept for the record.
BODY_LIMIT = 64 * 1024 * 1024
ERROR_BODY_LIMIT = 2048

_NO_BODY: list[bytes] = []
_DONE_EVENT = b"data: [DONE]"
_DONE_CHUNK = _DONE_EVENT + b"\n\n"

_HEAD, _LENGTH, _SIZE, _CHUNK, _CHUNK_END, _TRAILER, _CLOSE = range(7)
_UNCHUNKED = (_LENGTH, _CLOSE)


class Reply(Answer):
    """Times are the `t_ns` of the feeds that brought them, ABSENT where nothing did; `gaps` in ns."""

    __slots__ = (
        "_body",
        "_body_size",
        "_buffer",
        "_dialect",
        "_done",
        "_events",
        "_fed",
        "_in_read",
        "_left",
        "_lexicon",
        "_opening",
        "_said",
        "_state",
        "_streaming",
        "_whole",
        "bursts",
        "chunks",
        "end",
        "first",
        "first_content",
        "gaps",
        "keep_alive",
        "last",
        "outcome",
        "status",
    )

    def __init__(self, dialect: Dialect, streaming: bool) -> None:
        self._events = EventSplitter()
        self._fed = False
        self.speak(dialect, streaming)
        self.reset()

    def reset(self) -> None:
        """Ready for the next answer on the same connection."""
        self.choices = {}
        self.completed = False
        self.failure = None
        self.detail = ""
        self.prompt_tokens = self.cached_tokens = self.output_tokens = self.reasoning_tokens = ABSENT
        self._buffer = b""
        self._state = _HEAD
        self._left = 0
        self._body = _NO_BODY
        self._done = False
        self._in_read = 0
        self._whole = True
        self._opening = b""
        self._said: Said | None = None
        self.outcome: Outcome | None = None
        self.status = ABSENT
        self.first = self.first_content = self.last = self.end = ABSENT
        self.chunks = self.bursts = 0
        self.gaps: list[int] = []
        self.keep_alive = False
        if self._fed:
            self._fed = False
            self._events.reset()

    def speak(self, dialect: Dialect, streaming: bool) -> None:
        """The next answer is of this kind."""
        self._dialect = dialect
        self._streaming = streaming
        self._lexicon = lexicon_of(dialect)

    @property
    def started(self) -> bool:
        """Some byte of the answer came."""
        return self._state != _HEAD or bool(self._buffer)

    @property
    def max_stall(self) -> int:
        """The longest gap between successive output events; ABSENT with fewer than two of them."""
        return max(self.gaps, default=ABSENT)

    def feed(self, data: bytes, t: int) -> bool:
        """Bytes as they came at `t`. True when the answer has ended; `outcome` is set then."""
        self._in_read = 0
        state = self._state
        try:
            if state == _HEAD:
                rest = self._read_head(data, t)
                if rest is None:
                    return self.outcome is not None
                data, state = rest, self._state
            if not data:
                return False
            if state in _UNCHUNKED:
                self._read_body(data, t)
            else:
                self._read_chunks(data, t)
        except MalformedHttp as error:
            self.keep_alive = False
            self.fail(Outcome.MALFORMED_HTTP, str(error))
            self._finish(t)
        return self.outcome is not None

    def closed(self, t: int, reset: bool = False) -> bool:
        """The connection ended at `t`; always True."""
        if self.outcome is None:
            self.keep_alive = False
            if reset:
                self.fail(Outcome.RESET, "connection reset" + self._progress())
            elif self._state == _CLOSE:
                self._complete(t)
            else:
                self.fail(Outcome.TRUNCATED, "connection closed" + self._progress())
            self._finish(t)
        return True

    def give_up(self, outcome: Outcome, detail: str, t: int) -> None:
        """Ends a reply from outside: a time-out, the end of the run."""
        if self.outcome is None:
            self.keep_alive = False
            self.fail(outcome, detail + self._progress())
            self._finish(t)

    def _progress(self) -> str:
        if self._state == _HEAD and not self._buffer:
            return " before any byte of an answer"
        return f" after status {self.status} and {self.chunks} output events"

    def _finish(self, t: int) -> None:
        self.outcome = Outcome.SUCCESS if self.failure is None else self.failure
        if self.end < 0:
            self.end = t

    def _read_head(self, data: bytes, t: int) -> bytes | None:
        """The bytes after the head; None while it is not complete (or when it ended the answer)."""
        if self._buffer:
            data = self._buffer + data
        while True:
            size = data.find(b"\r\n\r\n") + 4
            if size < 4:
                if not (data.startswith(b"HTTP/1.") or b"HTTP/1.".startswith(data[:7])) or b"\n\n" in data:
                    raise MalformedHttp(f"no HTTP/1.x answer: {data[:80]!r}")
                if len(data) > HEAD_LIMIT:
                    raise MalformedHttp(f"a head of more than {HEAD_LIMIT} bytes")
                self._buffer = data
                return None
            head = head_of(data[:size])
            data = data[size:]
            if head.status >= 200:
                break
        self._buffer = b""
        self.status = head.status
        self.keep_alive = head.keep_alive
        if head.plain_events and self._streaming:
            self._whole = False
            self._state = _SIZE
            return data
        self._judge_head(head, t)
        framing = head.framing
        if framing is Framing.CHUNKED:
            self._state = _SIZE
        elif framing is Framing.LENGTH:
            self._state, self._left = _LENGTH, head.length
        elif framing is Framing.CLOSE:
            self._state = _CLOSE
        else:
            self._state = _LENGTH
            self.fail(Outcome.NO_OUTPUT, f"status {head.status} without a body")
            self._end_of_message(data, t)
            return None
        return data

    def _judge_head(self, head: Head, t: int) -> None:
        status = head.status
        if 200 <= status < 300:
            if head.encoding and head.encoding != "identity":
                self._fail_at(t, Outcome.UNEXPECTED_ENCODING, f"content-encoding {head.encoding}")
                return
            events = head.content_type == "text/event-stream"
            if self._streaming and (events or not head.content_type):
                self._whole = False
            elif events:
                self._fail_at(
                    t, Outcome.MALFORMED_BODY, "a stream of events where one JSON body was asked for"
                )
        elif status < 400:
            self._fail_at(t, Outcome.HTTP_REDIRECT, f"{status} to {head.location or 'nowhere'}")
        elif status == 429 or (status == 503 and head.retry_after):
            self._fail_at(t, Outcome.HTTP_OVERLOADED, f"{status}")
        elif status < 500:
            self._fail_at(t, Outcome.HTTP_CLIENT_ERROR, f"{status}")
        else:
            self._fail_at(t, Outcome.HTTP_SERVER_ERROR, f"{status}")

    def _fail_at(self, t: int, outcome: Outcome, detail: str) -> None:
        if self.failure is None:
            self.fail(outcome, detail)
            self.end = t

    def _read_body(self, data: bytes, t: int) -> None:
        if self._state == _CLOSE:
            self._sink(data, t)
        else:
            left = self._left - len(data)
            if left > 0:
                self._left = left
                self._sink(data, t)
                return
            self._left = 0
            if left == 0:
                self._sink(data, t)
                self._end_of_message(b"", t)
            else:
                self._sink(data[:left], t)
                self._end_of_message(data[left:], t)

    def _sink(self, data: bytes, t: int) -> None:
        if self._whole:
            self._collect(data, t)
        else:
            self._read_events(data, t)

    def _read_chunks(self, data: bytes, t: int) -> None:
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        position, size, state = 0, len(data), self._state
        pieces: list[bytes] = []
        while position < size:
            if state == _SIZE:
                line_end = data.find(b"\r\n", position)
                if line_end < 0:
                    self._keep_line(data[position:])
                    break
                left = CHUNK_SIZES[data[position:line_end]]
                position = line_end + 2
                if left == 0:
                    if size == position + 2 and data.endswith(b"\r\n"):
                        self._end_of_chunks(pieces, b"", t)
                        return
                    state = _TRAILER
                    continue
                end = position + left
                if data[end : end + 2] == b"\r\n":
                    if pieces or not self._recognise(data, position, end, t):
                        pieces.append(data[position:end])
                    position = end + 2
                    continue
                self._left = left
                state = _CHUNK
            elif state == _CHUNK:
                piece = data[position : position + self._left]
                position += len(piece)
                self._left -= len(piece)
                pieces.append(piece)
                if self._left == 0:
                    state = _CHUNK_END
            elif state == _CHUNK_END:
                mark = data[position : position + 2]
                if mark == b"\r\n":
                    position += 2
                    state = _SIZE
                elif mark == b"\r":
                    self._buffer = mark
                    break
                else:
                    raise MalformedHttp(f"a chunk that does not end with its size: {mark!r}")
            else:
                line_end = data.find(b"\r\n", position)
                if line_end < 0:
                    self._keep_line(data[position:])
                    break
                line = data[position:line_end]
                position = line_end + 2
                if not line:
                    self._end_of_chunks(pieces, data[position:], t)
                    return
                if b":" not in line:
                    raise MalformedHttp(f"trailer {line[:80]!r}")
        self._state = state
        if pieces:
            self._sink(b"".join(pieces), t)

    def _end_of_chunks(self, pieces: list[bytes], rest: bytes, t: int) -> None:
        self._state = _TRAILER
        if pieces:
            self._sink(b"".join(pieces), t)
        self._end_of_message(rest, t)

    def _keep_line(self, line: bytes) -> None:
        if len(line) > LINE_LIMIT or b"\n" in line:
            raise MalformedHttp(f"chunk size or trailer {line[:40]!r}")
        self._buffer = line

    def _end_of_message(self, rest: bytes, t: int) -> None:
        self._complete(t)
        if rest:
            self.keep_alive = False
            self.fail(Outcome.MALFORMED_HTTP, f"bytes after the end of the answer: {rest[:80]!r}")
        self._finish(t)

    def _collect(self, data: bytes, t: int) -> None:
        if self._body is _NO_BODY:
            self._body, self._body_size = [], 0
        self._body_size += len(data)
        if self.failure is not None:
            if self._body_size <= ERROR_BODY_LIMIT + len(data):
                self._body.append(data[:ERROR_BODY_LIMIT])
            return
        if self._body_size > BODY_LIMIT:
            self._fail_at(t, Outcome.MALFORMED_BODY, f"a body of more than {BODY_LIMIT} bytes")
        self._body.append(data)

    def _complete(self, t: int) -> None:
        """HTTP's framing ended well at `t`: is the answer whole?"""
        if self.failure is not None:
            if self._body and self.status >= 300:
                text = b"".join(self._body).decode("utf-8", "replace").strip()
                self.detail = f"{self.detail}: {text}"[:300]
            return
        if self._whole:
            self._read_whole_body(t)
        missing = self._missing_end()
        if missing is not None:
            self.fail(*missing)
        elif self.chunks == 0:
            self.fail(Outcome.NO_OUTPUT, "a complete answer without any output")

    def _missing_end(self) -> tuple[Outcome, str] | None:
        end = self._dialect.end
        if end is End.FINISH:
            return self.finish_failure()
        if self.completed:
            return None
        if end is End.MESSAGE:
            return Outcome.TRUNCATED, "the stream ended without its last event"
        if self._events.pending.strip():
            return Outcome.TRUNCATED, "the stream ended within an event"
        return None

    def _read_whole_body(self, t: int) -> None:
        text = b"".join(self._body)
        if not text.strip():
            self.fail(Outcome.NO_OUTPUT, f"status {self.status} with an empty body")
            return
        try:
            body = orjson.loads(text)
            kind = self._dialect.read_body(body, self)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.fail(Outcome.MALFORMED_BODY, f"{error!r} in {text[:120]!r}")
            return
        if self._streaming:
            self.fail(Outcome.MALFORMED_BODY, f"one JSON body where a stream was asked for: {text[:120]!r}")
        elif kind:
            self._output(kind, t)

    def _read_events(self, data: bytes, t: int) -> None:
        try:
            self._fed = True
            events = self._events.feed(data)
        except ValueError as error:
            self._fail_at(t, Outcome.MALFORMED_BODY, str(error))
            return
        opening, find = self._opening, self._lexicon.find
        for event in events:
            if event == _DONE_EVENT:
                self._done = True
                continue
            if not opening:
                opening = self._opening = opening_of(event)
            if event.startswith(opening):
                found = find(event[len(opening) :], self.chunks)
                if found is not None:
                    self._heard(found, t)
                    continue
            if event:
                self._read_event(event, t)

    def _recognise(self, data: bytes, begin: int, end: int, t: int) -> bool:
        """Whether `data[begin:end]`, a chunk, was one event of a known kind: what most of a stream is.

        False leaves everything as it was, for the general way.
        """
        if self._whole or data[end - 2 : end] != b"\n\n" or not self._events.between:
            return False
        opening = self._opening
        if not opening:
            opening = self._opening = opening_of(data, begin)
        if not data.startswith(opening, begin):
            if data[begin:end] != _DONE_CHUNK:
                return False
            self._done = True
            return True
        found = self._lexicon.find(data[begin + len(opening) : end - 2], self.chunks)
        if found is None:
            return False
        self._heard(found, t)
        return True

    def _heard(self, said: Said, t: int) -> None:
        # the same words twice in a row change nothing
        if said is not self._said:
            self._said = said
            choices = self.choices
            if said.finished:
                choices.update(said.finished)
            for index in said.open:
                if index not in choices:
                    choices[index] = None
            if said.counts is not None:
                self.count(*said.counts)
        if said.kind and not self._done:
            self._output(said.kind, t)

    def _read_event(self, event: bytes, t: int) -> None:
        self._said = None
        data, name = fields_of(event)
        if data is None:
            return
        if data.strip() == b"[DONE]":
            self._done = True
            return
        try:
            value: Any = orjson.loads(data)
            if name == b"error":
                self.fail_by_error(value.get("error", value) if isinstance(value, dict) else value)
            kind = self._dialect.read_event(value, self)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self._fail_at(t, Outcome.MALFORMED_BODY, f"{error!r} in {event[:120]!r}")
            return
        if kind and not self._done:
            self._output(kind, t)
        if self.failure is not None:
            if self.end < 0:
                self.end = t
        elif not self.completed:
            opening = self._opening
            if event.startswith(opening):
                self._lexicon.learn(opening, event[len(opening) :], kind)

    def _output(self, kind: int, t: int) -> None:
        if self.chunks:
            self.gaps.append(t - self.last)
            if self._in_read:
                self.bursts += 1
        else:
            self.first = t
        if kind == CONTENT and self.first_content < 0:
            self.first_content = t
        self.chunks += 1
        self._in_read = 1
        self.last = t
