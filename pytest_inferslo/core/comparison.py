"""From an objective to its evidence: against a fixed limit, a baseline, or another part of the same run."""

from __future__ import annotations

import math
from dataclasses import replace

from pytest_inferslo.core.baseline import Baseline, Level
from pytest_inferslo.core.cost import Prices
from pytest_inferslo.core.distribution import Scope
from pytest_inferslo.core.evidence import Evidence, Rules, not_measured
from pytest_inferslo.core.level_evidence import (
    decided,
    mean_evidence,
    rate_evidence,
    reading_evidence,
    recovery_evidence,
    total_evidence,
)
from pytest_inferslo.core.metrics import Source
from pytest_inferslo.core.objective import Objective, compare
from pytest_inferslo.core.pool import Pool
from pytest_inferslo.core.questions import level_name, limits, reference_scope
from pytest_inferslo.core.share_evidence import extreme_level, percentile_level, share_evidence
from pytest_inferslo.core.verdict import Status

_RATES = frozenset(
    ("throughput", "goodput_rate", "output_tokens_per_second", "output_tokens_per_second_per_gpu")
)


def evidence_of(
    objective: Objective,
    pool: Pool,
    scope: Scope,
    rules: Rules,
    baseline: Baseline | None,
    prices: Prices | None,
    recovery_ceiling: float | None,
) -> Evidence:
    """Of one objective in one scope. `recovery_ceiling` is what ttft p99 must come back under."""
    cause = pool.absent(_measured_as(objective), scope)
    if cause is not None and not _only_failures(objective, pool, scope):
        return not_measured(cause)
    if objective.after is not None:
        return recovery_evidence(objective, pool, objective.limit.offset, recovery_ceiling)
    if objective.limit.reference is None:
        return _at(objective, pool, scope, objective.limit.offset, rules, prices)
    if objective.limit.reference == "baseline":
        return _against_baseline(objective, pool, scope, rules, baseline, prices)
    return _against_scope(objective, pool, scope, rules, prices)


def _measured_as(objective: Objective) -> str:
    """The metric whose absence would be the objective's own."""
    name = objective.metric.name
    if name in ("recovery_time", "cost_per_million_tokens"):
        return "ttft" if name == "recovery_time" else "output_tokens_per_second"
    return name.removesuffix("_per_gpu")


def _only_failures(objective: Objective, pool: Pool, scope: Scope) -> bool:
    """Whether the metric is absent because no request succeeded: that is a failure, told as one."""
    if objective.metric.source not in (Source.SAMPLE, Source.GAP):
        return False
    if any(summary.frame.missing(scope) for summary in pool.summaries):
        return False
    counts = pool.counts(scope)
    return sum(c.intended for c in counts) > 0 and sum(c.succeeded for c in counts) == 0


def _at(
    objective: Objective, pool: Pool, scope: Scope, limit: float, rules: Rules, prices: Prices | None
) -> Evidence:
    """Against a number."""
    source, kind = objective.metric.source, objective.statistic.kind
    if source is Source.READING:
        return reading_evidence(objective, pool, scope, limit, rules)
    if source is Source.TOTAL:
        if objective.metric.name in _RATES:
            return rate_evidence(objective, pool, scope, limit, rules)
        return total_evidence(objective, pool, scope, limit, prices)
    if kind == "mean":
        return mean_evidence(objective, pool, scope, limit, rules)
    return share_evidence(objective, pool, scope, limit, rules)


def level_of(
    objective: Objective, pool: Pool, scope: Scope, rules: Rules, prices: Prices | None
) -> Level | None:
    """What an objective's statistic was in a scope, with its bounds; None where it was not measured."""
    if pool.absent(_measured_as(objective), scope) is not None:
        return None
    if objective.statistic.kind == "percentile" and objective.metric.source in (Source.SAMPLE, Source.GAP):
        return percentile_level(objective, pool, scope, rules)
    if objective.statistic.kind in ("max", "min") and objective.metric.source in (Source.SAMPLE, Source.GAP):
        return extreme_level(objective, pool, scope, rules)
    return _level(_at(replace(objective, window_ns=0), pool, scope, 0.5, rules, prices))


def _level(seen: Evidence) -> Level | None:
    """What was measured, with open bounds where there was too little of it to see how it moves."""
    if seen.observed is None:
        return None
    open_ended = seen.status is Status.INCONCLUSIVE and seen.interval is None
    low, high = (0.0, math.inf) if open_ended else seen.interval or (seen.observed, seen.observed)
    return Level(seen.observed, low, high, seen.samples)


def _against_baseline(
    objective: Objective,
    pool: Pool,
    scope: Scope,
    rules: Rules,
    baseline: Baseline | None,
    prices: Prices | None,
) -> Evidence:
    """Proved against the strict edge of the baseline's interval, refuted against the lenient one.

    Both the baseline and this run are estimates, so each gets half of the doubt that the confidence leaves.
    """
    if baseline is None and all(record.get("records_baseline") for record in pool.records):
        reason = "this run records the baseline: there was none to compare with"
        return Evidence(Status.INCONCLUSIVE, None, 0, reason=reason)
    if baseline is None:
        return not_measured("no baseline is given; name a saved run with --inferslo-baseline")
    level = baseline.levels.get(level_name(objective, scope))
    if level is None:
        return not_measured(f"the baseline {baseline.run_id} has no {level_name(objective, scope)}")
    strict, lenient = limits(objective, scope, baseline)
    if _allows_everything(objective, strict):
        return not_measured(_too_bad(f"the baseline {baseline.run_id}"))
    halved = rules.stricter(2)
    kept = _at(objective, pool, scope, strict, halved, prices)
    broken = _at(objective, pool, scope, lenient, halved, prices)
    limit = objective.limit.at(level.observed)
    if kept.status is Status.PASS:
        return replace(kept, limit=limit)
    if broken.status is Status.FAIL:
        return replace(broken, limit=limit)
    if level.low <= 0 if objective.upper else not math.isfinite(level.high):
        short = f"the baseline {baseline.run_id} ({level.samples} samples)"
        reason = f"{short} leaves open what it was; record a longer one"
    elif kept.status is Status.FAIL or not kept.reason:
        reason = f"within the doubt of the baseline ({level.samples} samples)"
    else:
        reason = kept.reason
    return replace(kept, status=Status.INCONCLUSIVE, limit=limit, reason=reason)


def _allows_everything(objective: Objective, limit: float) -> bool:
    """Whether no run can break this limit: what it was taken from had failed itself. `limit` is the strict edge."""
    if objective.upper:
        return not math.isfinite(limit) or (objective.metric.source is Source.RATIO and limit >= 1)
    return not limit > 0


def _too_bad(what: str) -> str:
    return f"{what} is itself so bad that the limit taken from it would allow everything"


def _against_scope(
    objective: Objective, pool: Pool, scope: Scope, rules: Rules, prices: Prices | None
) -> Evidence:
    """Interval against interval: the other part of the run is known only once the run is read."""
    halved = rules.stricter(2)
    if objective.limit.reference == "idle":
        other = _level(reading_evidence(objective, pool, scope, 0.5, halved, idle=True))
        if other is None:
            return not_measured("no reading came before the load")
    else:
        there = reference_scope(objective, scope)
        if there == scope:
            return _against_itself(objective, pool, scope, halved, prices)
        other = level_of(objective, pool, there, halved, prices)
        if other is None:
            cause = pool.absent(_measured_as(objective), there) or "it has no value"
            return not_measured(f"nothing to compare with in {there}: {cause}")
    mine = level_of(objective, pool, scope, halved, prices)
    if mine is None:
        return not_measured("it has no value")
    limit = objective.limit
    if _allows_everything(objective, limit.at(other.low if objective.upper else other.high)):
        return not_measured(_too_bad(str(objective.limit.reference_name or "the time before the load")))
    strict, lenient = (other.low, other.high) if objective.upper else (other.high, other.low)
    status = Status.INCONCLUSIVE
    reason = "the intervals of the two overlap too much to tell them apart: needs more requests"
    if decided(objective, mine.low, mine.high, limit.at(strict)) is Status.PASS:
        status, reason = Status.PASS, ""
    elif decided(objective, mine.low, mine.high, limit.at(lenient)) is Status.FAIL:
        status, reason = Status.FAIL, ""
    if not math.isfinite(mine.observed):
        status, reason = Status.FAIL, _FAILURES
    return Evidence(
        status, mine.observed, mine.samples, interval=(mine.low, mine.high), reason=reason,
        limit=limit.at(other.observed),
    )  # fmt: skip


_FAILURES = "failed requests make it infinite"


def _against_itself(
    objective: Objective, pool: Pool, scope: Scope, rules: Rules, prices: Prices | None
) -> Evidence:
    """Of a `*`, the one that all others are compared with: it is as large as itself, however few saw it."""
    mine = level_of(objective, pool, scope, rules, prices)
    if mine is None:
        return not_measured("it has no value")
    if not math.isfinite(mine.observed):
        return Evidence(Status.FAIL, mine.observed, mine.samples, reason=_FAILURES)
    limit = objective.limit.at(mine.observed)
    status = Status.PASS if compare(mine.observed, objective.op, limit) else Status.FAIL
    return Evidence(
        status, mine.observed, mine.samples, interval=(mine.low, mine.high), limit=limit,
        reason="is what the others are compared with",
    )  # fmt: skip
