"""A worker's connections: opened ahead of the load, taken last-in first-out, grown as the load grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.loadgen.connection import Connection, Owner
from pytest_inferslo.loadgen.order import WorkerRecord
from pytest_inferslo.loadgen.reply import Reply
from pytest_inferslo.loadgen.target import Target
from pytest_inferslo.loadgen.tls import TlsConnection

#: Connections opened before the load over all endpoints: at least so many, and as many at a time (a server's
#: queue of new connections may hold no more than 100), at most so many; and kept ready beyond those in use, per
#: endpoint.
WARM_CONNECTIONS = 64
MOST_WARM_CONNECTIONS = 1024
SPARE_CONNECTIONS: Final = 8


class NoConnection(Exception):
    """Why a request cannot have a connection: `outcome`, and the text for people."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


class Pool:
    """At most `limit` connections, over all `targets`; `connect_ns` is how long each may take to stand."""

    def __init__(
        self,
        loop: Any,
        owner: Owner,
        targets: list[Target],
        new_reply: Callable[[], Reply],
        limit: int,
        connect_ns: int,
        record: WorkerRecord,
    ) -> None:
        self._loop = loop
        self._owner = owner
        self._targets = targets
        self._new_reply = new_reply
        self._limit = limit
        self._connect_ns = connect_ns
        self._record = record
        self._connections: list[Connection] = []
        self._place = 0
        self._to_warm = 0  # per endpoint

    def warm(self, wanted: int) -> None:
        """Begins to open `wanted` connections; `warming` goes on with it while the loop runs."""
        wanted = min(max(wanted, WARM_CONNECTIONS), MOST_WARM_CONNECTIONS, self._limit)
        self._to_warm = max(1, wanted // len(self._targets))
        self._warm_some()

    def warming(self) -> bool:
        """Whether connections ahead of the load are still to come; to be asked again and again."""
        if any(target.connecting for target in self._targets):
            return True
        self._warm_some()
        return self._to_warm > 0

    def _warm_some(self) -> None:
        share = min(self._to_warm, max(1, WARM_CONNECTIONS // len(self._targets)))
        self._to_warm -= share
        for target in self._targets:
            for _ in range(share if target.addresses else 0):
                self._open(target)

    def connect(self, target: Target) -> Connection:
        """A new connection, which need not stand yet. Raises NoConnection."""
        if len(self._connections) >= self._limit:
            raise NoConnection(Outcome.NEVER_SENT, f"all {self._limit} connections are in use")
        if not target.addresses:
            raise NoConnection(Outcome.CONNECT_ERROR, target.resolve_error)
        try:
            return self._open(target)
        except OSError as error:
            raise NoConnection(Outcome.CLIENT_ERROR, f"no socket ({error}); raise ulimit -n") from error

    def open_spare(self, target: Target) -> None:
        """One more connection for what comes, unless some are on their way or the limit is reached."""
        if target.connecting < SPARE_CONNECTIONS and len(self._connections) < self._limit:
            try:
                self._open(target)
            except OSError:
                pass

    def drop(self, connection: Connection) -> None:
        if not connection.open:
            return
        target = connection.target
        if not connection.standing:
            target.connecting -= 1
        elif not connection.busy and connection in target.idle:
            target.idle.remove(connection)
        connection.close()
        self._connections.remove(connection)

    def overdue(self, now: int) -> Iterator[Connection]:
        """Some of the connections whose deadline has passed: a few at each call, all within 32 calls."""
        connections = self._connections
        for _ in range(max(64, len(connections) // 32)):
            if self._place >= len(connections):
                self._place = 0
                return
            connection = connections[self._place]
            self._place += 1
            if connection.deadline <= now and (connection.busy or not connection.standing):
                yield connection

    def busy(self) -> list[Connection]:
        return [connection for connection in self._connections if connection.busy]

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def _open(self, target: Target) -> Connection:
        kind = Connection if target.tls is None else TlsConnection
        connection = kind(self._owner, self._loop, target, self._new_reply())
        connection.deadline = connection.opened + self._connect_ns
        target.connecting += 1
        self._connections.append(connection)
        self._record.connections += 1
        return connection
