"""Waking the loop at an instant of the monotonic clock.

`timerfd` wakes within some 30 us; libev's own timers round to the millisecond grid of epoll. Which one serves
is decided here, once, and said in the worker's record.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from pytest_inferslo.timerfd import Timerfd, least_timer_slack

_SECOND = 1_000_000_000


class Pacer(Protocol):
    """`arm(due)` calls back at `due` (ns, time.monotonic_ns), in place of what was armed before. The callback
    arms again or disarms.
    """

    name: str

    def arm(self, due: int) -> None: ...

    def disarm(self) -> None: ...

    def close(self) -> None: ...


class TimerfdPacer:
    name = "timerfd"

    def __init__(self, loop: Any, callback: Callable[[], None]) -> None:
        self._timer = Timerfd()
        least_timer_slack()
        self.arm, self.disarm = self._timer.arm, self._timer.disarm
        self._watcher = loop.io(self._timer.fileno(), 1)
        self._watcher.start(callback)

    def close(self) -> None:
        self._watcher.stop()
        self._watcher.close()
        self._timer.close()


class LibevPacer:
    name = "libev"

    def __init__(self, loop: Any, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._timer: Any = None

    def arm(self, due: int) -> None:
        self.disarm()
        self._loop.update_now()
        self._timer = self._loop.timer(max(0.0, (due - time.monotonic_ns()) / _SECOND))
        self._timer.start(self._callback)

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def close(self) -> None:
        self.disarm()


def pacer(loop: Any, callback: Callable[[], None]) -> Pacer:
    """The best one that this system has."""
    if sys.platform == "linux":
        try:
            return TimerfdPacer(loop, callback)
        except (OSError, AttributeError):
            pass
    return LibevPacer(loop, callback)
