"""A small HTTP/1.1 server on asyncio for the servers that we ship: the simulator and the scripted server.

Not a web framework: it hands each complete request to one coroutine together with the transport, and
leaves every byte of the answer, its timing and its faults to that coroutine.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import httptools
import orjson


class Exchange:
    """One request and the means to answer it. `body` is complete; `path` is without the query."""

    __slots__ = ("_connection", "body", "headers", "keep_alive", "method", "path", "query")

    def __init__(
        self, connection: _Connection, method: str, target: bytes, headers: dict[str, str], body: bytes
    ):
        url = httptools.parse_url(target)
        self._connection = connection
        self.method = method
        self.path = (url.path or b"/").decode("latin-1")
        self.query = (url.query or b"").decode("latin-1")
        self.headers = headers
        self.body = body
        self.keep_alive = True

    @property
    def closed(self) -> bool:
        """The peer went away (or we closed): nothing written from now on arrives."""
        return self._connection.transport.is_closing()

    @property
    def _farewell(self) -> str:
        """The header that says that this is the last answer on its connection (RFC 9112, section 9.6)."""
        return "" if self.keep_alive else "connection: close\r\n"

    def write(self, data: bytes) -> None:
        """Bytes on the wire, exactly these."""
        self._connection.transport.write(data)

    async def drain(self) -> None:
        """Waits while the peer reads slower than we write."""
        await self._connection.writable.wait()

    def close(self) -> None:
        """FIN after what was written."""
        self._connection.transport.close()

    def reset(self) -> None:
        """RST at once: the peer sees `connection reset`."""
        sock = self._connection.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.transport.abort()

    def reply(
        self,
        status: int,
        body: bytes,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> None:
        extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = (
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}\r\ncontent-type: {content_type}\r\n"
            f"content-length: {len(body)}\r\n{self._farewell}{extra}\r\n"
        )
        self.write(head.encode("latin-1") + body)

    def reply_json(self, status: int, value: Any) -> None:
        self.reply(status, orjson.dumps(value))

    def start_stream(self, content_type: str = "text/event-stream; charset=utf-8") -> None:
        self.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n%s\r\n"
            % (content_type.encode(), self._farewell.encode())
        )

    def write_chunk(self, data: bytes) -> None:
        self.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> None:
        self.write(b"0\r\n\r\n")


Answer = Callable[[Exchange], Awaitable[None]]

_REASONS = {
    200: "OK", 204: "No Content", 302: "Found", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found",
    405: "Method Not Allowed", 422: "Unprocessable Entity", 429: "Too Many Requests",
    500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip


class _Connection(asyncio.Protocol):
    """Requests of one connection are answered one after another; pipelined ones wait."""

    transport: asyncio.Transport

    def __init__(self, answer: Answer, open_connections: set[_Connection]) -> None:
        self._answer = answer
        self._open = open_connections
        self._waiting: list[Exchange] = []
        self._task: asyncio.Task[None] | None = None
        self._reset_request()
        self._parser = httptools.HttpRequestParser(self)
        self.writable = asyncio.Event()
        self.writable.set()

    def _reset_request(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._open.add(self)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        self.writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.transport.close()
        except httptools.HttpParserError as error:
            body = str(error).encode()
            self.transport.write(
                b"HTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
            )
            self.transport.close()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        exchange = Exchange(
            self, self._parser.get_method().decode(), self._target, self._headers, b"".join(self._body)
        )
        exchange.keep_alive = self._parser.should_keep_alive()
        self._reset_request()
        self._waiting.append(exchange)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._answer_waiting())

    async def _answer_waiting(self) -> None:
        try:
            while self._waiting and not self.transport.is_closing():
                exchange = self._waiting.pop(0)
                await self._answer(exchange)
                if not exchange.keep_alive:
                    self.transport.close()
        except Exception as error:
            # Nobody awaits this task: the peer sees the connection end, and the loop's handler the reason.
            self.transport.abort()
            context = {"message": "an answer failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        finally:
            self._task = None


class HttpServer:
    """Listens on `host`; port 0 takes a free one. `async with HttpServer(answer) as server: server.port`"""

    def __init__(self, answer: Answer, host: str = "127.0.0.1", port: int = 0) -> None:
        self._answer = answer
        self._host = host
        self._port = port
        self._open: set[_Connection] = set()

    async def __aenter__(self) -> HttpServer:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self._answer, self._open), self._host, self._port, backlog=4096
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in list(self._open):
            connection.transport.abort()
        await asyncio.sleep(0)
