"""Carries out a fault script on a running server: who is refused, what is cut, when the process goes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from pytest_inferslo.backends.simulated.asks import ApiError
from pytest_inferslo.backends.simulated.faults import Dice, Fault, Script
from pytest_inferslo.backends.simulated.pace import Pace
from pytest_inferslo.backends.simulated.sequences import Request
from pytest_inferslo.backends.simulated.streams import Sink, StreamSink
from pytest_inferslo.servers.http import Exchange

_ENGINE_DEATH_EXIT_S = 1.9
"""How long vLLM's API server outlives its engine."""


class Damage:
    """The installed script and its timers. Installing another replaces it, with time 0 at that moment."""

    def __init__(self, pace: Pace, loop: asyncio.AbstractEventLoop) -> None:
        self._pace = pace
        self._loop = loop
        self._timers: list[asyncio.TimerHandle] = []
        self._leaked: list[bytes] = []
        self.engine_dead = False
        self.install(Script())

    def install(self, script: Script) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._pace.engine.slowdown = 1.0
        self._script = script
        self._dice = Dice(script)
        self._origin = self._loop.time()
        for fault in script.faults:
            self._schedule(fault)

    def _schedule(self, fault: Fault) -> None:
        if fault.kind == "slow":
            self._later(fault.at, self._set_slowdown, fault.factor)
            if fault.until != float("inf"):
                self._later(fault.until, self._set_slowdown, 1.0)
        elif fault.kind == "stall":
            self._later(fault.at, self._pace.pause, fault.length)
        elif fault.kind == "crash":
            self._later(fault.at, _die, fault)
        elif fault.kind == "engine_death":
            self._later(fault.at, self._lose_engine)

    def _later(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        self._timers.append(self._loop.call_at(self._origin + seconds, call, *arguments))

    def _set_slowdown(self, factor: float) -> None:
        self._pace.engine.slowdown = factor

    def _lose_engine(self) -> None:
        self.engine_dead = True
        self._pace.pause(float("inf"))
        self._loop.call_later(_ENGINE_DEATH_EXIT_S, os._exit, 0)

    def healthy(self) -> bool:
        elapsed = self._loop.time() - self._origin
        return not self.engine_dead and not any(
            fault.kind == "unhealthy" and fault.active(elapsed) for fault in self._script.faults
        )

    def meet(self, open_requests: int) -> Fault | None:
        """What happens to a request that arrives now. Raises ApiError for one that is refused."""
        if self.engine_dead:
            raise ApiError(500, "EngineCore encountered an issue (simulated).", "InternalServerError")
        if not self._script.faults:
            return None
        elapsed = self._loop.time() - self._origin
        for fault in self._script.faults:
            if fault.kind == "leak" and fault.active(elapsed):
                self._leaked.append(b"\1" * fault.bytes)
        met = self._dice.fate(elapsed, open_requests)
        if met is not None and met.kind == "error":
            raise ApiError(met.status, f"Simulated error {met.status}.", "SimulatedError")
        if met is not None and met.kind == "overload":
            raise ApiError(
                429,
                f"Simulated overload: {open_requests} requests are open.",
                "TooManyRequestsError",
                retry_after=1,
            )
        return met

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()


def _die(fault: Fault) -> None:
    if fault.signal:
        os.kill(os.getpid(), fault.signal)
    os._exit(fault.exit_code)


class BrokenSink:
    """A sink that breaks in the middle of its answer, as its fault says."""

    def __init__(self, inner: Sink, exchange: Exchange, fault: Fault) -> None:
        self.done = inner.done
        self.blank = inner.blank
        self._inner = inner
        self._exchange = exchange
        self._fault = fault

    def deliver(self, request: Request) -> None:
        fault = self._fault
        if self.done.done():
            return
        if request.generated <= fault.after_tokens and not request.finished:
            self._inner.deliver(request)
            return
        if fault.kind == "truncate":
            (self._exchange.reset if fault.reset else self._exchange.close)()
        elif isinstance(self._inner, StreamSink):
            self._inner.fail("Simulated engine error.")
        else:
            error = ApiError(500, "Simulated engine error.", "InternalServerError")
            self._exchange.reply_json(error.status, error.body)
        if not self.done.done():
            self.done.set_result(None)

    def abort(self, request: Request) -> None:
        self._inner.abort(request)
