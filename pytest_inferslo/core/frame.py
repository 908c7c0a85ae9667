"""The fixed facts of a run that its samples are read against: window, phases, and the names behind the
indices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_inferslo.core.distribution import SECOND, Scope
from pytest_inferslo.core.histogram import Ints
from pytest_inferslo.core.samples import ABSENT
from pytest_inferslo.core.scenario import APIS
from pytest_inferslo.core.values import Choice

BASE_MODEL = "base"


@dataclass(frozen=True)
class Span:
    """The part of a run that a scope is about: stretches of intended starts, in ns since the epoch."""

    stretches: tuple[tuple[int, int], ...]

    @property
    def start(self) -> int:
        return self.stretches[0][0]

    @property
    def end(self) -> int:
        return self.stretches[-1][1]

    @property
    def seconds(self) -> float:
        return sum(end - start for start, end in self.stretches) / SECOND

    @property
    def slots(self) -> int:
        """Whole and begun seconds from the first start to the last end."""
        return max(1, math.ceil((self.end - self.start) / SECOND))

    def holds(self, times: Ints) -> Choice:
        """Which of the times lie in a stretch (start inclusive, end exclusive)."""
        if len(times) == 0 or any(a <= times.min() and times.max() < b for a, b in self.stretches):
            return None
        inside = np.zeros(len(times), bool)
        for start, end in self.stretches:
            inside |= (times >= start) & (times < end)
        return inside

    def slot_of(self, times: Ints) -> Ints:
        return (times - self.start) // SECOND


@dataclass(frozen=True)
class Frame:
    """`window` and `phases` in ns since the epoch; a phase's name may come back (each burst is a `peak`)."""

    window: tuple[int, int]
    phases: tuple[tuple[str, int, int], ...] = ()
    endpoints: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    streams: tuple[str, ...] = ("all",)
    streamed: tuple[bool, ...] = (True,)  # per stream, whether its answers are

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Frame:
        """Reads a run record (run.json): `window`, `phases`, `backend.endpoints`, `adapters` and the
        scenario.
        """
        window = record["window"]
        streams = _streams((record.get("scenario") or {}).get("definition") or {})
        return cls(
            window=(int(window["start"]), int(window["end"])),
            phases=tuple((p["name"], int(p["start"]), int(p["end"])) for p in record.get("phases") or ()),
            endpoints=tuple(e["name"] for e in (record.get("backend") or {}).get("endpoints") or ()),
            adapters=tuple(record.get("adapters") or ()),
            streams=tuple(name for name, _ in streams),
            streamed=tuple(streamed for _, streamed in streams),
        )

    @property
    def unstreamed(self) -> tuple[int, ...]:
        """Numbers of the streams whose answers come in one piece."""
        return tuple(number for number, streamed in enumerate(self.streamed) if not streamed)

    def span(self, phase: str | None) -> Span:
        if phase is None:
            return Span((self.window,))
        return Span(tuple((start, end) for name, start, end in self.phases if name == phase))

    def missing(self, scope: Scope) -> str | None:
        """Why no request of this run can be of that scope; None when some can."""
        known: tuple[tuple[str, str | None, list[str]], ...] = (
            ("endpoint", scope.endpoint, list(self.endpoints)),
            ("adapter", scope.adapter, [*self.adapters, BASE_MODEL]),
            ("stream", scope.stream, list(self.streams)),
            ("phase", scope.phase, list(dict.fromkeys(name for name, _, _ in self.phases))),
        )
        for kind, name, names in known:
            if name is not None and name not in names:
                return f"the run has no {kind} {name!r} (it has {', '.join(map(repr, names)) or 'none'})"
        return None

    def indices(self, scope: Scope) -> dict[str, int]:
        """The columns that a scope fixes, with the value that each must have."""
        fixed: dict[str, int] = {}
        if scope.endpoint is not None:
            fixed["endpoint"] = self.endpoints.index(scope.endpoint)
        if scope.adapter is not None:
            is_base = scope.adapter == BASE_MODEL and BASE_MODEL not in self.adapters
            fixed["adapter"] = ABSENT if is_base else self.adapters.index(scope.adapter)
        if scope.stream is not None:
            fixed["stream"] = self.streams.index(scope.stream)
        return fixed


def _streams(definition: dict[str, Any]) -> list[tuple[str, bool]]:
    """Name and streaming of each stream of a definition; what a stream leaves open is the scenario's."""
    api, streaming = definition.get("api", "chat"), definition.get("streaming")
    if streaming is None:
        streaming = APIS.get(api, True)
    arrivals = definition.get("arrivals") or {}
    if arrivals.get("kind") != "streams":
        return [("all", bool(streaming))]
    found = []
    for stream in arrivals["streams"]:
        own = stream.get("api") or api
        inherited = streaming if own == api else APIS.get(own, True)
        said = stream.get("streaming")
        found.append((stream["name"], bool(inherited if said is None else said)))
    return found
