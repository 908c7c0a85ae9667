"""A one-shot timer on an absolute monotonic deadline, finer than asyncio's.

asyncio rounds its waits up to whole milliseconds with epoll; a `timerfd` wakes the loop within tens of
microseconds.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable

_TFD_NONBLOCK = os.O_NONBLOCK
_TFD_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_TFD_TIMER_ABSTIME = 1


class _Spec(ctypes.Structure):
    """struct itimerspec: interval, then value, each in seconds and nanoseconds."""

    _fields_ = [(name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")]


class DeadlineTimer:
    """Calls `callback` at the armed time; arming again replaces the earlier deadline."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._fallback: asyncio.TimerHandle | None = None
        self._fd = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.timerfd_create(time.CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._fd >= 0:
            self._spec = _Spec()
            self._reference = ctypes.byref(self._spec)
            loop.add_reader(self._fd, self._expired)

    def arm(self, deadline: float) -> None:
        """`deadline` in seconds of time.monotonic(); one that has passed fires at once."""
        if self._fd < 0:
            if self._fallback is not None:
                self._fallback.cancel()
            self._fallback = self._loop.call_at(deadline, self._callback)
            return
        whole = int(deadline)
        self._spec.value_s = whole
        self._spec.value_ns = max(1, int((deadline - whole) * 1e9))
        self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, self._reference, None)

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._callback()

    def close(self) -> None:
        if self._fallback is not None:
            self._fallback.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
