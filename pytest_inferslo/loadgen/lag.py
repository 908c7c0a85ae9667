"""How late the event loop runs its own timer: time in which no arrival and no answer could be looked at."""

from __future__ import annotations

from array import array

import numpy as np


class LoopLag:
    """`tick` is called by a periodic timer; a tick that comes late after its neighbour tells the lag."""

    def __init__(self) -> None:
        self._ticks = array("q")

    def tick(self, now: int) -> None:
        self._ticks.append(now)

    def p99(self) -> int:
        """ns, by the ceiling rank; 0 with fewer than three ticks."""
        gaps = np.diff(np.frombuffer(self._ticks.tobytes(), np.int64))
        if len(gaps) < 2:
            return 0
        lags = np.sort(np.maximum(gaps - np.int64(np.median(gaps)), 0))
        return int(lags[-(-99 * len(lags) // 100) - 1])
