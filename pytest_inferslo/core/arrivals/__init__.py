"""Arrivals: when requests come. Pure, seeded with PCG64, and independent of the number of workers."""

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

#: Every class of a saved scenario's arrivals, by its `kind`.
KINDS: dict[str, type] = {cls.kind: cls for cls in (OpenLoop, *PROFILES)}  # type: ignore[attr-defined]

__all__ = [
    "KINDS", "ArrivalSchedule", "Arrivals", "OpenLoop", "Span", "bursts", "constant", "gamma", "poisson",
    "ramp", "sine", "spike", "steps",
]  # fmt: skip
