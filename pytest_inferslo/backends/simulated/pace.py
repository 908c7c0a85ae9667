"""Maps simulated steps to wall time: each ends at its own absolute deadline, so lateness never adds up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pytest_inferslo.backends.simulated.engine import Engine
from pytest_inferslo.backends.simulated.engine_stats import Histogram
from pytest_inferslo.backends.simulated.sequences import Request, Step

_RESYNC_S = 1.0
"""Past this lag the simulated clock jumps to the wall clock: the machine is too slow for the profile."""

_EARLY_S = 1e-4
_LAGS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Timer(Protocol):
    """Calls back once, at or after an absolute time."""

    def arm(self, deadline: float) -> None: ...

    def close(self) -> None: ...


class Pace:
    """Runs the engine by a clock and a timer. `deliver` gets the requests that have one more token."""

    def __init__(
        self,
        engine: Engine,
        deliver: Callable[[list[Request]], None],
        clock: Callable[[], float],
        timer: Callable[[Callable[[], None]], Timer],
    ) -> None:
        self.engine = engine
        self.lag = 0.0
        self.largest_lag = 0.0
        self.lags = Histogram(_LAGS_S)
        self.resyncs = 0
        self._paused_until = 0.0
        self._deliver = deliver
        self.now = clock
        self._step: Step | None = None
        self._timer = timer(self._due)

    def submit(self, request: Request) -> None:
        """Hands a request to the engine as having arrived now."""
        self.engine.submit(request, self.now())
        if self._step is None and self.engine.waiting[0] is request:
            self._timer.arm(request.ready)

    def abort(self, request: Request) -> None:
        self.engine.abort(request, self.now())

    def pause(self, seconds: float) -> None:
        """No step ends for so long; what was in flight continues afterwards."""
        self._paused_until = self.now() + seconds

    def close(self) -> None:
        self._timer.close()

    def _due(self) -> None:
        now = self.now()
        step = self._step
        if step is None:
            self._wake_when_ready(now)
            return
        if now < self._paused_until:
            step.end = self._paused_until
            if step.end != float("inf"):
                self._timer.arm(step.end)
            return
        self._measure_lag(step, now)
        produced = self.engine.finish_step(step)
        self._begin(step.end)
        self._deliver(produced)

    def _wake_when_ready(self, now: float) -> None:
        ready = self.engine.next_ready()
        if ready is None:
            return
        if ready > now + _EARLY_S:
            self._timer.arm(ready)
        else:
            self._begin(ready)

    def _measure_lag(self, step: Step, now: float) -> None:
        self.lag = now - step.end
        self.largest_lag = max(self.largest_lag, self.lag)
        self.lags.observe(self.lag)
        if self.lag > _RESYNC_S:
            self.resyncs += 1
            step.end = now

    def _begin(self, start: float) -> None:
        self._step = step = self.engine.begin_step(start)
        if step is not None:
            self._timer.arm(step.end)
            return
        ready = self.engine.next_ready()
        if ready is not None:
            self._timer.arm(ready)
