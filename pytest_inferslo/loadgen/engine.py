"""The open-loop engine: every request leaves when it is due, whatever became of those before it.

It lives on gevent's loop as callbacks: a pacer for arrivals, a watcher per connection, a tick for deadlines.
No greenlet and no Locust event per request. The schedule is absolute: what leaves late carries its lag.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_inferslo.core.samples import ABSENT, SAMPLE_DTYPE, Outcome
from pytest_inferslo.loadgen.connection import Connection
from pytest_inferslo.loadgen.lag import LoopLag
from pytest_inferslo.loadgen.order import WorkerRecord
from pytest_inferslo.loadgen.pacing import pacer
from pytest_inferslo.loadgen.recorder import Recorder
from pytest_inferslo.loadgen.reply import Reply
from pytest_inferslo.loadgen.stamps import Stamps
from pytest_inferslo.loadgen.target import Target
from pytest_inferslo.loadgen.tls import TlsConnection
from pytest_inferslo.loadgen.workload import Workload

#: Connections opened before the load, and kept ready beyond those in use while it grows, per endpoint.
WARM_CONNECTIONS = 64
SPARE_CONNECTIONS = 8
_TICK_SECONDS = 0.01
#: Below this distance to the next arrival the loop does nothing that can wait.
_SLACK_NS = 100_000
_SECOND = 1_000_000_000

clock = time.monotonic_ns


class Engine:
    """Offers `workload` from `start(epoch)` on; calls `on_end` once when every row is recorded."""

    def __init__(
        self,
        loop: Any,
        workload: Workload,
        recorder: Recorder,
        record: WorkerRecord,
        on_end: Callable[[], None],
        *,
        share: int = 1,
        kernel_stamps: bool = True,
    ) -> None:
        scenario = workload.scenario
        self.stamps = Stamps(kernel_stamps)
        self.workload = workload
        self.recorder = recorder
        self.record = record
        self.sent = 0
        self.in_flight = 0
        self.failed = 0
        self.succeeded = 0
        self._loop = loop
        self._on_end = on_end
        self._max_in_flight = max(1, scenario.max_in_flight // share)
        self._max_connections = max(1, scenario.max_connections // share)
        timeouts = scenario.timeouts
        self._connect_ns, self._first_ns, self._stall_ns, self._total_ns = (
            round(float(seconds) * _SECOND)
            for seconds in (timeouts.connect, timeouts.first_output, timeouts.stall, timeouts.total)
        )
        self._drain_end = scenario.window_ns[1] + round(float(scenario.drain) * _SECOND)
        self._connections: list[Connection] = []
        self._place = 0
        self._rows = len(workload)
        self._row = 0
        self._due = 1 << 62
        self._epoch = 0
        self._ended = False
        self._cpu_started, self._started = time.process_time_ns(), clock()
        self._pacer = pacer(loop, self._arrivals_due)
        self._tick = loop.timer(_TICK_SECONDS, _TICK_SECONDS)
        self._lag = LoopLag()
        record.stamps, record.pacing = self.stamps.name, self._pacer.name
        record.intended = self._rows

    # connections ahead of the load

    def warm(self) -> None:
        """Opens the first connections; they stand (or not) when the loop has run for a while."""
        share = max(1, min(WARM_CONNECTIONS, self._max_connections) // len(self.workload.targets))
        for target in self.workload.targets:
            for _ in range(share if target.addresses else 0):
                self._open(target)
        self._tick.start(self._ticked)

    @property
    def warming(self) -> bool:
        return any(target.connecting for target in self.workload.targets)

    def _open(self, target: Target) -> Connection:
        kind = Connection if target.tls is None else TlsConnection
        reply = Reply(self.workload.dialect, self.workload.streaming)
        connection = kind(self, self._loop, target, reply)
        connection.deadline = connection.opened + self._connect_ns
        target.connecting += 1
        self._connections.append(connection)
        self.record.connections += 1
        return connection

    def _drop(self, connection: Connection) -> None:
        if not connection.open:
            return
        target = connection.target
        if not connection.standing:
            target.connecting -= 1
        elif not connection.busy:
            try:
                target.idle.remove(connection)
            except ValueError:
                pass
        connection.close()
        self._connections.remove(connection)

    # arrivals

    def start(self, epoch: int) -> None:
        """`epoch`: the instant (monotonic ns) of the schedule's zero."""
        self._epoch = self.recorder.epoch = epoch
        gc.collect()
        gc.freeze()
        self._cpu_started, self._started = time.process_time_ns(), clock()
        self._next_row(0)
        self._pacer.arm(self._due)
        self._finish_when_done()

    def _next_row(self, row: int) -> None:
        self._row = row
        self._due = self._epoch + self.workload.intended[row] if row < self._rows else 1 << 62

    def _arrivals_due(self) -> None:
        now = clock()
        while self._due <= now:
            row = self._row
            self._send(row)
            self._next_row(row + 1)
            now = clock()
        if self._row >= self._rows:
            self._pacer.disarm()
            self._finish_when_done()
            return
        workload = self.workload
        if workload.ready < 512 and self._due - now > _SLACK_NS:
            workload.prepare_one()
        self._pacer.arm(self._due)

    def _send(self, row: int) -> None:
        workload = self.workload
        target = workload.targets[workload.endpoint[row]]
        request, prompt_hash = workload.next_request()
        if self.in_flight >= self._max_in_flight:
            self._never_sent(row, prompt_hash, f"{self._max_in_flight} requests in flight already")
            return
        idle = target.idle
        if idle:
            connection = idle.pop()
        else:
            found = self._connection_on_demand(target, row, prompt_hash)
            if found is None:
                return
            connection = found
        connection.row = row
        connection.prompt_hash = prompt_hash
        self.in_flight += 1
        self.sent += 1
        connection.send_request(request)
        if connection.standing:
            connection.deadline = connection.sent + self._first_ns
        if len(idle) < SPARE_CONNECTIONS:
            self._open_spare(target)

    def _connection_on_demand(self, target: Target, row: int, prompt_hash: int) -> Connection | None:
        if len(self._connections) >= self._max_connections:
            self._never_sent(row, prompt_hash, f"all {self._max_connections} connections in use")
            return None
        if not target.addresses:
            self._fail_unsent(row, prompt_hash, Outcome.CONNECT_ERROR, target.resolve_error)
            return None
        try:
            return self._open(target)
        except OSError as error:
            self._fail_unsent(row, prompt_hash, Outcome.CLIENT_ERROR, f"no socket: {error}; raise ulimit -n")
            return None

    def _open_spare(self, target: Target) -> None:
        if target.connecting < SPARE_CONNECTIONS and len(self._connections) < self._max_connections:
            try:
                self._open(target)
            except OSError:
                pass

    # what connections tell (connection.Owner)

    def connected(self, connection: Connection) -> None:
        target = connection.target
        target.connecting -= 1
        if connection.busy:
            connection.deadline = connection.sent + self._first_ns
        else:
            target.idle.append(connection)

    def connect_failed(self, connection: Connection, outcome: Outcome, detail: str) -> None:
        busy = connection.busy
        if busy:
            connection.reply.give_up(outcome, detail, clock())
            self._record(connection)
        self._drop(connection)

    def answered(self, connection: Connection) -> None:
        self._record(connection)
        if connection.reply.keep_alive and connection.open:
            connection.released()
            connection.target.idle.append(connection)
        else:
            self._drop(connection)
        if self._row >= self._rows:
            self._finish_when_done()

    def idle_ended(self, connection: Connection, unsolicited: bytes) -> None:
        if unsolicited:
            self.record.unsolicited += 1
        self._drop(connection)

    def went_stale(self, connection: Connection) -> None:
        """The request goes out again, once, on a connection that has just been made."""
        self.record.replaced_connections += 1
        row, request, prompt_hash = connection.row, connection.request, connection.prompt_hash
        target = connection.target
        self._drop(connection)
        self.in_flight -= 1
        self.sent -= 1
        fresh = self._connection_on_demand(target, row, prompt_hash)
        if fresh is not None:
            fresh.row, fresh.prompt_hash = row, prompt_hash
            self.in_flight += 1
            self.sent += 1
            fresh.send_request(request)

    def broke(self, connection: Connection, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        self.error(f"fault of the load engine: {text}")
        if connection.busy and connection.reply.outcome is None:
            connection.reply.give_up(Outcome.CLIENT_ERROR, text, clock())
            self._record(connection)
        self._drop(connection)

    def error(self, text: str) -> None:
        if len(self.record.errors) < 20:
            self.record.errors.append(text)

    # records

    def _record(self, connection: Connection) -> None:
        workload, row, reply = self.workload, connection.row, connection.reply
        self.in_flight -= 1
        if reply.outcome is Outcome.SUCCESS:
            self.succeeded += 1
        else:
            self.failed += 1
        self.recorder.add(
            reply,
            workload.index[row],
            workload.intended[row],
            connection.sent,
            connection.prompt_hash,
            workload.stream[row],
            workload.endpoint[row],
            workload.adapter[row],
        )

    def _fail_unsent(self, row: int, prompt_hash: int, outcome: Outcome, detail: str) -> None:
        """A request that never met a connection."""
        reply = Reply(self.workload.dialect, self.workload.streaming)
        reply.give_up(outcome, detail, clock())
        workload = self.workload
        self.failed += 1
        if outcome is not Outcome.NEVER_SENT:
            self.sent += 1
        self.recorder.add(
            reply,
            workload.index[row],
            workload.intended[row],
            ABSENT,
            prompt_hash,
            workload.stream[row],
            workload.endpoint[row],
            workload.adapter[row],
        )

    def _never_sent(self, row: int, prompt_hash: int, detail: str) -> None:
        self._fail_unsent(row, prompt_hash, Outcome.NEVER_SENT, detail)

    # deadlines and the end

    def _ticked(self) -> None:
        now = clock()
        self._lag.tick(now)
        connections = self._connections
        for _ in range(max(64, len(connections) // 32)):
            if self._place >= len(connections):
                self._place = 0
                break
            connection = connections[self._place]
            self._place += 1
            if connection.deadline <= now and (connection.busy or not connection.standing):
                self._deadline(connection, now)
        if self._epoch and now >= self._epoch + self._drain_end:
            self.stop("the drain time is over")

    def _deadline(self, connection: Connection, now: int) -> None:
        """Fires what is due, or moves the deadline to where it now belongs."""
        reply, sent = connection.reply, connection.sent
        if not connection.standing:
            self.connect_failed(
                connection, Outcome.CONNECT_TIMEOUT, f"not connected after {self._connect_ns / 1e9:g} s"
            )
            self._finish_when_done()
            return
        total = sent + self._total_ns
        if reply.chunks:
            limit, outcome, what = reply.last + self._stall_ns, Outcome.TIMEOUT_STALL, "a stall"
        else:
            limit, outcome, what = sent + self._first_ns, Outcome.TIMEOUT_FIRST_OUTPUT, "no output"
        if total <= limit:
            limit, outcome, what = total, Outcome.TIMEOUT_TOTAL, "not complete"
        if limit > now:
            connection.deadline = limit
            return
        reply.give_up(outcome, f"{what} at the time-out", now)
        self.answered(connection)

    def stop(self, reason: str) -> None:
        """Ends now: what is in flight is unfinished, what was not yet due is never sent."""
        if self._ended:
            return
        now = clock()
        first, self._row = self._row, self._rows
        self._pacer.disarm()
        for connection in list(self._connections):
            if connection.busy:
                connection.reply.give_up(Outcome.UNFINISHED, reason, now)
                self._record(connection)
                self._drop(connection)
        if first < self._rows:
            self._record_rest(first, reason)
        self._finish_when_done()

    def _record_rest(self, first: int, reason: str) -> None:
        workload = self.workload
        rows = np.zeros(self._rows - first, SAMPLE_DTYPE)
        for name in ("index", "intended", "stream", "endpoint", "adapter"):
            rows[name] = np.array(getattr(workload, name)[first:], np.int64)
        self.recorder.never_sent(rows, reason)
        self.failed += len(rows)

    def _finish_when_done(self) -> None:
        if self._row < self._rows or self.in_flight or self._ended:
            return
        self._ended = True
        gc.unfreeze()
        wall = max(1, clock() - self._started)
        self.record.cpu_share = (time.process_time_ns() - self._cpu_started) / wall
        self.record.loop_lag_p99_ns = self._lag.p99()
        self.record.issued = self.sent
        self.record.clock_steps = self.stamps.steps
        self.close()
        self._on_end()

    def close(self) -> None:
        """Lets go of everything; nothing is left on the loop."""
        self._tick.stop()
        self._tick.close()
        self._pacer.close()
        for connection in self._connections:
            connection.close()
        self._connections.clear()
