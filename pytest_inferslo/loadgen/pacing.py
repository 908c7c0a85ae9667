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
#: What timers were seen to be late by, with some to spare.
_SPIN_NS = 100_000


class Pacer(Protocol):
    """`arm(due)` calls back at `due` (ns, time.monotonic_ns), in place of what was armed before. The callback
    arms again or disarms.
    """

    name: str
    #: how long the processor was kept busy with waiting
    spun_ns: int

    def arm(self, due: int) -> None: ...

    def disarm(self) -> None: ...

    def close(self) -> None: ...


class TimerfdPacer:
    name = "timerfd"
    spun_ns = 0

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
    spun_ns = 0

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


class SpinPacer:
    """Wakes ahead of the instant and asks the clock until it has come: an idle processor needs time to wake.

    The loop does nothing else meanwhile; the kernel's stamps do not mind, stamps of the clock would.
    """

    def __init__(self, loop: Any, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._timer = pacer(loop, self._ahead)
        self.name = f"{self._timer.name}, spin"
        self.spun_ns = 0
        self._due = 0
        self.disarm, self.close = self._timer.disarm, self._timer.close

    def arm(self, due: int) -> None:
        self._due = due
        self._timer.arm(due - _SPIN_NS)

    def _ahead(self) -> None:
        due, clock = self._due, time.monotonic_ns
        woke = clock()
        if woke < due:
            while clock() < due:
                pass
            # what the loop took longer than that, another process had the processor
            self.spun_ns += due - woke
        self._callback()


def pacer(loop: Any, callback: Callable[[], None], spin: bool = False) -> Pacer:
    """The best one that this system has; `spin`: exact to some us, for a processor that is kept busy."""
    if spin:
        return SpinPacer(loop, callback)
    if sys.platform == "linux":
        try:
            return TimerfdPacer(loop, callback)
        except (OSError, AttributeError):
            pass
    return LibevPacer(loop, callback)
