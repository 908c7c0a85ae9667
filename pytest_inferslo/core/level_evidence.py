"""Evidence on a level: means of requests and readings, rates, totals, and comparisons with another level."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pytest_inferslo.core import means, sequential, statistics
from pytest_inferslo.core.cost import Prices, cost_per_million_tokens
from pytest_inferslo.core.distribution import ALL, Floats, Scope
from pytest_inferslo.core.evidence import Evidence, Rules, not_measured
from pytest_inferslo.core.metrics import Dimension
from pytest_inferslo.core.objective import Objective, compare
from pytest_inferslo.core.pool import Pool
from pytest_inferslo.core.series import SUMMED
from pytest_inferslo.core.verdict import Status

#: Readings under which a peak or a mean says nothing.
FEWEST_READINGS = 10
_BOUNDED_RATES = ("throughput", "goodput_rate", "output_tokens_per_second")


def decided(objective: Objective, low: float, high: float, limit: float) -> Status:
    """PASS when the whole interval keeps the limit, FAIL when none of it does."""
    kept = [compare(edge, objective.op, limit) for edge in (low, high)]
    return Status.PASS if all(kept) else Status.INCONCLUSIVE if any(kept) else Status.FAIL


def mean_evidence(objective: Objective, pool: Pool, scope: Scope, limit: float, rules: Rules) -> Evidence:
    """The mean of a per-request metric over the successful requests."""
    found = pool.distributions(objective.metric.name, scope)
    counts = np.concatenate([d.slot_count for d in found])
    totals = np.concatenate([d.slot_total for d in found])
    failures = sum(d.failures for d in found)
    n = int(counts.sum())
    if not n:
        return Evidence(Status.FAIL, math.inf if failures else None, failures, reason="no successful sample")
    if failures and not rules.errors_limited:
        reason = f"{failures} requests failed, and no objective on error_rate says how many may"
        return Evidence(Status.FAIL, math.inf, n + failures, reason=reason)
    return _judged_mean(objective, totals, counts, limit, rules, n)


def rate_evidence(objective: Objective, pool: Pool, scope: Scope, limit: float, rules: Rules) -> Evidence:
    """Events per second of the scope, from how many fell into each second."""
    per_gpu = objective.metric.name.endswith("_per_gpu")
    name = objective.metric.name.removesuffix("_per_gpu")
    gpus = len(pool.record.get("gpus") or ()) if per_gpu else 1
    if not gpus:
        return not_measured("no GPU was seen")
    events, lengths = pool.per_second(name, scope)
    return _judged_mean(objective, events / gpus, lengths, limit, rules, int(lengths.size))


def _judged_mean(
    objective: Objective, totals: Floats, counts: Floats, limit: float, rules: Rules, n: int
) -> Evidence:
    observed = float(totals.sum() / counts.sum())
    bounds = mean_bounds(totals, counts, rules)
    if bounds is None:
        reason = (
            f"{len(totals)}s are too short to see how the mean moves: needs {_more_seconds(totals)}s more"
        )
        return Evidence(Status.INCONCLUSIVE, observed, n, reason=reason)
    low, high = bounds
    status = decided(objective, low, high, limit)
    reason = ""
    if status is Status.INCONCLUSIVE:
        reach = max(high - observed, observed - low)
        off = abs(limit - observed) / reach if math.isfinite(reach) else 0.0
        more = f"about {len(totals) * (off**-2 - 1):,.0f}s more" if off > 0.01 else "more than is practical"
        reason = f"the limit lies within the interval: needs {more}"
    return Evidence(status, observed, n, float(len(totals)), (low, high), reason)


def mean_bounds(totals: Floats, counts: Floats, rules: Rules) -> tuple[float, float] | None:
    """Nothing that has a mean here (times, counts, rates, readings) is ever under 0."""
    bounds = means.mean_bounds(totals, counts, rules.confidence)
    if bounds is None:
        return None
    low, high, blocks = bounds
    wider = 1.0
    if rules.anytime:
        wider = sequential.mean_reach(blocks, rules.confidence) / statistics.student(blocks, rules.confidence)
    mean = totals.sum() / counts.sum()
    return max(0.0, mean - (mean - low) * wider), mean + (high - mean) * wider


def _more_seconds(totals: Floats) -> int:
    return max(1, 10 * means.FEWEST_BLOCKS - len(totals))


def reading_evidence(
    objective: Objective, pool: Pool, scope: Scope, limit: float, rules: Rules, *, idle: bool = False
) -> Evidence:
    """Of the telemetry. Sources of a summed metric add up; of others each must keep the limit."""
    totals = _gpu_totals(pool.record) if objective.limit.dimension is Dimension.SHARE else None
    if objective.metric.name != "gpu_memory":
        totals = None
    runs = pool.readings(objective.metric.name, scope, totals, idle=idle)
    if not all(runs):
        return not_measured("no reading came")
    if objective.metric.name in SUMMED:
        runs = [[_summed(sources)] for sources in runs]
    each = [_one_source(objective, values, limit, rules) for sources in runs for values in sources]
    return _worst(objective, each)


def _gpu_totals(record: Mapping[str, Any]) -> dict[str, float]:
    gpus = record.get("gpus") or ()
    return {gpu["uuid"]: float(gpu["memory_total"]) for gpu in gpus if gpu.get("memory_total")}


def _summed(sources: list[Floats]) -> Floats:
    shortest = min(map(len, sources))
    return np.sum([values[:shortest] for values in sources], axis=0)


def _one_source(objective: Objective, values: Floats, limit: float, rules: Rules) -> Evidence:
    n, kind = len(values), objective.statistic.kind
    observed = _statistic(objective, values)
    if n < FEWEST_READINGS:
        return Evidence(
            Status.INCONCLUSIVE, observed, n, reason=f"{n} readings are too few: needs {FEWEST_READINGS}"
        )
    if kind in ("max", "min"):
        status = Status.PASS if compare(observed, objective.op, limit) else Status.FAIL
        return Evidence(status, observed, n)
    if kind == "percentile":
        return _reading_percentile(objective, values, observed, limit, rules)
    return _judged_mean(objective, values, np.ones(n), limit, rules, n)


def _statistic(objective: Objective, values: Floats) -> float:
    kind = objective.statistic.kind
    if kind == "percentile":
        return float(np.sort(values)[max(1, math.ceil(objective.statistic.share * len(values))) - 1])
    return float(values.mean() if kind == "mean" else values.max() if kind == "max" else values.min())


def _reading_percentile(
    objective: Objective, values: Floats, observed: float, limit: float, rules: Rules
) -> Evidence:
    """Successive readings are very much alike, so they are worth their blocks."""
    keeps = np.array([compare(float(value), objective.op, limit) for value in values])
    share = float(objective.statistic.share if objective.upper else 1 - objective.statistic.share)
    ones = np.ones(len(values))
    levels = statistics.mean_clustering(values, ones, float(values.var()))
    worth = min(
        levels.discount(rules.confidence),
        statistics.share_clustering(~keeps, ones).discount(rules.confidence),
    )
    good, bad = keeps.sum() * worth, (~keeps).sum() * worth
    status = Status.INCONCLUSIVE
    if rules.proves(good, bad, share):
        status = Status.PASS
    elif rules.refutes(good, bad, share):
        status = Status.FAIL
    n = len(values)
    low, high = statistics.quantile_ranks(n, n * worth, float(objective.statistic.share), rules.confidence)
    ranked = np.sort(values)
    interval = (
        0.0 if low is None else float(ranked[low - 1]),
        math.inf if high is None else float(ranked[high - 1]),
    )
    reason = f"{n} readings are worth {n * worth:.0f} independent ones: too few to decide"
    return Evidence(status, observed, n, n * worth, interval, reason if status is Status.INCONCLUSIVE else "")


def _worst(objective: Objective, each: list[Evidence]) -> Evidence:
    """The one that decides: the worst status, then the worst value."""
    order = {Status.FAIL: 0, Status.INCONCLUSIVE: 1, Status.PASS: 2}
    sign = -1.0 if objective.upper else 1.0
    return min(each, key=lambda e: (order[e.status], sign * (e.observed if e.observed is not None else 0.0)))


def total_evidence(
    objective: Objective, pool: Pool, scope: Scope, limit: float, prices: Prices | None
) -> Evidence:
    """Compared as it is: nothing of it can be resampled. Of several runs the worst counts."""
    name = objective.metric.name
    if name == "cost_per_million_tokens":
        values, cause = _costs(pool, prices)
    else:
        values, cause = pool.totals(name, scope), "no reading came"
    if len(values) < len(pool.summaries):
        return not_measured(cause)
    observed = max(values) if objective.upper else min(values)
    status = Status.PASS if compare(observed, objective.op, limit) else Status.FAIL
    return Evidence(status, observed, len(values))


def _costs(pool: Pool, prices: Prices | None) -> tuple[list[float], str]:
    if prices is None:
        return [], "no prices are given; add 'prices' to the policy"
    tokens = pool.tokens()
    if tokens.untold:
        return [], f"the server sent no token counts for {tokens.untold} of {tokens.requests} answers"
    cost = cost_per_million_tokens(tokens, pool.seconds(ALL), prices)
    return ([], "no tokens were served") if cost is None else ([cost] * len(pool.summaries), "")


def recovery_evidence(objective: Objective, pool: Pool, limit: float, ceiling: float | None) -> Evidence:
    """From a phase's end until ttft p99 of 1 s stays under `ceiling` again; the worst of several runs."""
    assert objective.after is not None
    if ceiling is None:
        return not_measured("recovery is to a ceiling on ttft p99, and the policy has none")
    times = [summary.recovery_time(objective.after, ceiling) for summary in pool.summaries]
    if any(time is None for time in times):
        return not_measured(f"no request was sent after phase {objective.after!r}")
    observed = max(time for time in times if time is not None)
    status = Status.PASS if compare(observed, objective.op, limit) else Status.FAIL
    reason = "it never came back" if math.isinf(observed) else ""
    return Evidence(status, observed, len(times), reason=reason)
