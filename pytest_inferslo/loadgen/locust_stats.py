"""Locust's own statistics, kept true: one aggregated update a batch instead of one event a request."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.samples import Outcome, Rows

METHOD = "POST"


def add_to_locust(stats: Any, name: str, rows: Rows, examples: dict[int, str]) -> None:
    """Adds samples to `stats` (locust.stats.RequestStats) under `name`.

    A response time is last output - intended start, or for failures their end - intended start, in ms.
    Requests that were never sent are none to Locust.
    """
    rows = rows[rows["outcome"] != Outcome.NEVER_SENT]
    if not len(rows):
        return
    succeeded = rows["outcome"] == Outcome.SUCCESS
    end = np.where(succeeded, rows["last"], rows["end"])
    milliseconds = (end - rows["intended"]) / 1e6
    failures = len(rows) - int(np.count_nonzero(succeeded))
    for entry in (stats.total, stats.get(name, METHOD)):
        _add(entry, milliseconds, failures)
    outcomes, counts = np.unique(rows["outcome"][~succeeded], return_counts=True)
    for outcome, count in zip(outcomes.tolist(), counts.tolist(), strict=True):
        _add_error(stats, name, Outcome(outcome).name, examples.get(outcome, ""), count)


def _add(entry: Any, milliseconds: npt.NDArray[np.float64], failures: int) -> None:
    now = time.time()
    count = len(milliseconds)
    low, high = float(milliseconds.min()), float(milliseconds.max())
    entry.num_requests += count
    entry.num_failures += failures
    entry.total_response_time += float(milliseconds.sum())
    entry.min_response_time = low if entry.min_response_time is None else min(low, entry.min_response_time)
    entry.max_response_time = max(high, entry.max_response_time or 0)
    entry.last_request_timestamp = now
    entry.num_reqs_per_sec[int(now)] += count
    if failures:
        entry.num_fail_per_sec[int(now)] += failures
    buckets, counts = np.unique(_locust_bucket(milliseconds), return_counts=True)
    for bucket, times in zip(buckets.tolist(), counts.tolist(), strict=True):
        entry.response_times[bucket] = entry.response_times.get(bucket, 0) + times


def _locust_bucket(milliseconds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """StatsEntry's rounding: whole ms below 100, then two significant digits."""
    rounded = np.rint(milliseconds)
    for limit, step in ((100, 10), (1000, 100), (10000, 1000)):
        above = milliseconds >= limit
        rounded[above] = np.rint(milliseconds[above] / step) * step
    whole: npt.NDArray[np.int64] = rounded.astype(np.int64)
    return whole


def _add_error(stats: Any, name: str, outcome: str, example: str, count: int) -> None:
    from locust.stats import StatsError

    text = f"{outcome}: {example}" if example else outcome
    key = StatsError.create_key(METHOD, name, text)
    error = stats.errors.get(key)
    if error is None:
        error = stats.errors[key] = StatsError(METHOD, name, text)
    error.occurrences += count
