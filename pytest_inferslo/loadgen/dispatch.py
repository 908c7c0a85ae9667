"""Requests on connections: each goes out on one, and whatever becomes of it is recorded, once.

What the loop calls is here; when requests are due, and when the load has ended, is for the engine.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any, Final

from pytest_inferslo.core.samples import ABSENT, Outcome
from pytest_inferslo.loadgen.connection import Connection
from pytest_inferslo.loadgen.deadlines import Deadlines
from pytest_inferslo.loadgen.ending import Ending
from pytest_inferslo.loadgen.order import WorkerRecord
from pytest_inferslo.loadgen.pool import SPARE_CONNECTIONS, NoConnection, Pool
from pytest_inferslo.loadgen.recorder import Recorder
from pytest_inferslo.loadgen.reply import Reply
from pytest_inferslo.loadgen.stamps import Stamps
from pytest_inferslo.loadgen.workload import Workload

clock: Final = time.monotonic_ns


class Dispatch:
    """`sent` and `in_flight` count requests; `share`: of how many workers this is one."""

    def __init__(
        self,
        loop: Any,
        workload: Workload,
        recorder: Recorder,
        record: WorkerRecord,
        share: int,
        kernel_stamps: bool,
    ) -> None:
        scenario = workload.scenario
        self.stamps = Stamps(kernel_stamps)
        self.workload = workload
        self.recorder = recorder
        self.record = record
        self.sent = 0
        self.in_flight = 0
        self._mixed = workload.mixed
        self._max_in_flight = max(1, scenario.max_in_flight // share)
        self._deadlines = Deadlines(scenario.timeouts)
        limit = max(1, scenario.max_connections // share)
        self.pool = Pool(
            loop, self, workload.targets, self._new_reply, limit, self._deadlines.connect, record
        )
        self._only = workload.targets[0] if len(workload.targets) == 1 else None
        #: an open loop may need more connections at any time
        self._grows = scenario.open_loop

    @abstractmethod
    def _finish_when_done(self) -> None:
        """A request has come to its end."""

    @abstractmethod
    def answered(self, connection: Connection) -> None: ...

    @abstractmethod
    def answered_at_once(self, connection: Connection, ending: Ending, t: int) -> None: ...

    def error(self, text: str) -> None:
        if len(self.record.errors) < 20:
            self.record.errors.append(text)

    def _new_reply(self) -> Reply:
        return Reply(*self.workload.kinds[0])

    def _send(self, row: int) -> None:
        workload = self.workload
        target = self._only or workload.targets[workload.places[row][1]]
        request, prompt_hash = workload.request(row)
        if self.in_flight >= self._max_in_flight:
            detail = f"{self._max_in_flight} requests in flight already"
            self._fail_unsent(row, prompt_hash, Outcome.NEVER_SENT, detail)
            return
        idle = target.idle
        if idle:
            connection = idle.pop()
        else:
            try:
                connection = self.pool.connect(target)
            except NoConnection as refusal:
                self._fail_unsent(row, prompt_hash, refusal.outcome, refusal.detail)
                return
        self._send_on(connection, row, request, prompt_hash)
        if self._grows and len(idle) < SPARE_CONNECTIONS:
            self.pool.open_spare(target)

    def _send_on(self, connection: Connection, row: int, request: bytes, prompt_hash: int) -> None:
        connection.row = row
        connection.prompt_hash = prompt_hash
        if self._mixed:
            connection.reply.speak(*self.workload.kind(row))
        self.in_flight += 1
        self.sent += 1
        connection.send_request(request)
        if connection.standing:
            connection.deadline = connection.sent + self._deadlines.soonest

    # what connections tell (connection.Owner)

    def connected(self, connection: Connection) -> None:
        connection.target.connecting -= 1
        if connection.busy:
            connection.deadline = connection.sent + self._deadlines.soonest
        else:
            connection.target.idle.append(connection)

    def connect_failed(self, connection: Connection, outcome: Outcome, detail: str) -> None:
        if connection.busy:
            connection.reply.give_up(outcome, detail, clock())
            self._record(connection)
        self.pool.drop(connection)
        self._finish_when_done()

    def _settle_at_once(self, connection: Connection, ending: Ending, t: int) -> None:
        workload, row = self.workload, connection.row
        self.recorder.add_whole(
            ending,
            t,
            workload.index[row],
            workload.intended[row],
            connection.sent,
            connection.prompt_hash,
            workload.places[row],
        )
        self.in_flight -= 1
        connection.busy = False
        connection.served += 1
        connection.idle_since = t
        connection.target.idle.append(connection)

    def _settle(self, connection: Connection) -> None:
        self._record(connection)
        if connection.reusable():
            connection.released()
            connection.target.idle.append(connection)
        else:
            self.pool.drop(connection)

    def idle_ended(self, connection: Connection, unsolicited: bytes) -> None:
        if unsolicited:
            self.record.unsolicited += 1
        self.pool.drop(connection)

    def went_stale(self, connection: Connection) -> None:
        """The request goes out again, once, on a connection made for it."""
        self.record.replaced_connections += 1
        row, request, prompt_hash = connection.row, connection.request, connection.prompt_hash
        self.pool.drop(connection)
        self.in_flight -= 1
        self.sent -= 1
        try:
            fresh = self.pool.connect(connection.target)
        except NoConnection as refusal:
            self._fail_unsent(row, prompt_hash, refusal.outcome, refusal.detail)
            self._finish_when_done()
        else:
            self._send_on(fresh, row, request, prompt_hash)

    def broke(self, connection: Connection, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        self.error(f"fault of the load engine: {text}")
        if connection.busy:
            connection.reply.give_up(Outcome.CLIENT_ERROR, text, clock())
            self._record(connection)
        self.pool.drop(connection)
        self._finish_when_done()

    # records

    def _record(self, connection: Connection) -> None:
        workload, row = self.workload, connection.row
        self.in_flight -= 1
        self.recorder.add(
            connection.reply,
            workload.index[row],
            workload.intended[row],
            connection.sent,
            connection.prompt_hash,
            workload.places[row],
        )

    def _fail_unsent(self, row: int, prompt_hash: int, outcome: Outcome, detail: str) -> None:
        """A request that never met a connection."""
        workload = self.workload
        reply = self._new_reply()
        reply.give_up(outcome, detail, clock())
        if outcome is not Outcome.NEVER_SENT:
            self.sent += 1
        self.recorder.add(
            reply,
            workload.index[row],
            workload.intended[row],
            ABSENT,
            prompt_hash,
            workload.places[row],
        )
