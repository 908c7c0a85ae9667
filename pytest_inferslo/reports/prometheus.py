"""Verdicts in Prometheus' text exposition format 0.0.4, for the Pushgateway or a textfile collector.

Names and units follow Prometheus: seconds and bytes, shares as 0..1. What was not measured has no series
(absent is not zero); a percentile that failures reach is +Inf.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pytest_inferslo.core.metrics import METRICS, Dimension
from pytest_inferslo.core.verdict import Finding, Status, Verdict

_UNITS = {
    Dimension.TIME: "seconds",
    Dimension.SHARE: "ratio",
    Dimension.COUNT: "count",
    Dimension.RATE: "per_second",
    Dimension.BYTES: "bytes",
    Dimension.MONEY: "currency",
    Dimension.POWER: "watts",
    Dimension.ENERGY: "joules",
    Dimension.CORES: "cores",
}

_Sample = tuple[str, dict[str, str], float]

_FAMILIES = {
    "inferslo_verdict": "1 for the verdict's status, 0 for the others.",
    "inferslo_objective_status": "1 for the objective's status, 0 for the others.",
    "inferslo_objective_observed": "What was observed, in the unit of the label.",
    "inferslo_objective_limit": "What was promised, in the unit of the label.",
    "inferslo_objective_samples": "Samples that the objective was judged on.",
    "inferslo_guard_ok": "1 when the validity guard holds, else 0.",
    "inferslo_requests": "Requests of the run by how they ended.",
    "inferslo_run_timestamp_seconds": "When the load began, in seconds since the Unix epoch.",
}


def render_prometheus(runs: Sequence[tuple[Verdict, Mapping[str, Any]]]) -> str:
    """All families of all runs, each family once, as the format demands. Every one is a gauge."""
    samples = [sample for verdict, record in runs for sample in _samples(verdict, record)]
    lines = []
    for family, meaning in _FAMILIES.items():
        mine = dict.fromkeys(_line(*sample) for sample in samples if sample[0] == family)
        if mine:
            lines += [f"# HELP {family} {meaning}", f"# TYPE {family} gauge", *mine]
    return "\n".join(lines) + "\n" if lines else ""


def _samples(verdict: Verdict, record: Mapping[str, Any]) -> Iterator[_Sample]:
    labels = {
        "policy": verdict.policy,
        "scenario": str((record.get("scenario") or {}).get("name", "")),
        "backend": str((record.get("backend") or {}).get("name", "")),
    }
    yield from _states("inferslo_verdict", labels, verdict.status)
    for finding in verdict.findings:
        yield from _objective(labels, finding)
    for guard in verdict.guards:
        yield "inferslo_guard_ok", {**labels, "guard": guard.name}, float(guard.ok)
    for name, entry in (record.get("outcomes") or {}).items():
        yield "inferslo_requests", {**labels, "outcome": name.lower()}, float(entry["count"])
    if record.get("epoch"):
        yield "inferslo_run_timestamp_seconds", labels, record["epoch"]["unix_ns"] / 1e9


def _objective(run: dict[str, str], finding: Finding) -> Iterator[_Sample]:
    dimension = METRICS[finding.metric].dimension
    labels = {
        **run,
        "objective": finding.objective,
        "metric": finding.metric,
        "statistic": finding.statistic,
        "scope": finding.scope,
    }
    yield from _states("inferslo_objective_status", labels, finding.status)
    yield "inferslo_objective_samples", labels, float(finding.samples)
    labels = {**labels, "unit": _UNITS[dimension]}
    scale = 1e-9 if dimension is Dimension.TIME else 1.0
    if finding.observed is not None:
        yield "inferslo_objective_observed", labels, finding.observed * scale
    if finding.limit is not None:
        yield "inferslo_objective_limit", labels, finding.limit * scale


def _states(family: str, labels: dict[str, str], current: Status) -> Iterable[_Sample]:
    return [(family, {**labels, "status": status.value}, float(status is current)) for status in Status]


def _line(family: str, labels: dict[str, str], value: float) -> str:
    inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    return f"{family}{{{inside}}} {_number(value)}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
