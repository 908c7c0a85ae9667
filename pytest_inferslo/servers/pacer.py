"""Waiting until an instant, to tens of microseconds: asyncio's own timers round up to whole milliseconds."""

from __future__ import annotations

import asyncio
import heapq
import os
import time

from pytest_inferslo.timerfd import Timerfd, least_timer_slack


class Pacer:
    """Sleeps of one event loop, all on one timer. Make it inside the running loop; `close` it at the end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._number = 0
        self._timer: Timerfd | None = None
        try:
            self._timer = Timerfd()
        except (OSError, AttributeError):  # no timerfd here: the loop's own timers serve
            return
        least_timer_slack()
        self._loop.add_reader(self._timer.fileno(), self._wake)

    def now(self) -> int:
        """ns of time.monotonic_ns."""
        return time.monotonic_ns()

    async def until(self, due: int) -> None:
        """Returns at `due` (as of `now`) or just after; at once where that is past."""
        wait = due - self.now()
        if wait <= 0:
            return
        if self._timer is None:
            await asyncio.sleep(wait / 1e9)
            return
        future = self._loop.create_future()
        self._number += 1
        heapq.heappush(self._waiting, (due, self._number, future))
        if self._waiting[0][2] is future:
            self._timer.arm(due)
        await future

    def _wake(self) -> None:
        assert self._timer is not None
        try:
            os.read(self._timer.fileno(), 8)
        except BlockingIOError:
            return
        now = self.now()
        while self._waiting and self._waiting[0][0] <= now:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
        if self._waiting:
            self._timer.arm(self._waiting[0][0])

    def close(self) -> None:
        if self._timer is not None:
            self._loop.remove_reader(self._timer.fileno())
            self._timer.close()
            self._timer = None
