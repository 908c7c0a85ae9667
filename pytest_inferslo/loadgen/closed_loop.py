"""The closed loop in the same engine: each user asks again when its answer has ended."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final

from pytest_inferslo.core.arrivals import ClosedLoop
from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.loadgen.connection import Connection
from pytest_inferslo.loadgen.ending import Ending
from pytest_inferslo.loadgen.engine import Engine, clock
from pytest_inferslo.loadgen.order import WorkerRecord
from pytest_inferslo.loadgen.recorder import Recorder
from pytest_inferslo.loadgen.workload import Workload

#: From a request that could not be sent to its user's next one.
_PAUSE_NS: Final = 10_000_000


class ClosedLoopEngine(Engine):
    """A request is due when its user's last one ended, plus the think time; latencies start there."""

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
        spin: bool = False,
    ) -> None:
        super().__init__(
            loop,
            workload,
            recorder,
            record,
            on_end,
            share=share,
            kernel_stamps=kernel_stamps,
            spin=spin,
        )
        arrivals = workload.scenario.shape
        assert isinstance(arrivals, ClosedLoop)
        self._arrivals = arrivals
        self._users = arrivals.users
        self._thinks = arrivals.think > 0
        self._seed = workload.scenario.seed
        self._end = workload.schedule.end
        self._waiting: list[tuple[int, int]] = []  # due, row
        self._begun = False
        self._stopped = False
        self._next: list[int] = []  # rows that are due now
        self._run_callback = loop.run_callback
        self._send_next = self._guarded(self._send_following)

    def warm(self) -> None:
        self.pool.warm(len(self.workload))

    def _begin(self) -> None:
        self._begun = True
        for row in range(len(self.workload)):
            self._wait(row)

    def _wait(self, row: int) -> None:
        due = self._epoch + self.workload.intended[row]
        heapq.heappush(self._waiting, (due, row))
        if self._waiting[0][1] == row:
            self._pacer.arm(due)

    def _arrivals_due(self) -> None:
        waiting, now = self._waiting, clock()
        while waiting and waiting[0][0] <= now:
            self._send(heapq.heappop(waiting)[1])
        if waiting:
            self._pacer.arm(waiting[0][0])
        else:
            self._pacer.disarm()
            self._finish_when_done()

    def _all_sent(self) -> bool:
        # a connection that fails ahead of the load does not end it
        return (self._begun or self._stopped) and not self._waiting and not self._next

    def _leave_rest(self, reason: str) -> None:
        """A user that still thinks has not asked: nothing of it is missing."""
        self._stopped = True
        self._waiting.clear()
        self._next.clear()

    def answered(self, connection: Connection) -> None:
        row, end = connection.row, connection.reply.end
        self._settle(connection)
        self._follow(row, end)

    def answered_at_once(self, connection: Connection, ending: Ending, t: int) -> None:
        self._settle_at_once(connection, ending, t)
        self._follow(connection.row, t)

    def _follow(self, row: int, end: int) -> None:
        following = self._following(row, end)
        if following is None:
            self._finish_when_done()
        elif self._thinks:
            self._wait(following)
        else:
            following_rows = self._next
            if not following_rows:
                self._run_callback(self._send_next)
            following_rows.append(following)

    def _send_following(self) -> None:
        """Once what has come is read: it needs no reading that waits for sends, and the server is woken once."""
        rows, self._next = self._next, []
        for row in rows:
            self._send(row)
        self._finish_when_done()

    def _fail_unsent(self, row: int, prompt_hash: int, outcome: Outcome, detail: str) -> None:
        super()._fail_unsent(row, prompt_hash, outcome, detail)
        self._follow_later(row)

    def connect_failed(self, connection: Connection, outcome: Outcome, detail: str) -> None:
        row = connection.row if connection.busy else None
        if row is not None:
            self._follow_later(row)
        super().connect_failed(connection, outcome, detail)

    def broke(self, connection: Connection, error: Exception) -> None:
        row = connection.row if connection.busy else None
        super().broke(connection, error)
        if row is not None:
            self._follow_later(row)

    def _follow_later(self, row: int) -> None:
        """After a pause: users whose requests fail at once would leave the loop no time for those of others."""
        following = self._following(row, clock() + _PAUSE_NS)
        if following is not None:
            self._wait(following)

    def _following(self, row: int, end: int) -> int | None:
        """The row of the same user's next request; None when that would be due after the schedule's end."""
        if self._stopped:
            return None
        workload = self.workload
        index = workload.index[row] + self._users
        due = end - self._epoch
        if self._thinks:
            due += self._arrivals.think_ns(self._seed, index)
        return workload.add_row(index, due) if due < self._end else None
