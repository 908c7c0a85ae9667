"""Server-sent events, cut out of a body that arrives in any pieces.

Events end at a blank line, never at `data:` (a token's text may hold that). Lines end with LF, CRLF or CR
(HTML standard, section 9.2.6); what follows the last blank line of a body is no event.
"""

from __future__ import annotations

from collections.abc import Sequence

#: An event longer than this is refused.
EVENT_LIMIT = 16 * 1024 * 1024

_NOTHING: tuple[bytes, ...] = ()


class EventSplitter:
    """`feed` bytes, get the raw events that they complete: LF line ends, without the blank line."""

    __slots__ = ("_after_cr", "_parts", "_size", "_started", "between")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._started = False
        #: what was fed ends with a whole event
        self.between = True

    @property
    def pending(self) -> bytes:
        """The beginning of an event whose end has not come."""
        return b"".join(self._parts)

    def feed(self, data: bytes) -> Sequence[bytes]:
        events = self._cut(data)
        self.between = not self._parts and not self._after_cr
        return events

    def _cut(self, data: bytes) -> Sequence[bytes]:
        if b"\r" in data or self._after_cr:
            data = self._unify_line_ends(data)
        if not self._started:
            self._started = not self._parts and bool(data) and data[0] != 0xEF
        if not self._started:
            data = self._skip_byte_order_mark(data)
        parts = self._parts
        if not parts:
            end = data.find(b"\n\n")
            if end >= 0 and end == len(data) - 2:
                return (data[:end],)
        elif b"\n\n" in data or (data[:1] == b"\n" and parts[-1][-1:] == b"\n"):
            parts.append(data)
            data = b"".join(parts)
            parts.clear()
            end = 0
        else:
            end = -1
        if end < 0:
            if data:
                self._keep(data)
            return _NOTHING
        events = data.split(b"\n\n")
        rest = events.pop()
        self._size = 0
        if rest:
            self._keep(rest)
        return events

    def _keep(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > EVENT_LIMIT:
            raise ValueError(f"an event of more than {EVENT_LIMIT} bytes")

    def _unify_line_ends(self, data: bytes) -> bytes:
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            if not data:
                self._after_cr = False
                return data
        self._after_cr = data[-1:] == b"\r"
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _skip_byte_order_mark(self, data: bytes) -> bytes:
        data = self.pending + data
        self._parts.clear()
        self._size = 0
        if len(data) >= 3:
            self._started = True
            return data.removeprefix(b"\xef\xbb\xbf")
        if not b"\xef\xbb\xbf".startswith(data):
            self._started = True
        return data


def fields_of(event: bytes) -> tuple[bytes | None, bytes]:
    """(`data`, `event` name) of one raw event; data is None where the event has no data line (a comment)."""
    data: list[bytes] = []
    name = b""
    for line in event.split(b"\n"):
        field, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return (b"\n".join(data) if data else None), name
