"""One connection: a socket, its watchers on gevent's loop, and the answer that it is reading.

No greenlet: the loop calls `_readable` and `_writable` straight. What the owner must know comes through
`Owner`.
"""

from __future__ import annotations

import _socket
import errno
import socket
import time
from typing import Any, Final, Protocol

from pytest_inferslo.core.samples import ABSENT, Outcome
from pytest_inferslo.loadgen.ending import Ending
from pytest_inferslo.loadgen.reply import Reply
from pytest_inferslo.loadgen.stamps import ANCILLARY_SIZE, Stamps, unpack_timespec
from pytest_inferslo.loadgen.target import Address, Target

READ_SIZE: Final = 65536
_READ, _WRITE = 1, 2
_SECOND: Final = 1_000_000_000

clock: Final = time.monotonic_ns


class Owner(Protocol):
    """The engine, as a connection sees it."""

    stamps: Stamps

    def connected(self, connection: Connection) -> None: ...

    def connect_failed(self, connection: Connection, outcome: Outcome, detail: str) -> None: ...

    def answered(self, connection: Connection) -> None:
        """The reply of a busy connection has its outcome."""
        ...

    def answered_at_once(self, connection: Connection, ending: Ending, t: int) -> None:
        """The answer came whole at `t`, in success; the reply knows nothing of it."""
        ...

    def idle_ended(self, connection: Connection, unsolicited: bytes) -> None:
        """An idle connection was closed by the server, or got bytes that nobody asked for."""
        ...

    def went_stale(self, connection: Connection) -> None:
        """Busy, but the server had closed it while it was idle: nothing of the request was answered."""
        ...

    def broke(self, connection: Connection, error: Exception) -> None:
        """A fault of our own."""
        ...


class Connection:
    """`busy` from `send` until its answer ended; `row` is the owner's, of the request in hand."""

    __slots__ = (
        "_read_watcher",
        "_recvmsg",
        "_send",
        "_unsent",
        "_write_watcher",
        "address",
        "busy",
        "deadline",
        "idle_since",
        "open",
        "opened",
        "owner",
        "prompt_hash",
        "reply",
        "request",
        "row",
        "sent",
        "served",
        "sock",
        "stamps",
        "standing",
        "target",
    )

    def __init__(self, owner: Owner, loop: Any, target: Target, reply: Reply) -> None:
        """Starts to connect. Raises OSError when there is no socket to be had (EMFILE)."""
        self.owner = owner
        self.stamps = owner.stamps
        self.target = target
        self.reply = reply
        self.address: Address = target.addresses[0]
        self.busy = False
        self.standing = False
        self.open = True
        self.served = 0
        self.row = ABSENT
        self.sent = ABSENT
        self.prompt_hash = 0
        self.request = b""
        self._unsent = b""
        self.opened = self.idle_since = clock()
        self.deadline = 0
        self.sock = _socket.socket(self.address[0], _socket.SOCK_STREAM | getattr(_socket, "SOCK_CLOEXEC", 0))
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stamps.enable(self.sock)
        self._recvmsg = self.sock.recvmsg
        self._send = self.sock.send
        fd = self.sock.fileno()
        self._read_watcher = loop.io(fd, _READ)
        self._write_watcher = loop.io(fd, _WRITE)
        self._write_watcher.start(self._writable)
        self._connect()

    def _connect(self) -> None:
        code = self.sock.connect_ex(self.address[1])
        if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            self._write_watcher.stop()
            # told through the loop, so that the owner has its connection in hand before it hears of it
            self._write_watcher.loop.run_callback(self._refused, code)

    def _refused(self, code: int) -> None:
        if self.open:
            outcome = Outcome.CONNECT_REFUSED if code == errno.ECONNREFUSED else Outcome.CONNECT_ERROR
            self.target.next_address(self.address)
            self.owner.connect_failed(self, outcome, f"{self.address[1][0]}: {_reason(code)}")

    def send_request(self, request: bytes) -> None:
        """Sends now, or as soon as the connection stands."""
        self.busy = True
        self.request = request
        if self.standing:
            self._transmit(request)
        else:
            self.sent = ABSENT

    def _transmit(self, data: bytes) -> None:
        self.sent = clock()
        try:
            done = self._send(data)
        except BlockingIOError:
            done = 0
        except OSError:
            self.sent = ABSENT
            self._write_failed()
            return
        if done < len(data):
            self._unsent = data[done:]
            self._write_watcher.start(self._writable)

    def _write_failed(self) -> None:
        """Not one byte of the request could be sent."""
        if self.served and not self.reply.started:
            self.owner.went_stale(self)
        else:
            self._lost(reset=True)

    def _writable(self) -> None:
        try:
            if self.standing:
                self._send_rest()
                return
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._write_watcher.stop()
                self._refused(code)
                return
            self._write_watcher.stop()
            self._read_watcher.start(self._readable)
            self._established()
        except Exception as error:
            self.owner.broke(self, error)

    def _established(self) -> None:
        """TCP stands; TLS shakes hands here."""
        self._ready()

    def _ready(self) -> None:
        self.standing = True
        self.idle_since = clock()
        if self.busy:
            self._transmit(self.request)
        self.owner.connected(self)

    def _send_rest(self) -> None:
        try:
            done = self._send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            # part of the request is with the server: this is its failure, not a connection gone stale
            self._write_watcher.stop()
            self._lost(reset=True)
            return
        self._unsent = self._unsent[done:]
        if not self._unsent:
            self._write_watcher.stop()

    def _readable(self) -> None:
        try:
            try:
                data, ancillary, _, _ = self._recvmsg(READ_SIZE, ANCILLARY_SIZE)
            except BlockingIOError:
                return
            except OSError:
                self._lost(reset=True)
                return
            if ancillary and self.stamps.kernel:
                seconds, nanoseconds = unpack_timespec(ancillary[0][2])
                t = seconds * _SECOND + nanoseconds - self.stamps.offset
            else:
                t = clock()
            if data:
                self._received(data, t)
            else:
                self._lost(reset=False)
        except Exception as error:
            self.owner.broke(self, error)

    def _received(self, data: bytes, t: int) -> None:
        if not self.busy:
            self.owner.idle_ended(self, data)
            return
        # a stepped realtime clock must put an answer neither before its request nor into the future
        now = clock()
        if not self.sent <= t <= now:
            t = self.sent if t < self.sent else now
        reply = self.reply
        if reply.started:
            if reply.feed(data, t):
                self.owner.answered(self)
            return
        # the first read of an answer, which often holds all of it
        ending = None if self._unsent else reply.at_once(data)
        if ending is not None:
            self.owner.answered_at_once(self, ending, t)
        elif reply.feed(data, t):
            reply.learn(data)
            self.owner.answered(self)

    def _lost(self, reset: bool) -> None:
        if not self.standing:
            self.owner.connect_failed(self, Outcome.TLS_ERROR, "closed by the server in the handshake")
            return
        if not self.busy:
            self.owner.idle_ended(self, b"")
            return
        now = clock()
        if self._raced(now):
            self.owner.went_stale(self)
            return
        self.reply.closed(now, reset)
        self.owner.answered(self)

    def _raced(self, now: int) -> bool:
        """Whether the server's keep-alive time ran out just as the request left.

        Only a connection that had served before and then lain idle for a second or more, and that closed
        within 0.1 s of the send without a byte of an answer, counts as that.
        """
        return (
            self.served > 0
            and not self.reply.started
            and self.sent != ABSENT
            and self.sent - self.idle_since >= _SECOND
            and now - self.sent <= 100_000_000
        )

    def reusable(self) -> bool:
        """After an answer: not where the server answered before it had read all of the request."""
        return self.reply.keep_alive and not self._unsent

    def released(self) -> None:
        """The answer is recorded: ready for the next request."""
        self.busy = False
        self.served += 1
        self.idle_since = self.reply.end
        self.reply.reset()

    def close(self) -> None:
        if self.open:
            self.open = False
            self.busy = False
            for watcher in (self._read_watcher, self._write_watcher):
                watcher.stop()
                watcher.close()
            self.sock.close()


def _reason(code: int) -> str:
    if code == errno.EADDRNOTAVAIL:
        return "no local port is left (too many connections opened and closed)"
    return errno.errorcode.get(code, str(code))
