"""What most likely broke a promise: the strongest traces in the record, strongest first.

These are hints, not verdicts: each names the figures it rests on, and none is given without them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from pytest_inferslo.core.guards import cut_short
from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import Finding, Status, Verdict
from pytest_inferslo.reports.wording import count, duration, outcome_name, percent, quantity

_MOST = 4

#: The part of a metric that the server answers for alone, from the send on.
_FROM_SEND = {"ttft": "service_ttft", "ttfo": "service_ttft", "e2e": "service_e2e"}
_OF_FAILURES = frozenset(("error_rate", "goodput", "goodput_rate"))
_SATURATED = 0.9
_GROWTH = 2.0
_SLOTS_FOR_GROWTH = 6


def likely_causes(verdict: Verdict, record: Mapping[str, Any], summary: Summary | None) -> list[str]:
    """One sentence each; empty when nothing was breached or nothing stands out."""
    breached = [finding for finding in verdict.findings if finding.status is Status.FAIL]
    if not breached:
        return []
    causes = list(_failures(breached, record, summary))
    if summary is not None:
        causes += _waiting(breached, summary)
        causes += _saturation(record, summary)
        causes += _growth(breached, summary)
        causes += _outliers(summary)
    return list(dict.fromkeys(causes))[:_MOST]


def ranked_outcomes(record: Mapping[str, Any], summary: Summary | None = None) -> list[tuple[str, int, str]]:
    """(outcome, requests, an example) of everything but success, the most frequent first.

    Of the measured window where there is a summary, else of the whole run.
    """
    told = record.get("outcomes") or {}
    if summary is not None:
        counted = {outcome.name: number for outcome, number in summary.counts().outcomes.items()}
    else:
        counted = {name: entry["count"] for name, entry in told.items()}
    counted.pop(Outcome.SUCCESS.name, None)
    rows = [(name, n, (told.get(name) or {}).get("example") or "") for name, n in counted.items() if n]
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def _failures(
    breached: Iterable[Finding], record: Mapping[str, Any], summary: Summary | None
) -> Iterator[str]:
    if not any(f.metric in _OF_FAILURES or f.observed == math.inf for f in breached):
        return
    rows = ranked_outcomes(record, summary)
    if cut_short(record):  # what was left of the load then is nobody's failure
        rows = [row for row in rows if row[0] not in (Outcome.NEVER_SENT.name, Outcome.UNFINISHED.name)]
    if not rows:
        return
    intended = summary.counts().intended if summary else record["counts"]["intended"]
    failed = sum(number for _, number, _ in rows)
    name, number, example = rows[0]
    said = f": {example}" if example else ""
    yield (
        f"{count(failed)} of {count(intended)} requests did not succeed, most often {outcome_name(name)} "
        f"({count(number)}){said}"
    )


def _waiting(breached: Iterable[Finding], summary: Summary) -> Iterator[str]:
    """A latency from the schedule that is mostly spent before the request leaves."""
    for finding in breached:
        served_as = _FROM_SEND.get(finding.metric)
        if served_as is None:
            continue
        whole, served = (_statistic(summary, m, finding.statistic) for m in (finding.metric, served_as))
        if whole is None or served is None or not math.isfinite(whole) or served > 0.7 * whole:
            continue
        yield (
            f"requests waited before they were sent: {finding.metric} {finding.statistic} is "
            f"{duration(whole)}, from the send it is {duration(served)} ({served_as})"
        )
        return


def _saturation(record: Mapping[str, Any], summary: Summary) -> Iterator[str]:
    cpu = _reading(summary, "server_cpu", "mean")
    if cpu is not None and cpu >= _SATURATED:
        cores = _reading(summary, "server_cpu_cores", "mean")
        of = f" ({cores:.1f} cores)" if cores is not None else ""
        yield f"the server has no CPU left: {percent(cpu)} of what it may use, on average{of}"
    allowed = (record.get("host") or {}).get("memory_allowed")
    memory = _reading(summary, "server_memory", "peak")
    if memory is not None and allowed and memory >= _SATURATED * allowed:
        peak, limit = quantity("server_memory", memory), quantity("server_memory", allowed)
        yield f"the server's memory is nearly used up: {peak} at its peak, of {limit}"
    gpu = _reading(summary, "gpu_utilization", "mean")
    if gpu is not None and gpu >= 0.95:
        yield f"the GPU is busy without a pause: utilization {percent(gpu)} on average"
    throttled = _reading(summary, "gpu_throttled", "mean")
    if throttled:
        yield f"the GPU was slowed down (power or heat) in {percent(throttled)} of the readings"


def _growth(breached: Iterable[Finding], summary: Summary) -> Iterator[str]:
    """A mean that rises from the first to the last third of the window.

    Work arrives faster than it is done.
    """
    for finding in breached:
        try:
            found = summary.distribution(finding.metric)
        except LookupError:
            continue
        counts, totals = found.slot_count, found.slot_total
        third = len(counts) // 3
        if len(counts) < _SLOTS_FOR_GROWTH or not counts[:third].any() or not counts[-third:].any():
            continue
        first = float(np.sum(totals[:third]) / np.sum(counts[:third]))
        last = float(np.sum(totals[-third:]) / np.sum(counts[-third:]))
        if first > 0 and last >= _GROWTH * first:
            began, ended = quantity(finding.metric, first), quantity(finding.metric, last)
            yield (
                f"a queue built up: {finding.metric} rose from {began} (mean of the window's first third) to "
                f"{ended} (last third): more load than the server can take"
            )
            return


def _outliers(summary: Summary) -> Iterator[str]:
    """One part of the traffic that is much slower than all others."""
    for kind in ("endpoint", "adapter", "stream"):
        parts = [
            (part.e2e.percentile(0.99) or 0.0, part.name)
            for part in summary.breakdown(kind)
            if part.e2e.count + part.e2e.failures
        ]
        if len(parts) < 2:
            continue
        (next_worst, _), (worst, name) = sorted(parts)[-2:]
        if math.isfinite(next_worst) and worst > 2 * next_worst > 0:
            what = duration(worst) if math.isfinite(worst) else "beyond all limits (failures)"
            yield f"{kind} {name} stands out: e2e p99 {what}, the next {duration(next_worst)}"


def _statistic(summary: Summary, metric: str, statistic: str) -> float | None:
    try:
        found = summary.distribution(metric)
    except LookupError:
        return None
    if statistic == "mean":
        return found.mean
    if statistic == "max":
        return found.maximum
    if statistic.startswith("p"):
        return found.percentile(float(statistic[1:]) / 100)
    return None


def _reading(summary: Summary, metric: str, statistic: str) -> float | None:
    return None if summary.absent(metric) is not None else summary.reading(metric, statistic)
