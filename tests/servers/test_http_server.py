"""The small HTTP server: requests in any pieces, keep-alive, faults that a test wants to see."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pytest_inferslo.servers.http import Exchange, HttpServer

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]


async def echo(exchange: Exchange) -> None:
    exchange.reply_json(200, {"path": exchange.path, "query": exchange.query, "body": exchange.body.decode()})


def talked(answer: Callable[[Exchange], Awaitable[None]], talk: Talk) -> Any:
    async def main() -> Any:
        async with HttpServer(answer) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            try:
                return await asyncio.wait_for(talk(reader, writer), 10)
            finally:
                writer.close()

    return asyncio.run(main())


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    )
    return head + await reader.readexactly(length)


def test_a_request_byte_by_byte() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for byte in b"POST /a/b?c=d HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        return await answer_of(reader)

    assert talked(echo, talk).endswith(b'{"path":"/a/b","query":"c=d","body":"hello"}')


def test_pipelined_requests_are_answered_in_order() -> None:
    async def slow_first(exchange: Exchange) -> None:
        await asyncio.sleep(0.02 if exchange.path == "/1" else 0)
        exchange.reply(200, exchange.path.encode())

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[bytes]:
        writer.write(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n")
        return [(await answer_of(reader))[-2:], (await answer_of(reader))[-2:]]

    assert talked(slow_first, talk) == [b"/1", b"/2"]


@pytest.mark.parametrize(
    ("request_head", "stays"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
    ],
)
def test_keep_alive_as_the_request_says(request_head: bytes, stays: bool) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(request_head)
        assert (b"connection: close" in await answer_of(reader)) is not stays
        writer.write(b"GET /again HTTP/1.1\r\nHost: x\r\n\r\n")
        return bool(await reader.read(10))

    assert talked(echo, talk) == stays


def test_a_chunked_request_that_expects_a_continue() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(
            b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        return await answer_of(reader)

    assert b'"body":"abcde"' in talked(echo, talk)


def test_what_is_no_http_is_refused() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        return await reader.read()

    assert talked(echo, talk).startswith(b"HTTP/1.1 400 ")


def test_a_reset_is_a_reset_and_a_close_is_a_close() -> None:
    async def part_then(exchange: Exchange) -> None:
        exchange.start_stream()
        exchange.write_chunk(b"part")
        await asyncio.sleep(0.02)
        exchange.reset() if exchange.path == "/reset" else exchange.close()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /close HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.read()).endswith(b"4\r\npart\r\n")

    async def talk_reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /reset HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"part")
        await asyncio.sleep(0.05)
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1024)

    talked(part_then, talk)
    talked(part_then, talk_reset)


def test_an_answer_that_fails_ends_its_connection_and_says_why() -> None:
    async def broken(exchange: Exchange) -> None:
        raise RuntimeError("broken on purpose")

    seen: list[Any] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""

    assert talked(broken, talk) == b""
    assert [str(error) for error in seen] == ["broken on purpose"]


def test_an_answer_ends_when_its_peer_leaves() -> None:
    left = asyncio.Event()

    async def endless(exchange: Exchange) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            left.set()
            raise

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0.02)
        writer.close()
        return await asyncio.wait_for(left.wait(), 5)

    assert talked(endless, talk)


def test_a_slow_reader_is_waited_for() -> None:
    waits: list[int] = []

    async def flood(exchange: Exchange) -> None:
        exchange.start_stream()
        for number in range(40):
            exchange.write_chunk(b"x" * 262_144)
            await exchange.drain()
            waits.append(number)
        exchange.end_stream()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0.2)
        assert len(waits) < 40
        total = 0
        while not (data := await reader.read(1 << 20)).endswith(b"0\r\n\r\n"):
            total += len(data)
        return total + len(data)

    assert talked(flood, talk) > 40 * 262_144
