"""The HTTP/1.x side of an answer: its head, its framing, and every way in which the connection can end it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from pytest_inferslo.core.samples import ABSENT, Outcome
from pytest_inferslo.loadgen.answer import Answer
from pytest_inferslo.loadgen.framing import (
    CHUNK_SIZES,
    HEAD_LIMIT,
    LINE_LIMIT,
    Framing,
    Head,
    MalformedHttp,
    head_of,
)

_HEAD: Final = 0
_LENGTH: Final = 1
_SIZE: Final = 2
_CHUNK: Final = 3
_CHUNK_END: Final = 4
_TRAILER: Final = 5
_CLOSE: Final = 6
_UNCHUNKED = (_LENGTH, _CLOSE)


class HttpAnswer(Answer):
    """Cuts the body out of what `feed` brings, in any pieces; what it means is for the subclass.

    `outcome` is None while the answer goes on; `keep_alive` says whether the connection may serve again;
    `started` that some byte of the answer came.
    """

    __slots__ = (
        "_buffer",
        "_in_read",
        "_left",
        "_state",
        "chunks",
        "end",
        "keep_alive",
        "outcome",
        "started",
        "status",
    )

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
        self._in_read = 0
        self.started = False
        self.outcome: Outcome | None = None
        self.status = self.end = ABSENT
        self.chunks = 0
        self.keep_alive = False

    @abstractmethod
    def _begin(self, head: Head, t: int) -> None:
        """The head stands: is a body of this kind what was asked for?"""

    @abstractmethod
    def _sink(self, data: bytes, t: int) -> None:
        """A piece of the body."""

    @abstractmethod
    def _recognise_read(self, data: bytes, t: int) -> bool:
        """Whether `data`, which begins where a chunk does, was understood as a whole, its framing too."""

    @abstractmethod
    def _complete(self, t: int) -> None:
        """HTTP's framing ended well: fails unless the answer is whole."""

    def feed(self, data: bytes, t: int) -> bool:
        """Bytes as they came at `t`. True when the answer has ended; `outcome` is set then."""
        self.started = True
        self._in_read = 0
        try:
            if self._state == _HEAD:
                rest = self._read_head(data, t)
                if not rest:
                    return self.outcome is not None
                data = rest
            if self._state in _UNCHUNKED:
                self._read_body(data, t)
            elif self._state != _SIZE or self._buffer or not self._recognise_read(data, t):
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
        if not self.started:
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
        self._begin(head, t)
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
