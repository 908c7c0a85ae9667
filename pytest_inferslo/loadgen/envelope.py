"""What one worker of this machine was measured to offer without lagging, and whether a scenario fits in it."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.arrivals import ArrivalSchedule
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.errors import ScenarioError
from pytest_inferslo.loadgen.build import engine_build

#: Of one core. Beyond it a burst finds the worker busy, and requests leave late.
USABLE_SHARE = 0.6
_SECOND = 1_000_000_000
_PROMPTS_LOOKED_AT = 64


@dataclass(frozen=True)
class Envelope:
    """CPU that the load engine needs, and the floors of what it can see; times in ns, of one worker.

    `request_ns` for a request with one output event, `event_ns` for each further event; `send_lag_p99_ns` and
    `ttft_p50_ns` at a light load against a server that answers at once.
    """

    fingerprint: str
    request_ns: float
    event_ns: float
    send_lag_p50_ns: float
    send_lag_p99_ns: float
    ttft_p50_ns: float

    @property
    def requests_per_second(self) -> float:
        """Of one output event, per worker."""
        return USABLE_SHARE * _SECOND / self.request_ns

    @property
    def events_per_second(self) -> float:
        """Of long streams, per worker."""
        return USABLE_SHARE * _SECOND / self.event_ns

    def workers_needed(self, scenario: Scenario) -> int:
        """So many workers keep each below its usable share at the scenario's peaks. A closed loop needs one."""
        if not scenario.open_loop:
            return 1
        schedule = scenario.schedule()
        requests = np.full(len(schedule), self.request_ns)
        events = (_output_events(scenario, schedule) - 1) * self.event_ns
        busy = _peak(schedule.intended, requests, _SECOND) + _peak(schedule.intended, events, 10 * _SECOND)
        return max(1, math.ceil(busy / _SECOND / USABLE_SHARE))

    def check(self, scenario: Scenario, local: int, remote: int = 0) -> None:
        """Raises ScenarioError when the workers of this host and of others are too few for `scenario`.

        Others count as this machine's; of the local ones so many count as there are CPUs for.
        """
        needed, here = self.workers_needed(scenario), _cpus()
        counted = min(local, here) + remote
        if needed <= counted:
            return
        schedule = scenario.schedule()
        peak = _peak(schedule.intended, np.ones(len(schedule)), _SECOND)
        where = (
            f"--inferslo-workers {needed}"
            if needed < here
            else f"workers on other hosts too (--inferslo-expect-workers): this one has {here} CPUs"
        )
        asked = f" ({local} asked for on {here} CPUs)" if local > here else ""
        events = _output_events(scenario, schedule).mean()
        raise ScenarioError(
            f"the load peaks at {peak:,.0f} requests/s of about {events:,.0f} output events, which needs"
            f" {needed} load generator workers; there are {counted}{asked}. One worker is proven here for"
            f" {self.requests_per_second:,.0f} requests/s or {self.events_per_second:,.0f} stream events/s"
            f" (inferslo calibrate). Use {where}, or lower the rate"
        )


def cached() -> Envelope | None:
    """This machine's envelope, if it was measured with this version."""
    try:
        envelope = Envelope(**json.loads(_path().read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return envelope if envelope.fingerprint == fingerprint() else None


def save(envelope: Envelope) -> Path:
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(asdict(envelope), indent=2) + "\n")
    draft.replace(path)
    return path


def fingerprint() -> str:
    """Changes with whatever makes an old measurement worthless."""
    return ", ".join(
        (
            platform.node(),
            _cpu_model(),
            f"{os.cpu_count()} CPUs",
            platform.release(),
            f"Python {platform.python_version()}",
            f"pytest-inferslo {version('pytest-inferslo')} ({engine_build()})",
        )
    )


def _path() -> Path:
    base = os.environ.get("INFERSLO_CACHE")
    directory = Path(base) if base else Path.home() / ".cache" / "inferslo"
    return directory / f"envelope-{hashlib.sha256(fingerprint().encode()).hexdigest()[:16]}.json"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _cpus() -> int:
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def _peak(intended: npt.NDArray[np.int64], weights: npt.NDArray[np.float64], window: int) -> float:
    """The highest sum of `weights` per second, over any `window` ns that begins with a request."""
    if not len(intended):
        return 0.0
    until = np.concatenate(([0.0], np.cumsum(weights)))
    inside = until[np.searchsorted(intended, intended + window)] - until[:-1]
    span = min(window, max(_SECOND, int(intended[-1] - intended[0])))
    return float(inside.max()) * _SECOND / span


def _output_events(scenario: Scenario, schedule: ArrivalSchedule) -> npt.NDArray[np.float64]:
    """Events of each request's answer: at most one a token, by the trace or on average over a stream's first
    prompts; 1 when not streamed.
    """
    events = np.ones(len(schedule))
    for number, stream in enumerate(scenario.streams):
        if not stream.streaming:
            continue
        source, mine = scenario.prompt_source(stream=number), schedule.stream == number
        limits = [source.prompt(index).max_tokens for index in range(_PROMPTS_LOOKED_AT)]
        events[mine] = sum(limits) / len(limits)
        if schedule.output_tokens is not None:
            said = mine & (schedule.output_tokens > 0)
            events[said] = schedule.output_tokens[said]
    return np.maximum(events, 1.0)
