"""Plays one `answer` of a script at thousands of requests per second, and logs the truth of each request.

    python -m pytest_inferslo.servers.paced SCRIPT.yaml --truth FILE

The script has a single answer whose only step is `answer` with its number of tokens; times may be drawn
(constant, lognormal, bimodal, ...). Where the scripted server has a task per request, this one has an epoll
loop, one timer, and a record of four native int64 per request: when it had arrived (the kernel's stamp), when
its first and its last token were handed to the kernel, all in ns of time.monotonic_ns, and how many tokens.
It prints its port, and writes what it holds when it is terminated. Linux only.
"""

from __future__ import annotations

import argparse
import array
import heapq
import random
import select
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from pytest_inferslo.errors import Problem, ScriptError
from pytest_inferslo.servers import wire
from pytest_inferslo.servers.script import Answer, Script
from pytest_inferslo.servers.scripted_cli import load_script
from pytest_inferslo.timerfd import Timerfd, least_timer_slack

clock = time.monotonic_ns

_SO_TIMESTAMPNS = 35
_STAMP = struct.Struct("qq")
_READ = 1  # EPOLLIN
_FLUSH_AT = 65_536


def paced_answer(script: Script, file: str) -> Answer:
    """The one answer that can be played here; raises ScriptError for any other script."""
    steps = script.rules[0].steps
    if len(script.rules) == 1 and len(steps) == 1 and isinstance(steps[0], Answer) and steps[0].tokens:
        return steps[0]
    line = script.rules[-1].line
    why = "a paced server plays one answer of one step, 'answer' with its 'tokens'; use `inferslo script-server`"
    raise ScriptError([Problem(file, line, 0, why)])


@dataclass
class _Going:
    """A request that is being answered."""

    sock: socket.socket
    received: int
    due: int
    part: int = 0
    first: int = 0


class PacedServer:
    """`serve` runs until the process ends."""

    def __init__(self, script: Script, answer: Answer, port: int = 0, truth: Path | None = None) -> None:
        self._answer = answer
        self._parts = _parts(script, answer)
        self._random = random.Random(script.seed)
        self._truth = truth
        self._times = array.array("q")
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._sockets: dict[int, socket.socket] = {}
        self._partial: dict[int, bytes] = {}
        self._later: list[tuple[int, int, _Going]] = []
        self._pushed = 0
        self._epoll = select.epoll()
        self._timer = Timerfd()
        self._offset = 0
        least_timer_slack()

    def serve(self) -> None:
        poll, listener, timer = self._epoll.poll, self._listener.fileno(), self._timer.fileno()
        self._epoll.register(listener, _READ)
        self._epoll.register(timer, _READ)
        measured = 0
        while True:
            ready = poll(-1)
            if clock() - measured > 250_000_000:
                self._offset, measured = _realtime_offset(), clock()
            for fd, _ in ready:
                if fd == listener:
                    self._accept()
                elif fd != timer:
                    self._read(fd)
            self._send_due()

    def flush(self) -> None:
        if self._truth is not None:
            with self._truth.open("ab") as file:
                self._times.tofile(file)
        del self._times[:]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._sockets[sock.fileno()] = sock
            self._epoll.register(sock.fileno(), _READ)

    def _read(self, fd: int) -> None:
        sock = self._sockets[fd]
        try:
            data, ancillary, _, _ = sock.recvmsg(262_144, 64)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            self._close(fd)
            return
        received = clock()
        if ancillary:
            seconds, nanoseconds = _STAMP.unpack(ancillary[0][2])
            received = seconds * 1_000_000_000 + nanoseconds - self._offset
        data = self._partial.pop(fd, b"") + data
        if not _complete(data):
            self._partial[fd] = data
            return
        self._push(_Going(sock, received, received + self._answer.first.draw(self._random)))

    def _push(self, going: _Going) -> None:
        self._pushed += 1
        heapq.heappush(self._later, (going.due, self._pushed, going))

    def _send_due(self) -> None:
        later, last = self._later, len(self._parts) - 1
        while later and later[0][0] <= clock():
            going = heapq.heappop(later)[2]
            now = clock()
            try:
                going.sock.send(self._parts[going.part])
            except OSError:
                continue
            if going.part == 0:
                going.first = now
            if going.part == last:
                self._log(going, now)
                continue
            going.part += 1
            going.due += self._answer.every.draw(self._random)
            self._push(going)
        if later:
            self._timer.arm(later[0][0])
        else:
            self._timer.disarm()

    def _log(self, going: _Going, now: int) -> None:
        self._times.extend((going.received, going.first, now, self._answer.tokens or 0))
        if len(self._times) >= _FLUSH_AT:
            self.flush()

    def _close(self, fd: int) -> None:
        self._epoll.unregister(fd)
        self._partial.pop(fd, None)
        self._sockets.pop(fd).close()


def _complete(data: bytes) -> bool:
    head, found, body = data.partition(b"\r\n\r\n")
    at = head.lower().find(b"content-length:")
    return bool(found) and (at < 0 or len(body) >= int(head[at + 15 :].split(b"\r\n", 1)[0]))


def _parts(script: Script, answer: Answer) -> list[bytes]:
    """What leaves at each event: the head and the role with the first, everything that ends it with the last."""
    api, model, tokens = script.api, script.model, answer.tokens or 0
    parts = []
    for first in range(0, tokens, answer.per_event):
        text = "".join(f" w{n}" for n in range(first, min(first + answer.per_event, tokens)))
        kind = "reasoning" if first < answer.reasoning else "content"
        parts.append(_chunk(wire.token_event(api, model, text, kind)))
    usage = answer.usage and wire.usage_of(api, answer.usage.prompt, tokens, 0, answer.reasoning)
    parts[0] = _HEAD + _chunk(wire.role_event(api, model)) + parts[0]
    parts[-1] += _chunk(wire.finish_event(api, model, answer.finish, usage or None))
    parts[-1] += _chunk(wire.usage_event(api, model, usage)) if usage else b""
    parts[-1] += _chunk(wire.done_event(api)) + b"0\r\n\r\n"
    return parts


_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def _realtime_offset() -> int:
    """realtime - monotonic, ns; of some tries the one whose two monotonic reads lie closest."""
    tries = []
    for _ in range(8):
        before, wall, after = clock(), time.time_ns(), clock()
        tries.append((after - before, wall - (before + after) // 2))
    return min(tries)[1]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pytest_inferslo.servers.paced", description=__doc__)
    parser.add_argument("script", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--truth", type=Path)
    options = parser.parse_args(argv)
    script = load_script(options.script)
    server = PacedServer(script, paced_answer(script, str(options.script)), options.port, options.truth)
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
