"""The open-loop engine: every request leaves when it is due, whatever became of those before it.

It lives on gevent's loop as callbacks: a pacer for arrivals, a watcher per connection, a tick for deadlines.
No greenlet and no Locust event per request. The schedule is absolute: what leaves late carries its lag.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any, Final

from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.loadgen.connection import Connection
from pytest_inferslo.loadgen.dispatch import Dispatch, clock
from pytest_inferslo.loadgen.ending import Ending
from pytest_inferslo.loadgen.lag import LoopLag
from pytest_inferslo.loadgen.order import WorkerRecord
from pytest_inferslo.loadgen.pacing import pacer
from pytest_inferslo.loadgen.recorder import Recorder
from pytest_inferslo.loadgen.workload import Workload

_TICK_SECONDS: Final = 0.01
#: With less than this to the next arrival, the loop does nothing that can wait.
_SLACK_NS: Final = 100_000
#: Requests that are kept ready during a load.
_READY: Final = 512
_SECOND: Final = 1_000_000_000
_NEVER: Final = 1 << 62


class Engine(Dispatch):
    """Offers `workload` from `start(epoch)` on; calls `on_end` once, when every row is recorded.

    `share`: of how many workers this is one; the scenario's caps are split among them.
    """

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
        super().__init__(loop, workload, recorder, record, share, kernel_stamps)
        scenario = workload.scenario
        self._on_end = on_end
        self._drain_end = scenario.window_ns[1] + round(scenario.drain_seconds * _SECOND)
        self._row = 0
        self._due = _NEVER
        self._epoch = 0
        self._running = False
        self._ended = False
        self._cpu_started, self._started = 0, 0
        self._pacer = pacer(loop, self._guarded(self._arrivals_due), spin)
        self._tick = loop.timer(_TICK_SECONDS, _TICK_SECONDS)
        self._tick.start(self._guarded(self._ticked))
        self._lag = LoopLag()
        record.stamps, record.pacing = self.stamps.name, self._pacer.name

    def warm(self) -> None:
        """Opens connections ahead of the load: as many as arrive in its busiest tenth of a second."""
        self.pool.warm(self.workload.most_within(_SECOND // 10))

    def warming(self) -> bool:
        return self.pool.warming()

    def measure_clock(self) -> None:
        self.stamps.measure()

    def start(self, epoch: int) -> None:
        """`epoch`: the instant (monotonic ns) of the schedule's zero."""
        self._epoch = self.recorder.epoch = epoch
        self._running = True
        gc.collect()
        gc.freeze()
        # the hot path makes no cycles: what is collected is the little that others leave
        gc.set_threshold(100_000, 20, 100)
        self._cpu_started, self._started = time.process_time_ns(), clock()
        self._begin()
        self._finish_when_done()

    def stop(self, reason: str) -> None:
        """Ends now: what is in flight is unfinished, what was not sent yet never is."""
        if self._ended:
            return
        now = clock()
        self._running = False
        self._pacer.disarm()
        for connection in self.pool.busy():
            connection.reply.give_up(Outcome.UNFINISHED, reason, now)
            self._record(connection)
            self.pool.drop(connection)
        self._leave_rest(reason)
        self._finish_when_done()

    def _guarded(self, callback: Callable[[], None]) -> Callable[[], None]:
        """A fault of ours in a callback of the loop ends the load, and is told."""

        def run() -> None:
            try:
                callback()
            except Exception as error:
                self.error(f"fault of the load engine: {type(error).__name__}: {error}")
                self.stop("the load engine failed")

        return run

    # arrivals: these four are what a closed loop does in another way

    def _begin(self) -> None:
        self._next_row(0)
        self._pacer.arm(self._due)

    def _arrivals_due(self) -> None:
        now = clock()
        while self._due <= now:
            row = self._row
            self._send(row)
            self._next_row(row + 1)
            now = clock()
        if self._due == _NEVER:
            self._pacer.disarm()
            self._finish_when_done()
            return
        if self.workload.ready < _READY and self._due - now > _SLACK_NS:
            self.workload.prepare_one()
        self._pacer.arm(self._due)

    def _all_sent(self) -> bool:
        return self._row >= len(self.workload)

    def _leave_rest(self, reason: str) -> None:
        """Every row that was not sent is recorded as such."""
        rows = self.workload.rows_from(self._row)
        self._next_row(len(self.workload))
        self.recorder.never_sent(rows, reason)

    def _next_row(self, row: int) -> None:
        self._row = row
        workload = self.workload
        self._due = self._epoch + workload.intended[row] if row < len(workload) else _NEVER

    def answered(self, connection: Connection) -> None:
        self._settle(connection)
        if self._due == _NEVER:
            self._finish_when_done()

    def answered_at_once(self, connection: Connection, ending: Ending, t: int) -> None:
        self._settle_at_once(connection, ending, t)
        if self._due == _NEVER:
            self._finish_when_done()

    # deadlines and the end

    def _ticked(self) -> None:
        now = clock()
        if self._running:
            self._lag.tick(now)
        for connection in self.pool.overdue(now):
            self._deadline(connection, now)
        if self._running and now >= self._epoch + self._drain_end:
            self.stop("the drain time was over")

    def _deadline(self, connection: Connection, now: int) -> None:
        if not connection.standing:
            self.connect_failed(connection, *self._deadlines.not_connected())
            return
        failure = self._deadlines.overdue(connection, now)
        if failure is not None:
            connection.reply.give_up(*failure, now)
            self.answered(connection)

    def _finish_when_done(self) -> None:
        if self.in_flight > 0 or self._ended or not self._all_sent():
            return
        self._ended = True
        self._running = False
        gc.unfreeze()
        record = self.record
        # spinning gives way to work, so it is no sign of a worker at its limit
        used = time.process_time_ns() - self._cpu_started
        record.cpu_ns = max(0, used - self._pacer.spun_ns)
        record.spun_ns = self._pacer.spun_ns
        # a worker that gets no request has ended before the load begins, and was no busier for it
        record.cpu_share = record.cpu_ns / max(1, max(clock(), self._epoch) - self._started)
        record.loop_lag_p99_ns = self._lag.p99()
        record.intended = len(self.workload)
        record.issued = self.sent
        record.clock_steps = self.stamps.steps
        self.close()
        self._on_end()

    def close(self) -> None:
        """Lets go of everything; nothing is left on the loop."""
        self._tick.stop()
        self._tick.close()
        self._pacer.close()
        self.pool.close()
