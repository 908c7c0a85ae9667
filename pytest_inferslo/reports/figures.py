"""The figures of a run that are worth showing whatever its policy promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_inferslo.core.summary import Summary
from pytest_inferslo.reports.wording import quantity

_PERCENTILES = (
    ("ttft", 0.5),
    ("ttft", 0.99),
    ("service_ttft", 0.99),
    ("tpot", 0.95),
    ("icl", 0.99),
    ("e2e", 0.5),
    ("e2e", 0.99),
)
_READINGS = (
    ("server_cpu", "mean"),
    ("server_memory", "peak"),
    ("gpu_utilization", "mean"),
    ("gpu_memory", "peak"),
    ("gpu_power", "mean"),
)


def values(summary: Summary, record: Mapping[str, Any]) -> dict[str, float]:
    """Name ("ttft p99") -> value in the metric's base unit, in order; what was not measured is left out."""
    found: dict[str, float | None] = {}
    for metric, p in _PERCENTILES:
        if summary.absent(metric) is None:
            found[f"{metric} p{p * 100:g}"] = summary.distribution(metric).percentile(p)
    found["error_rate"] = summary.ratio("error_rate").value
    found["throughput"] = summary.total("throughput")
    tokens = found["output_tokens_per_second"] = summary.total("output_tokens_per_second")
    gpus = len(record.get("gpus") or ())
    if tokens is not None and gpus:
        found["output_tokens_per_second_per_gpu"] = tokens / gpus
    for metric, statistic in _READINGS:
        if summary.absent(metric) is None:
            found[f"{metric} {statistic}"] = summary.reading(metric, statistic)
    if summary.absent("server_cpu_increase") is None:
        found["server_cpu_increase"] = summary.total("server_cpu_increase")
    return {name: value for name, value in found.items() if value is not None}


def figures(summary: Summary, record: Mapping[str, Any]) -> dict[str, str]:
    """The same as text for people."""
    return {name: quantity(name.split()[0], value) for name, value in values(summary, record).items()}
