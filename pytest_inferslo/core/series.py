"""Readings of the telemetry as time series, and the one number that an objective asks of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from pytest_inferslo.core.distribution import Floats
from pytest_inferslo.core.histogram import Ints, ceiling_rank
from pytest_inferslo.core.readings import Reading

#: Metrics whose sources add up; of all others the worst source counts.
SUMMED = frozenset({"gpu_power", "gpu_energy", "server_memory", "server_cpu_cores"})


@dataclass(frozen=True)
class Series:
    """Readings of one source in time order: `times` in ns since the epoch, `values` in base units."""

    source: str
    times: Ints
    values: Floats


@dataclass
class SeriesStore:
    """All readings of a run, by metric, source and phase."""

    _points: dict[tuple[str, str, str], list[tuple[int, float]]] = field(default_factory=dict)

    def add(self, readings: Iterable[Reading]) -> None:
        for reading in readings:
            key = (reading.metric, reading.source, reading.phase)
            self._points.setdefault(key, []).append((reading.time, reading.value))

    def of(self, metric: str, phase: str | None = None) -> list[Series]:
        """One series per source, in the order of their names; `phase` None takes every phase."""
        merged: dict[str, list[tuple[int, float]]] = {}
        for (name, source, when), points in self._points.items():
            if name == metric and phase in (None, when):
                merged.setdefault(source, []).extend(points)
        return [_series(source, sorted(points)) for source, points in sorted(merged.items())]


def _series(source: str, points: list[tuple[int, float]]) -> Series:
    return Series(
        source,
        np.array([time for time, _ in points], np.int64),
        np.array([value for _, value in points], np.float64),
    )


def within(series: Iterable[Series], stretches: Iterable[tuple[int, int]]) -> list[Series]:
    """Only the readings inside the stretches (start inclusive, end exclusive); sources without any are
    left out.
    """
    stretches = list(stretches)
    cut = []
    for one in series:
        inside = np.zeros(len(one.times), bool)
        for start, end in stretches:
            inside |= (one.times >= start) & (one.times < end)
        if inside.any():
            cut.append(Series(one.source, one.times[inside], one.values[inside]))
    return cut


def combined(metric: str, series: list[Series], statistic: str | float) -> float | None:
    """`mean`, `peak`, `min` or a percentile (fraction, ceiling rank) over the sources; None without readings.

    Sources of a summed metric are added up at each instant, each with its latest reading; of any other metric
    the source with the largest result counts.
    """
    if not series:
        return None
    if metric in SUMMED and len(series) > 1:
        series = [_summed(series)]
    return max(_statistic(one.values, statistic) for one in series)


def relative(series: Iterable[Series], totals: Mapping[str, float]) -> list[Series]:
    """Each source's readings divided by that source's own total; sources without a total are left out."""
    return [
        Series(one.source, one.times, one.values / totals[one.source])
        for one in series
        if totals.get(one.source)
    ]


def _summed(series: list[Series]) -> Series:
    times = np.unique(np.concatenate([one.times for one in series]))
    start = max(int(one.times[0]) for one in series)  # before it some source has no reading yet
    times = times[times >= start]
    total = np.zeros(len(times))
    for one in series:
        total += one.values[np.searchsorted(one.times, times, side="right") - 1]
    return Series("sum", times, total)


def _statistic(values: Floats, statistic: str | float) -> float:
    if statistic == "mean":
        return float(values.mean())
    if statistic in ("peak", "max"):
        return float(values.max())
    if statistic == "min":
        return float(values.min())
    if isinstance(statistic, str):
        raise ValueError(f"readings have mean, peak, min and percentiles, not {statistic!r}")
    return float(np.sort(values)[ceiling_rank(statistic, len(values)) - 1])
