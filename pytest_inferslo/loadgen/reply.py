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

from collections.abc import Callable
from typing import Any, Final

import orjson

from pytest_inferslo.core.samples import ABSENT, Outcome
from pytest_inferslo.loadgen.answer import CONTENT
from pytest_inferslo.loadgen.dialects import Dialect, End
from pytest_inferslo.loadgen.ending import Ending
from pytest_inferslo.loadgen.framing import Head
from pytest_inferslo.loadgen.http_answer import HttpAnswer
from pytest_inferslo.loadgen.lexicon import Said, lexicon_of, opening_of
from pytest_inferslo.loadgen.phrasebook import END_OF_ANSWER, phrasebook_of
from pytest_inferslo.loadgen.sse import EventSplitter, fields_of
from pytest_inferslo.loadgen.whole_answers import not_known, whole_answers_of

#: An unstreamed body longer than this is refused; of a failed answer's body so much is kept for the record.
BODY_LIMIT = 64 * 1024 * 1024
ERROR_BODY_LIMIT = 2048

_NO_BODY: Final[list[bytes]] = []
_DONE_EVENT: Final = b"data: [DONE]"


class Reply(HttpAnswer):
    """Times are the `t_ns` of the feeds that brought them, ABSENT where nothing did; `gaps` in ns."""

    __slots__ = (
        "_body",
        "_body_size",
        "_dialect",
        "_done",
        "_events",
        "_fed",
        "_known",
        "_lexicon",
        "_opening",
        "_phrases",
        "_said",
        "_streaming",
        "_whole",
        "at_once",
        "bursts",
        "first",
        "first_content",
        "gaps",
        "last",
    )

    def __init__(self, dialect: Dialect, streaming: bool) -> None:
        self._events = EventSplitter()
        self._fed = False
        self.speak(dialect, streaming)
        self.reset()

    def reset(self) -> None:
        """Ready for the next answer on the same connection."""
        super().reset()
        self._body = _NO_BODY
        self._done = False
        self._whole = True
        self._opening = b""
        self._said: Said | None = None
        self.first = self.first_content = self.last = ABSENT
        self.bursts = 0
        self.gaps: list[int] = []
        if self._fed:
            self._fed = False
            self._events.reset()

    def speak(self, dialect: Dialect, streaming: bool) -> None:
        """The next answer is of this kind."""
        self._dialect = dialect
        self._streaming = streaming
        self._lexicon = lexicon_of(dialect)
        self._phrases = phrasebook_of(self._lexicon)
        self._known = whole_answers_of(self._lexicon)
        #: How the answer ended that came whole in its first read, where that is known without reading it: the
        #: reply itself then stays as it was. None in all other cases.
        self.at_once: Callable[[bytes], Ending | None] = self._known.ending if streaming else not_known

    def learn(self, data: bytes) -> None:
        """`data` was all of this answer, in one read."""
        if self.outcome is Outcome.SUCCESS and self.chunks == 1 and self.keep_alive and self._streaming:
            self._known.learn(data, self.ending())

    def ending(self) -> Ending:
        return Ending(
            self.first_content >= 0,
            self.prompt_tokens,
            self.cached_tokens,
            self.output_tokens,
            self.reasoning_tokens,
        )

    @property
    def max_stall(self) -> int:
        """The longest gap between successive output events; ABSENT with fewer than two of them."""
        return max(self.gaps, default=ABSENT)

    def _begin(self, head: Head, t: int) -> None:
        if head.plain_events and self._streaming:
            self._whole = False
            return
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

    def _sink(self, data: bytes, t: int) -> None:
        if self._whole:
            self._collect(data, t)
        else:
            self._read_events(data, t)

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

    def _recognise_read(self, data: bytes, t: int) -> bool:
        if self._whole or not self._events.between:
            return False
        opening = self._opening
        parts = self._phrases.read(data, 0, opening)
        if parts is None:
            return False
        if not opening:
            self._opening = opening_of(data, data.find(b"\n") + 1)
        for part in parts:
            said = part.said
            if said is not self._said:
                self._heard(said, t)
            elif said.kind and not self._done:
                self._output(said.kind, t)
            if part.done:
                self._done = True
        if parts[-1].following == END_OF_ANSWER:
            self._end_of_message(b"", t)
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
