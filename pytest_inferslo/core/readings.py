"""What the telemetry saw: one reading is one number, at one instant, of one source."""

from __future__ import annotations

from dataclasses import dataclass

#: Phases of a run, in order; every reading belongs to one.
IDLE, LOAD, DRAIN = "idle", "load", "drain"


@dataclass(frozen=True)
class Reading:
    """`time` in ns since the run's epoch (negative while idle, before the load); `value` in base units

    (share as 0..1 of what is allowed, bytes, watts, joules, cores); `metric` as in core.metrics;
    `source` tells apart what is summed or compared later: a GPU's UUID, an endpoint's name, `server`, `loadgen`.
    A value that could not be read is no reading: absence is recorded once, in the run record, with its cause.
    """

    time: int
    phase: str
    metric: str
    source: str
    value: float
