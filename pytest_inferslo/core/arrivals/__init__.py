"""Arrivals: when requests come. Pure, seeded with PCG64, and independent of the number of workers."""

from pytest_inferslo.core.arrivals.closed_loop import ClosedLoop, concurrency
from pytest_inferslo.core.arrivals.compose import (
    Part,
    Phases,
    SideBySide,
    Stream,
    phase,
    phases,
    stream,
    streams,
)
from pytest_inferslo.core.arrivals.open_loop import (
    OpenLoop,
    bursts,
    constant,
    gamma,
    poisson,
    ramp,
    sine,
    spike,
    steps,
)
from pytest_inferslo.core.arrivals.profiles import PROFILES
from pytest_inferslo.core.arrivals.schedule import Arrivals, ArrivalSchedule, Span
from pytest_inferslo.core.arrivals.trace import Trace

#: What a scenario takes as its arrivals.
ARRIVALS: tuple[type, ...] = (OpenLoop, ClosedLoop, Trace, Phases, SideBySide)
#: Every class of a saved scenario's arrivals, by its `kind`.
KINDS: dict[str, type] = {cls.kind: cls for cls in (*ARRIVALS, *PROFILES, Part, Stream)}  # type: ignore[attr-defined]

__all__ = [
    "ARRIVALS", "KINDS", "ArrivalSchedule", "Arrivals", "ClosedLoop", "OpenLoop", "Part", "Phases",
    "SideBySide", "Span", "Stream", "Trace", "bursts", "concurrency", "constant", "gamma", "phase", "phases",
    "poisson", "ramp", "sine", "spike", "steps", "stream", "streams",
]  # fmt: skip
