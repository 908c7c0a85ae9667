"""Whether a simulator kept its own pace: what its page of metrics says before a load, and after it.

A simulator on a machine that is too slow for its profile answers later than the server it stands for would.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_BUCKET = re.compile(r'^inferslo_simulated_step_lag_seconds_bucket\{.*?le="([^"]+)".*\} (\S+)$', re.MULTILINE)
_RESYNCS = re.compile(r"^inferslo_simulated_resyncs\{.*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class SimulatedPace:
    """Since the simulator started: steps that ended at most so many seconds late, and jumps of its clock."""

    late_by: Mapping[float, float]
    resyncs: float


def read_pace(page: str) -> SimulatedPace | None:
    """None for a page that is not a simulator's."""
    buckets = {float(bound): float(count) for bound, count in _BUCKET.findall(page)}
    resyncs = _RESYNCS.search(page)
    return SimulatedPace(buckets, float(resyncs[1])) if buckets and resyncs else None


def between(before: Mapping[str, SimulatedPace], after: Mapping[str, SimulatedPace]) -> dict[str, Any] | None:
    """The `simulator` part of a run record: `steps`, their `lag_p99_ns` (an upper bound, at most 10 s) and `resyncs`;
    of several simulators the worst. None when not every one could be read both times."""
    if not before or before.keys() != after.keys():
        return None
    found = [_of_one(before[name], after[name]) for name in before]
    return {key: max(one[key] for one in found) for key in ("steps", "lag_p99_ns", "resyncs")}


def _of_one(before: SimulatedPace, after: SimulatedPace) -> dict[str, int]:
    counts = {bound: after.late_by[bound] - before.late_by.get(bound, 0.0) for bound in after.late_by}
    steps = max(counts.values())
    return {
        "steps": int(steps),
        "lag_p99_ns": round(_bound(counts, 0.99 * steps) * 1e9) if steps else 0,
        "resyncs": int(after.resyncs - before.resyncs),
    }


def _bound(counts: Mapping[float, float], rank: float) -> float:
    finite: Iterable[float] = sorted(bound for bound in counts if bound != float("inf"))
    return next((bound for bound in finite if counts[bound] >= rank), 10.0)
