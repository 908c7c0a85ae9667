"""Linux's timerfd: a file descriptor that becomes readable at an instant of the monotonic clock."""

from __future__ import annotations

import ctypes
import os

_CLOCK_MONOTONIC = 1
_TIMER_ABSTIME = 1
_SECOND = 1_000_000_000


class _Itimerspec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("interval_s", "interval_ns", "value_s", "value_ns")]


class Timerfd:
    """One-shot. Setting it again also makes it unreadable, so it need not be read. Raises OSError or
    AttributeError

    where the system has none.
    """

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._settime = libc.timerfd_settime
        self._settime.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        self._spec = _Itimerspec()
        self._at = ctypes.addressof(self._spec)

    def fileno(self) -> int:
        return int(self._fd)

    def arm(self, due: int) -> None:
        """Readable at `due` (ns, time.monotonic_ns), at once if that is past."""
        spec = self._spec
        spec.value_s, spec.value_ns = divmod(due if due > 0 else 1, _SECOND)
        self._settime(self._fd, _TIMER_ABSTIME, self._at, None)

    def disarm(self) -> None:
        spec = self._spec
        spec.value_s = spec.value_ns = 0
        self._settime(self._fd, _TIMER_ABSTIME, self._at, None)

    def close(self) -> None:
        os.close(self._fd)


def least_timer_slack() -> None:
    """Lets timers of this thread fire within a nanosecond of their time, not the default 50 us."""
    ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)  # PR_SET_TIMERSLACK
