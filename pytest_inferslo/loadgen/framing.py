"""How an HTTP/1.x answer is cut out of a byte stream: its head, and the sizes of its chunks.

Heads are parsed by llhttp (httptools) in its strict mode and remembered by their bytes: one server's heads
differ by little more than the date, so most are parsed once a second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final

import httptools

#: A head longer than this is refused, as are chunk-size and trailer lines.
HEAD_LIMIT = 65536
LINE_LIMIT = 8192

_REMEMBERED_HEADS = 512
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")


class Framing(Enum):
    """Where the body ends (RFC 9112, section 6.3)."""

    NONE = "no body"
    LENGTH = "content-length"
    CHUNKED = "chunked"
    CLOSE = "until close"


class MalformedHttp(Exception):
    """Bytes that are no HTTP/1.x answer."""


@dataclass(frozen=True)
class Head:
    """What an answer's status line and headers say. `content_type` is lower case, without parameters."""

    status: int
    framing: Framing
    length: int
    keep_alive: bool
    content_type: str
    encoding: str
    location: str
    retry_after: bool

    @cached_property
    def plain_events(self) -> bool:
        """A chunked stream of events, with nothing to object to: what nearly all heads of a load are."""
        return (
            200 <= self.status < 300
            and self.framing is Framing.CHUNKED
            and self.content_type == "text/event-stream"
            and self.encoding in ("", "identity")
        )

    @cached_property
    def usual(self) -> bool:
        """200, a stream of events, and the connection is kept."""
        return self.status == 200 and self.plain_events and self.keep_alive


class _Fields:
    """httptools' protocol: collects the headers of one head."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1").strip()
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        self.complete = True


_heads: dict[bytes, Head] = {}


def head_of(raw: bytes) -> Head:
    """The head in `raw`, which ends with the blank line. Raises MalformedHttp."""
    head = _heads.get(raw)
    if head is None:
        if len(_heads) >= _REMEMBERED_HEADS:
            _heads.clear()
        head = _heads[raw] = _parse_head(raw)
    return head


#: A head that was parsed before, by its bytes, or None.
known_head: Final = _heads.get


def _parse_head(raw: bytes) -> Head:
    fields = _Fields()
    parser = httptools.HttpResponseParser(fields)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade as error:
        raise MalformedHttp("the server switched protocols") from error
    except httptools.HttpParserError as error:
        raise MalformedHttp(f"{error} in {raw[:80]!r}") from error
    if not fields.complete:
        raise MalformedHttp(f"no status line in {raw[:80]!r}")
    status = parser.get_status_code()
    if not 100 <= status <= 599 or status == 101:
        raise MalformedHttp(f"status {status}")
    headers = fields.headers
    framing, length = _framing(status, headers)
    connection = {token.strip().lower() for token in headers.get("connection", "").split(",")}
    if parser.get_http_version() == "1.0":
        keep_alive = "keep-alive" in connection
    else:
        keep_alive = "close" not in connection
    return Head(
        status=status,
        framing=framing,
        length=length,
        keep_alive=keep_alive and framing is not Framing.CLOSE,
        content_type=headers.get("content-type", "").partition(";")[0].strip().lower(),
        encoding=headers.get("content-encoding", "").lower(),
        location=headers.get("location", ""),
        retry_after="retry-after" in headers,
    )


def _framing(status: int, headers: dict[str, str]) -> tuple[Framing, int]:
    if status < 200 or status in (204, 304):
        return Framing.NONE, 0
    coding = headers.get("transfer-encoding", "").lower()
    if coding:
        if coding != "chunked":
            raise MalformedHttp(f"transfer-encoding {coding!r}")
        return Framing.CHUNKED, 0
    if "content-length" in headers:
        text = headers["content-length"]
        if not text.isascii() or not text.isdigit():
            raise MalformedHttp(f"content-length {text!r}")
        length = int(text)
        return (Framing.LENGTH, length) if length else (Framing.NONE, 0)
    return Framing.CLOSE, 0


class _ChunkSizes(dict[bytes, int]):
    """Chunk-size line (without its CRLF) -> size; lines that were seen before cost one look-up."""

    def __missing__(self, line: bytes) -> int:
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise MalformedHttp(f"chunk size {line[:40]!r}")
        size = int(match.group(1), 16)
        if len(self) < 65536 and len(line) <= 8:
            self[line] = size
        return size


CHUNK_SIZES: Final = _ChunkSizes()
