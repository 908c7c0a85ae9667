"""Whether two runs may be compared, or counted as one: what differs in their load, and in where they ran."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]

#: Fields of a scenario that do not change what is offered at any instant, or how it is asked.
_NOT_THE_LOAD = frozenset(("kind", "duration", "warmup", "drain", "seed", "repeats", "stop_when_certain"))
#: And those that say how much of it a client bears before it calls a request failed.
_PATIENCE = ("timeouts", "max_in_flight", "max_connections")
#: The times of arrivals, which shrink when a run is shortened (Arrivals.scaled).
_SHAPE_TIMES = frozenset(("at", "edge", "every", "length", "period", "ramp", "seconds"))


def load_differences(one: Record, other: Record) -> list[str]:
    """The fields of the scenario in which two runs were not offered the same load; none where a record tells nothing.

    A run that was shortened for a try has the rates of the whole one, at other times.
    """
    scenarios = [record.get("scenario") or {} for record in (one, other)]
    mine, theirs = (_plain(scenario.get("definition") or {}) for scenario in scenarios)
    if not mine or not theirs:
        return []
    if any(record.get("load_seconds") is not None for record in (one, other)):
        mine, theirs = ({**each, "arrivals": _timeless(each.get("arrivals"))} for each in (mine, theirs))
    names = [name for name in {**mine, **theirs} if name not in {*_NOT_THE_LOAD, *_PATIENCE}]
    found = [name for name in names if name in mine and name in theirs and mine[name] != theirs[name]]
    users = [{**(scenario.get("locustfile") or {}), "path": None} for scenario in scenarios]
    return [*found, *(["locustfile"] if users[0] != users[1] else [])]


def _timeless(arrivals: Any) -> Any:
    """Their kinds, rates and users; what a stream asks for stays as it is."""
    if isinstance(arrivals, list):
        return [_timeless(part) for part in arrivals]
    if not isinstance(arrivals, dict):
        return arrivals
    return {
        name: value if name in ("prompts", "adapters") else _timeless(value)
        for name, value in arrivals.items()
        if name not in _SHAPE_TIMES
    }


def place_differences(one: Record, other: Record) -> list[str]:
    """What else differs, as `BACKEND: ONE, not OTHER`: server, hardware and length."""
    mine, theirs = _place(one), _place(other)
    return [
        f"{what}: {_shown(mine[what])}, not {_shown(theirs[what])}"
        for what in mine
        if mine[what] != theirs[what] and mine[what] is not None and theirs[what] is not None
    ]


def _place(record: Record) -> dict[str, Any]:
    """None for what the record does not tell."""
    backend, host = record.get("backend") or {}, record.get("host") or {}
    definition = _plain((record.get("scenario") or {}).get("definition") or {})
    return {
        "backend": backend.get("name"),
        "version": backend.get("version"),
        "model": _models(backend),
        "GPUs": _gpus(record),
        "CPU": host.get("cpu_model"),
        "number of CPUs": host.get("cpus_allowed"),
        "memory": _gibibytes(host.get("memory_allowed")),
        "measured seconds": _seconds(record),
        **{name: definition.get(name) for name in _PATIENCE},
    }


def _models(backend: Record) -> list[str] | None:
    endpoints = backend.get("endpoints") or ()
    return sorted({str(endpoint.get("model")) for endpoint in endpoints if endpoint.get("model")}) or None


def _gpus(record: Record) -> list[str] | None:
    return [str(gpu.get("name")) for gpu in record.get("gpus") or ()] if "gpus" in record else None


def _gibibytes(size: Any) -> str | None:
    return None if size is None else f"{size / 2**30:.0f} GiB"


def _seconds(record: Record) -> float | None:
    window = record.get("window") or {}
    return (window["end"] - window["start"]) / 1e9 if {"start", "end"} <= window.keys() else None


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(definition: Any) -> Any:
    """As it reads after a trip through JSON: tuples are lists."""
    return json.loads(json.dumps(definition))
