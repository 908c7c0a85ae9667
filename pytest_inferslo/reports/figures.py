"""The figures of a run that are worth showing whatever its policy promises."""

from __future__ import annotations

from pytest_inferslo.core.summary import Summary
from pytest_inferslo.reports.wording import quantity

_PERCENTILES = (("ttft", 0.5), ("ttft", 0.99), ("tpot", 0.95), ("e2e", 0.99))
_WHOLE = ("error_rate",)
_TOTALS = ("throughput", "output_tokens_per_second")
_READINGS = (
    ("server_cpu", "mean"),
    ("server_memory", "peak"),
    ("gpu_utilization", "mean"),
    ("gpu_memory", "peak"),
)


def figures(summary: Summary) -> dict[str, str]:
    """Name -> text, in order; what was not measured is left out."""
    found: dict[str, float | None] = {}
    for metric, p in _PERCENTILES:
        if summary.absent(metric) is None:
            found[f"{metric} p{p * 100:g}"] = summary.distribution(metric).percentile(p)
    for metric in _WHOLE:
        found[metric] = summary.ratio(metric).value
    for metric in _TOTALS:
        found[metric] = summary.total(metric)
    for metric, statistic in _READINGS:
        if summary.absent(metric) is None:
            found[f"{metric} {statistic}"] = summary.reading(metric, statistic)
    return {name: quantity(name.split()[0], value) for name, value in found.items() if value is not None}
