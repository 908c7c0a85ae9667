"""Latency distributions as files that HdrHistogram's own tools read.

`NAME.hgrm` is the percentile table that HdrHistogram's plotter draws, in ms. `NAME.hlog` is a histogram log
(format 1.2) with one interval, the measured window; its values are ns, which is what its readers scale from.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pytest_inferslo.core.distribution import Distribution
from pytest_inferslo.core.histogram import LAYOUT
from pytest_inferslo.core.metrics import METRICS, Dimension, Source
from pytest_inferslo.core.summary import Summary

_NS_PER_MS = 1_000_000


def histogram_files(summary: Summary, record: Mapping[str, Any]) -> dict[str, str]:
    """File name -> text, for every time metric of the whole run that has a value.

    Failures have no place in either format: their number stands in a comment of both.
    """
    files = {}
    for metric in METRICS.values():
        if metric.dimension is not Dimension.TIME or metric.source not in (Source.SAMPLE, Source.GAP):
            continue
        if summary.absent(metric.name) is not None:
            continue
        found = summary.distribution(metric.name)
        if found.count:
            files[f"{metric.name}.hgrm"] = percentile_table(found)
            files[f"{metric.name}.hlog"] = histogram_log(found, record)
    return files


def percentile_table(found: Distribution) -> str:
    """The .hgrm text of a distribution: percentiles against values in ms.

    Written here and not by hdrh, which walks 33,000 buckets one by one for it: a run has ten such tables.
    """
    counts = found.histogram.counts
    used = np.flatnonzero(counts)
    reached = np.cumsum(counts[used])
    total = int(reached[-1])
    lines = [
        f"#[{_header(found, 'ms')}]",
        f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} 1/(1-Percentile)",
        "",
    ]
    for level in _levels():
        position = min(int(np.searchsorted(reached, level * total)), len(used) - 1)
        value = LAYOUT.bounds(int(used[position]))[1] / _NS_PER_MS
        lines.append(f"{value:12.3f} {level:2.12f} {reached[position]:10d} {1 / (1 - level):14.2f}")
        if reached[position] == total:
            break
    lines.append(f"{value:12.3f} {1:2.12f} {total:10d}")
    middles = (LAYOUT.lowest(used) + LAYOUT.lowest(used + 1) - 1) / 2
    deviation = float(
        np.sqrt(np.average((middles - np.average(middles, weights=counts[used])) ** 2, weights=counts[used]))
    )
    mean = (found.mean or 0.0) / _NS_PER_MS
    lines.append(f"#[Mean    = {mean:12.3f}, StdDeviation   = {deviation / _NS_PER_MS:12.3f}]")
    lines.append(f"#[Max     = {value:12.3f}, TotalCount     = {total:12.3f}]")
    lines.append(f"#[Buckets = {32:12d}, SubBuckets     = {2048:12d}]")
    return "\n".join(lines) + "\n"


def _levels(ticks_per_half_distance: int = 5) -> Iterator[float]:
    """HdrHistogram's percentile levels as fractions: so many steps to halve the distance to 1, and again."""
    level = 0.0
    while level < 1:
        yield level
        halvings = math.floor(math.log2(1 / (1 - level))) + 1
        level += 1 / (ticks_per_half_distance * 2**halvings)


def histogram_log(found: Distribution, record: Mapping[str, Any]) -> str:
    """The .hlog text of a distribution: one interval, at its absolute time."""
    from hdrh.log import HistogramLogWriter

    epoch = (record.get("epoch") or {}).get("unix_ns", 0)
    start, end = ((epoch + record["window"][edge]) / 1e9 for edge in ("start", "end"))
    out = io.StringIO()
    writer = HistogramLogWriter(out)
    writer.output_comment(f"[{_header(found, 'ns')}]")
    writer.output_log_format_version()
    writer.output_comment(f"[StartTime: {start:.3f} (seconds since epoch)]")
    writer.output_legend()
    writer.output_interval_histogram(found.histogram.to_hdrh(), start, end, _NS_PER_MS)
    return out.getvalue()


def _header(found: Distribution, unit: str) -> str:
    outside = found.histogram.negatives + found.histogram.overflow
    return (
        f"{found.metric} in {unit}; {found.count} values, and not among them: {found.failures} failures, "
        f"{outside} outside of the histogram's range"
    )
