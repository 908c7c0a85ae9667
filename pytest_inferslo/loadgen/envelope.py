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

from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.errors import ScenarioError

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
        intended = scenario.schedule().intended
        events = _output_events(scenario)
        second, ten_seconds = _peak(intended, _SECOND), _peak(intended, 10 * _SECOND)
        busy = second * self.request_ns + ten_seconds * max(0.0, events - 1) * self.event_ns
        return max(1, math.ceil(busy / _SECOND / USABLE_SHARE))

    def check(self, scenario: Scenario, workers: int) -> None:
        """Raises ScenarioError when `workers` workers of this machine's kind are too few for `scenario`."""
        needed = self.workers_needed(scenario)
        if needed <= workers:
            return
        peak = _peak(scenario.schedule().intended, _SECOND)
        here = os.cpu_count() or 1
        where = (
            f"--inferslo-workers {needed}"
            if needed < here
            else f"workers on other hosts too (--inferslo-expect-workers): this one has {here} CPUs"
        )
        raise ScenarioError(
            f"the load peaks at {peak:,.0f} requests/s of about {_output_events(scenario):,.0f} output events, which"
            f" needs {needed} load generator workers; there are {workers}. One worker is proven here for"
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
            f"pytest-inferslo {version('pytest-inferslo')}",
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


def _peak(intended: npt.NDArray[np.int64], window: int) -> float:
    """The highest rate, 1/s, over any `window` ns that begins with a request."""
    if not len(intended):
        return 0.0
    inside = np.searchsorted(intended, intended + window) - np.arange(len(intended))
    span = min(window, max(_SECOND, int(intended[-1] - intended[0])))
    return float(inside.max()) * _SECOND / span


def _output_events(scenario: Scenario) -> float:
    """Events of an answer: at most one a token, on average over the first prompts; 1 when not streamed."""
    counts = []
    for number, stream in enumerate(scenario.streams):
        source = scenario.prompt_source(stream=number)
        limits = [
            source.prompt(index).max_tokens if stream.streaming else 1 for index in range(_PROMPTS_LOOKED_AT)
        ]
        counts.append(sum(limits) / len(limits))
    return max(counts)
