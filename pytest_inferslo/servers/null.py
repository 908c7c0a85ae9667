"""A server that does nothing but answer, as fast as one core can: what the load engine is measured against.

    python -m pytest_inferslo.servers.null --chunks 16 --first-ms 20 --gap-ms 5

It speaks chat completions: a stream where the request says `"stream":true`, else one JSON body. The answer is
a role, `chunks` tokens (each event in a segment of its own when there is time between them), usage and
`[DONE]`. What tools look at before a load is there too: `/health`, `/v1/models` and (empty) `/metrics`. It
prints its port. With `--truth FILE` it writes, per request, the monotonic ns at which the kernel received the
request and at which its first token went to the kernel, as native int64 pairs: the truth that a client's
times are compared with.
"""

from __future__ import annotations

import argparse
import array
import select
import signal
import socket
import ssl
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from pytest_inferslo.servers.null_answers import page, stream_parts, whole_answer
from pytest_inferslo.timerfd import Timerfd, least_timer_slack

_READ, _SECOND = select.EPOLLIN if hasattr(select, "EPOLLIN") else 1, 1_000_000_000
#: Of Linux's generic ABI: receive times of the kernel, realtime, as ancillary data.
_SO_TIMESTAMPNS = 35
#: Small enough for the allocator to keep: a larger buffer costs three system calls a read.
_READ_SIZE = 65536
_ANSWERS = 256
clock = time.monotonic_ns


@dataclass(frozen=True)
class Shape:
    """`first_ns` from the request to the first token, `gap_ns` between tokens; the whole server pauses for
    `stall_ns` in every `stall_every_ns`.
    """

    chunks: int = 1
    first_ns: int = 0
    gap_ns: int = 0
    stall_every_ns: int = 0
    stall_ns: int = 0


class NullServer:
    """`serve` runs until the process ends."""

    def __init__(
        self,
        shape: Shape,
        host: str = "127.0.0.1",
        port: int = 0,
        truth: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._shape = shape
        self._tls = tls
        #: answers of different ids, taken in turn
        self._answers = [stream_parts(shape.chunks, number) for number in range(_ANSWERS)]
        self._answered = 0
        self._whole = whole_answer(shape.chunks)
        self._truth = truth
        self._times = array.array("q")
        self._listener = socket.create_server((host, port), backlog=4096)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._sockets: dict[int, socket.socket] = {}
        self._partial: dict[int, bytes] = {}
        # what is due later, (nearly) in order, as all wait as long: (due, socket, parts of the answer, when its request
        # was received) for first tokens, (due, socket, parts, which of them) for those that follow
        self._firsts: deque[tuple[int, socket.socket, list[bytes], int]] = deque()
        self._tokens: deque[tuple[int, socket.socket, list[bytes], int]] = deque()
        self._received = 0
        self._epoll = select.epoll()
        self._timer = Timerfd()
        self._armed = 0
        least_timer_slack()

    def serve(self) -> None:
        poll, listener, timer = self._epoll.poll, self._listener.fileno(), self._timer.fileno()
        self._epoll.register(listener, _READ)
        self._epoll.register(timer, _READ)
        stall_at = clock() + self._shape.stall_every_ns if self._shape.stall_every_ns else 1 << 62
        while True:
            for fd, _ in poll(-1):
                if fd == timer:
                    self._send_due()
                elif fd == listener:
                    self._accept()
                else:
                    self._read(fd)
            if clock() >= stall_at:
                time.sleep(self._shape.stall_ns / _SECOND)
                stall_at += self._shape.stall_every_ns

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            if self._tls is not None:
                try:
                    sock = self._shaken_hands(self._tls, sock)
                except OSError:
                    sock.close()
                    continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._truth is not None:
                sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._sockets[sock.fileno()] = sock
            self._epoll.register(sock.fileno(), _READ)

    @staticmethod
    def _shaken_hands(tls: ssl.SSLContext, sock: socket.socket) -> socket.socket:
        """At once, while all else waits: connections are opened before what is measured."""
        sock.settimeout(1.0)
        return tls.wrap_socket(sock, server_side=True)

    def _read(self, fd: int) -> None:
        sock = self._sockets.get(fd)
        if sock is None:  # closed by what came before it in this round
            return
        try:
            data = self._receive(sock)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            data = b""
        if not data:
            self._close(fd)
            return
        if self._partial:
            data = self._partial.pop(fd, b"") + data
        end = data.find(b"\r\n\r\n") + 4
        at = data.find(b"ontent-Length: ", 0, end)
        if end < 4 or at < 0 or len(data) - end < int(data[at + 15 : data.find(b"\r", at)]):
            if data.startswith(b"GET ") and end >= 4:
                self._send(sock, page(data[4 : data.find(b" ", 4)]))
            else:
                self._partial[fd] = data
            return
        self._answer(sock, b'"stream":true' in data or b'"stream": true' in data)

    def _receive(self, sock: socket.socket) -> bytes:
        """Notes when the kernel had it, where the truth is wanted."""
        if self._truth is None:
            return sock.recv(_READ_SIZE)
        data, ancillary, _, _ = sock.recvmsg(_READ_SIZE, 32)
        self._received = clock()
        if ancillary:
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
            self._received += seconds * _SECOND + nanoseconds - time.time_ns()
        return data

    def _answer(self, sock: socket.socket, streaming: bool) -> None:
        now = clock()
        received = now if self._truth is None else self._received
        shape = self._shape
        if streaming:
            self._answered += 1
            parts = self._answers[self._answered % _ANSWERS]
        else:
            parts = [self._whole]
        if shape.first_ns or (shape.gap_ns and len(parts) > 1):
            self._firsts.append((now + shape.first_ns, sock, parts, received))
            self._arm()
            return
        for part in parts:
            self._send(sock, part)
        self._log(received, now)

    def _send_due(self) -> None:
        now = clock()
        firsts, tokens, gap = self._firsts, self._tokens, self._shape.gap_ns
        while firsts and firsts[0][0] <= now:
            due, sock, parts, received = firsts.popleft()
            self._log(received, clock())
            self._send(sock, parts[0])
            if len(parts) > 1:
                tokens.append((due + gap, sock, parts, 1))
        while tokens and tokens[0][0] <= now:
            due, sock, parts, number = tokens.popleft()
            self._send(sock, parts[number])
            number += 1
            if number < len(parts):
                tokens.append((due + gap, sock, parts, number))
        self._arm()

    def _arm(self) -> None:
        due = min((queue[0][0] for queue in (self._firsts, self._tokens) if queue), default=0)
        if due != self._armed:
            self._armed = due
            if due:
                self._timer.arm(due)
            else:
                self._timer.disarm()

    def _send(self, sock: socket.socket, data: bytes) -> None:
        try:
            sock.send(data)
        except OSError:
            self._gone(sock)

    def _gone(self, sock: socket.socket) -> None:
        if sock.fileno() >= 0:
            self._close(sock.fileno())

    def _log(self, received: int, sent: int) -> None:
        if self._truth is not None:
            self._times.extend((received, sent))
            if len(self._times) >= 2 * 65536:
                self.flush()

    def flush(self) -> None:
        if self._truth is not None:
            with self._truth.open("ab") as file:
                self._times.tofile(file)
            del self._times[:]

    def _close(self, fd: int) -> None:
        self._epoll.unregister(fd)
        self._partial.pop(fd, None)
        self._sockets.pop(fd).close()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pytest_inferslo.servers.null")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--chunks", type=int, default=1)
    for name in ("first", "gap", "stall-every", "stall"):
        parser.add_argument(f"--{name}-ms", type=float, default=0.0)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--certificate", type=Path, help="a file with certificate and key: speak TLS")
    args = parser.parse_args(argv)
    shape = Shape(
        args.chunks,
        *(round(ms * 1e6) for ms in (args.first_ms, args.gap_ms, args.stall_every_ms, args.stall_ms)),
    )
    if args.truth is not None and args.certificate is not None:
        parser.error("the kernel's times are not to be had through TLS: leave out --truth or --certificate")
    tls = None
    if args.certificate is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(args.certificate)
    server = NullServer(shape, args.host, args.port, args.truth, tls)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(server.port, flush=True)
    try:
        server.serve()
    except KeyboardInterrupt:
        pass
    finally:
        server.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
