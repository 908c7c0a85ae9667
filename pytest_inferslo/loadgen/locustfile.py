"""Locust's own users and shapes as the load: every `events.request` becomes a sample.

A locustfile is a closed loop: latencies start at the send, so `intended` is `sent`, and no stall shows in
requests that its users never made. What a request's `context` says is recorded:

| key | meaning |
|---|---|
| `ttft` | first output, ms after the start of the request |
| `output_tokens`, `prompt_tokens`, `cached_tokens` | the server's counts |

A request without an answer until the drain time after its user was stopped is `UNFINISHED`, if Locust's own clients
made it (locust_calls); of other clients nothing is known but the events that they fire.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent
import locust
from locust.env import Environment
from locust.util.load_locustfile import load_locustfile

from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.samples import ABSENT, Outcome
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.errors import LoadError
from pytest_inferslo.loadgen.lag import LoopLag
from pytest_inferslo.loadgen.locust_calls import Call, Calls
from pytest_inferslo.loadgen.order import LoadOrder, LocustLoad, WorkerRecord
from pytest_inferslo.loadgen.recorder import Recorder
from pytest_inferslo.loadgen.stamps import Stamps

_MS = 1_000_000
_SECOND = 1_000_000_000


@dataclass
class _Heard:
    """A request event, in the words of a Reply."""

    outcome: Outcome
    detail: str
    status: int
    first: int
    last: int
    end: int
    prompt_tokens: int = ABSENT
    cached_tokens: int = ABSENT
    output_tokens: int = ABSENT

    def __post_init__(self) -> None:
        self.first_content = self.first
        self.reasoning_tokens = ABSENT
        self.gaps: list[int] = []
        self.chunks = int(self.outcome is Outcome.SUCCESS)
        self.bursts = 0


class LocustRun:
    """One worker's share of a locustfile's users, in the place of an Engine."""

    def __init__(
        self,
        order: LoadOrder,
        recorder: Recorder,
        record: WorkerRecord,
        on_end: Callable[[], None],
        workers: int,
    ) -> None:
        assert order.locustfile is not None
        self.recorder = recorder
        self.record = record
        self.sent = 0
        self._on_end = on_end
        self._workers = workers
        self._load = LocustLoad(**order.locustfile)
        scenario = Scenario.from_dict(order.scenario)
        self._seconds = scenario.window_ns[1] / _SECOND
        self._patience = round(0.9 * scenario.drain_seconds * _SECOND)
        self._ended = False
        self._greenlets: list[gevent.Greenlet] = []
        self._runner: Any = None
        self._cpu_started, self._started = time.process_time_ns(), time.monotonic_ns()
        self._stamps = Stamps(kernel=False)
        self._lag = LoopLag()
        users, shapes = self._read()
        self._env = Environment(
            user_classes=users,
            events=locust.events,
            host=Endpoint.from_dict(order.endpoints[0]).url,
            stop_timeout=scenario.drain_seconds,
            shape_class=shapes[0] if self._load.shape else None,
        )
        if self._env.shape_class is not None:
            setattr(shapes[0], "tick", self._shared(shapes[0].tick))  # noqa: B010
        self._calls = Calls(self)
        self._env.events.request.add_listener(self._requested)
        self._env.events.user_error.add_listener(self._user_failed)

    @property
    def in_flight(self) -> int:
        return len(self._calls.open)

    def warm(self) -> None:
        """Users open their own connections."""

    def warming(self) -> bool:
        return False

    def measure_clock(self) -> None:
        self._stamps.measure()

    def start(self, epoch: int) -> None:
        self.recorder.epoch = epoch
        self._cpu_started, self._started = time.process_time_ns(), time.monotonic_ns()
        self._greenlets.append(gevent.spawn(self._tick))
        wait = max(0.0, (epoch - time.monotonic_ns()) / _SECOND)
        self._greenlets.append(gevent.spawn_later(wait, self._begin))

    def stop(self, reason: str) -> None:
        """Ends now: users are stopped where they are."""
        if self._ended:
            return
        self._ended = True
        for call in list(self._calls.open):
            self._record_cut(call, reason)
        self._env.events.request.remove_listener(self._requested)
        self._env.events.user_error.remove_listener(self._user_failed)
        self._calls.close()
        for greenlet in self._greenlets:
            if greenlet is not gevent.getcurrent():
                greenlet.kill(block=False)
        if self._runner is not None:
            self._env.stop_timeout = 0
            gevent.spawn(self._runner.quit)
        record = self.record
        record.cpu_ns = time.process_time_ns() - self._cpu_started
        record.cpu_share = record.cpu_ns / max(1, time.monotonic_ns() - self._started)
        record.loop_lag_p99_ns = self._lag.p99()
        record.intended = record.issued = self.sent
        record.clock_steps = self._stamps.steps
        self._on_end()

    def error(self, text: str) -> None:
        if len(self.record.errors) < 20:
            self.record.errors.append(text)

    def _read(self) -> tuple[list[Any], list[Any]]:
        path = self._load.path
        if not Path(path).is_file():
            raise LoadError(f"locustfile {path}: no such file where this worker runs")
        try:
            users, shapes = load_locustfile(path)
        except Exception as error:
            raise LoadError(f"locustfile {path}: {type(error).__name__}: {error}") from error
        if not users:
            raise LoadError(f"locustfile {path} has no User class")
        if self._load.shape and not shapes:
            raise LoadError(f"locustfile {path} has no LoadTestShape class")
        return list(users.values()), shapes

    def _begin(self) -> None:
        runner = self._runner = self._env.create_local_runner()
        if self._env.shape_class is not None:
            runner.start_shape()
        else:
            users = self._mine(self._load.users)
            rate = self._load.spawn_rate / self._workers or float(max(1, users))
            self._greenlets.append(gevent.spawn(runner.start, users, max(rate, 0.01)))
        gevent.sleep(max(0.0, self._seconds - (time.monotonic_ns() - self.recorder.epoch) / _SECOND))
        runner.quit()
        self.stop("the load was over")

    def _mine(self, users: int) -> int:
        return users // self._workers + (self.record.index < users % self._workers)

    def _shared(self, tick: Callable[[], Any]) -> Callable[[], Any]:
        """Each worker follows the shape with its share of the users."""

        def mine() -> Any:
            wanted = tick()
            if wanted is None:
                return None
            users, rate, *rest = wanted
            return (self._mine(users), max(rate / self._workers, 0.01), *rest)

        return mine

    def _tick(self) -> None:
        while True:
            self._lag.tick(time.monotonic_ns())
            gevent.sleep(0.01)

    def cut(self, call: Call) -> None:
        """Locust waits for what a stopped user has in hand, but may stop one that has only just begun."""
        if time.monotonic_ns() - call.begin >= self._patience:
            self._record_cut(call, "no answer until its user was stopped")

    def _record_cut(self, call: Call, reason: str) -> None:
        end = time.monotonic_ns()
        self._record(_Heard(Outcome.UNFINISHED, reason, ABSENT, ABSENT, ABSENT, end), call.begin)

    def _user_failed(self, exception: Exception, **_: Any) -> None:
        if not getattr(exception, "_inferslo_told", False):
            self.error(f"a user of the locustfile raised {type(exception).__name__}: {exception}")

    def _requested(self, response_time: float, **event: Any) -> None:
        """Locust would swallow what a listener raises, and the request with it."""
        try:
            self._heard(response_time, **event)
        except (TypeError, ValueError, OverflowError) as error:
            self.error(f"a request of the locustfile has a context or time that is no number: {error}")

    def _heard(
        self,
        response_time: float,
        exception: BaseException | None = None,
        context: Mapping[str, Any] | None = None,
        response: Any = None,
        **_: Any,
    ) -> None:
        now = time.monotonic_ns()
        took = round(response_time * _MS)
        call = self._calls.of_event(response)
        begin = now - took if call is None else call.begin
        status = getattr(response, "status_code", None) or ABSENT
        outcome, detail = _outcome(exception, status)
        if outcome is not Outcome.SUCCESS:
            self._record(_Heard(outcome, detail, status, ABSENT, ABSENT, now), begin)
            return
        if call is not None and call.streamed and not call.caught:
            self.error(
                "a request with stream=True and without a `with` block ends at its headers, for Locust and so for"
                " its latency: use `with self.client.post(..., stream=True, catch_response=True) as response:`"
            )
        said = {name: value for name, value in (context or {}).items() if value is not None}
        last = begin + took
        first = begin + round(float(said["ttft"]) * _MS) if "ttft" in said else last
        if last < first <= last + _MS:
            first = last  # the user's clock and ours were read one after the other
        counts = (int(said.get(name, ABSENT)) for name in ("prompt_tokens", "cached_tokens", "output_tokens"))
        self._record(_Heard(outcome, detail, status, first, last, max(last, now), *counts), begin)

    def _record(self, heard: _Heard, begin: int) -> None:
        index = self.sent * self._workers + self.record.index
        self.sent += 1
        self.recorder.add(heard, index, begin - self.recorder.epoch, begin, 0, (0, 0, ABSENT))


def _outcome(exception: BaseException | None, status: int) -> tuple[Outcome, str]:
    if exception is None:
        return Outcome.SUCCESS, ""
    text = f"{type(exception).__name__}: {exception}"
    if status == 429:
        return Outcome.HTTP_OVERLOADED, text
    for floor, outcome in ((500, Outcome.HTTP_SERVER_ERROR), (400, Outcome.HTTP_CLIENT_ERROR)):
        if status >= floor:
            return outcome, text
    for word, outcome in (
        ("refused", Outcome.CONNECT_REFUSED),
        ("ConnectTimeout", Outcome.CONNECT_TIMEOUT),
        ("imeout", Outcome.TIMEOUT_TOTAL),
        ("timed out", Outcome.TIMEOUT_TOTAL),
        ("SSL", Outcome.TLS_ERROR),
        ("ended prematurely", Outcome.TRUNCATED),
        ("IncompleteRead", Outcome.TRUNCATED),
        ("InvalidChunkLength", Outcome.TRUNCATED),
        ("reset", Outcome.RESET),
        ("Connection", Outcome.RESET),
    ):
        if word in text:
            return outcome, text
    # the locustfile itself said so (catch_response), or its task raised
    return Outcome.ERROR_EVENT, text
