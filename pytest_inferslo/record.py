"""The machine record of a run (run.json): what is known before the load, and what the load adds to it.

The published schema is schemas/run.schema.json.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.loadgen.offer import LoadResult
from pytest_inferslo.telemetry.host import fingerprint
from pytest_inferslo.telemetry.poller import TelemetryRecord

if TYPE_CHECKING:
    from pytest_inferslo.backends import RunningGroup, RunningServer
    from pytest_inferslo.loadgen.order import LocustLoad

    Server = RunningServer | RunningGroup

Record = dict[str, Any]

_PACKAGES = (
    "pytest-inferslo", "pytest", "locust", "gevent", "httptools", "numpy", "scipy", "pyarrow", "hdrhistogram",
)  # fmt: skip
_COUNTS = ("intended", "issued", "succeeded", "failed", "unfinished", "never_sent")


@dataclass(frozen=True)
class Order:
    """What one run is to measure. `name` and `source` (file, line) say which scenario of the user's it is;
    `policies` are (name, path, sha256) of those that will judge it."""

    scenario: Scenario
    name: str
    source: tuple[str, int]
    policies: tuple[dict[str, Any], ...]
    base: Path
    load_seconds: float | None = None
    notes: tuple[str, ...] = ()
    locustfile: LocustLoad | None = None
    pacing: str = "timer"
    baseline: Record | None = None  # path and run_id of what `of baseline` limits refer to
    records_baseline: bool = False  # those limits stay open: this run is what later ones are compared with


def intended_load(order: Order) -> Record:
    """The parts of a record that say what is to be offered, whatever it is offered to."""
    return {
        "scenario": {
            "name": order.name,
            "file": order.source[0],
            "line": order.source[1],
            "definition": order.scenario.describe(),
            "locustfile": order.locustfile.to_dict() if order.locustfile else None,
        },
        "load_seconds": order.load_seconds,
    }


def planned(order: Order, server: Server) -> Record:
    """The record of a run that has not ended. Judged as it is, it is INVALID."""
    scenario = order.scenario
    start, end = scenario.window_ns
    notes = list(order.notes)
    answers = server.answers(named_adapters(scenario))
    notes += [
        f"{answer['endpoint']}: asked for model {answer['asked']!r}, the server answers as {answer['answered']!r}"
        for answer in answers
        if answer["answered"] not in (None, answer["asked"])
    ]
    if server.simulated:
        notes.insert(0, "simulated: no figure of this run says anything about a real engine")
    return {
        **intended_load(order),
        "policy": order.policies[0] if order.policies else None,
        "policies": list(order.policies),
        "baseline": order.baseline,
        "records_baseline": order.records_baseline,
        "backend": server.record,
        "answers": answers,
        "host": fingerprint(),
        "command": sys.argv,
        "versions": _versions(),
        "seed": scenario.seed,
        "window": {"start": start, "end": end},
        "phases": [{"name": p.name, "start": p.start_ns, "end": p.end_ns} for p in scenario.phases()],
        "epoch": {"unix_ns": 0, "monotonic_ns": 0},
        "counts": dict.fromkeys(_COUNTS, 0),
        "outcomes": {},
        "workers": [],
        "adapters": adapter_names(scenario),
        "absent": {},
        "open_loop": scenario.open_loop,
        "gpus": [],
        "prices": None,
        "notes": notes,
        "stopped_early": None,
        "errors": ["nobody wrote down its end: pytest was killed, or is still at it"],
    }


def completed(
    plan: Record,
    server: Server,
    result: LoadResult,
    seen: TelemetryRecord,
    errors: list[str],
    until_ns: int | None = None,
) -> Record:
    """`plan` with what the load and the telemetry brought. `until_ns` cuts the window of a run that was stopped early
    because its verdict was certain by then."""
    return {
        **_cut(plan, until_ns),
        "backend": server.record,
        "epoch": {"unix_ns": result.epoch_unix_ns, "monotonic_ns": result.epoch_monotonic_ns},
        "counts": result.counts,
        "outcomes": result.outcomes,
        "workers": result.workers,
        "absent": seen.absent,
        "gpus": seen.gpus,
        "notes": [*plan["notes"], *_stopped(result, until_ns), *seen.notes, *server.notes],
        "stopped_early": result.stopped_early,
        "errors": [*errors, *result.errors],
    }


def _stopped(result: LoadResult, until_ns: int | None) -> list[str]:
    return [f"stopped early: {result.stopped_early}"] if until_ns is not None else []


def _cut(plan: Record, until_ns: int | None) -> Record:
    if until_ns is None:
        return plan
    phases = [
        phase | {"end": min(phase["end"], until_ns)} for phase in plan["phases"] if phase["start"] < until_ns
    ]
    return {**plan, "window": plan["window"] | {"end": until_ns}, "phases": phases}


def adapter_names(scenario: Scenario) -> list[str]:
    """Of all streams, each once; samples refer to them by position."""
    return list(
        dict.fromkeys(
            name for stream in scenario.streams if stream.adapters for name in stream.adapters.names
        )
    )


def named_adapters(scenario: Scenario) -> list[str]:
    """Those that requests name as their model; a header that names one is a gateway's, which answers as it likes."""
    chosen = [stream.adapters for stream in scenario.streams if stream.adapters is not None]
    return list(dict.fromkeys(name for each in chosen if each.route == "model" for name in each.names))


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
