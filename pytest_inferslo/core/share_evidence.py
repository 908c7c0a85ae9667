"""Evidence on a share of requests: percentiles, error rates, goodput, extremes, and their sliding windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from pytest_inferslo.core import statistics
from pytest_inferslo.core.baseline import Level
from pytest_inferslo.core.bearing import Bearing
from pytest_inferslo.core.clustering import discount, near_the_limit, seconds_seen, tail_clustering
from pytest_inferslo.core.distribution import Scope
from pytest_inferslo.core.evidence import Evidence, Rules, what_is_missing
from pytest_inferslo.core.histogram import Histogram
from pytest_inferslo.core.metrics import Source
from pytest_inferslo.core.objective import Objective
from pytest_inferslo.core.policy import exact_limit
from pytest_inferslo.core.pool import Pool, Seconds, Trials
from pytest_inferslo.core.verdict import Status
from pytest_inferslo.core.window_evidence import FEWEST_SWINGS, drift, window_evidence

#: The share whose proof a promise about every request must have enough requests for.
CENSUS_SHARE = 0.99


def share_evidence(objective: Objective, pool: Pool, scope: Scope, limit: float, rules: Rules) -> Evidence:
    """Of a promise about a share of the requests, over the whole scope or (`for`) in each of its windows."""
    trials = trials_of(objective, pool, scope, limit)
    if not trials.all_trials.sum():
        return Evidence(Status.FAIL, None, 0, reason="not measured: no request")
    share = required_share(objective, limit)
    sampled = objective.metric.source in (Source.SAMPLE, Source.GAP)
    found = pool.distributions(objective.metric.name, scope) if sampled else []
    if sampled and not sum(distribution.count for distribution in found):
        n = int(trials.all_trials.sum())
        return Evidence(Status.FAIL, math.inf, n, reason=f"no successful sample among {n} requests")
    n, observed = int(trials.all_trials.sum()), _whole_value(objective, trials, found)
    if share <= 0:
        return Evidence(Status.PASS, observed, n, reason="what it is compared with allows everything")
    if share > 1:
        return Evidence(Status.FAIL, observed, n, reason="the limit is over 100 %, which no run reaches")
    if share == 1:
        return _census(objective, pool, scope, trials, rules)
    if objective.window_ns:
        words = _bad_ones(objective)
        return window_evidence(objective, trials, found, float(share), limit, rules, observed, words)
    return _whole(objective, pool, scope, trials, float(share), limit, rules)


def _whole(
    objective: Objective,
    pool: Pool,
    scope: Scope,
    trials: Trials,
    share: float,
    limit: float,
    rules: Rules,
) -> Evidence:
    n, bad = int(trials.all_trials.sum()), int(trials.all_bad.sum())
    found = pool.distributions(objective.metric.name, scope) if objective.statistic.kind != "whole" else []
    worth = discount(
        tail_clustering(trials.all_bad, trials.all_trials, found, share, pool.strata(scope), limit),
        rules.confidence,
    )
    worth = min(worth, trials.most)
    within, over = (n - bad) * worth, bad * worth
    status = Status.INCONCLUSIVE
    reason = ""
    swings = seconds_seen(found, pool.strata(scope)) if near_the_limit(found, limit) else math.inf
    unborne: Bearing | None = None
    if rules.proves(within, over, share):
        if objective.statistic.kind == "percentile" and found:
            exact = exact_limit(objective, limit)
            bearing = Bearing(found, trials, pool.strata(scope), share, exact, objective.upper, rules)
            if not bearing.holds():
                unborne, worth = bearing, bearing.worth
        status = Status.PASS if swings >= FEWEST_SWINGS and unborne is None else Status.INCONCLUSIVE
    elif rules.refutes(within, over, share) or _outage(objective, n, bad, share, rules):
        status = Status.FAIL
        reason = f"{bad} of {n} requests {_bad_ones(objective)}"
    if objective.statistic.kind == "whole":
        observed, interval = _ratio_shown(objective, n, bad, worth, rules)
    else:
        histogram = pool.histogram(objective.metric.name, scope)
        observed, interval = _percentile_shown(objective, histogram, n * worth, rules)
        if math.isinf(observed) and status is Status.INCONCLUSIVE and not rules.anytime:
            status = Status.FAIL
            reason = (
                f"{histogram.failures} of {n} requests failed, so that this percentile has no finite value"
            )
    if status is Status.INCONCLUSIVE and swings < FEWEST_SWINGS:
        reason = drift(pool.seconds(scope), swings)
    elif status is Status.INCONCLUSIVE:
        asked = rules if unborne is None else unborne.rules
        rate = n / pool.seconds(scope)
        reason = what_is_missing(n - bad, bad, worth, share, rate, asked, _bad_ones(objective))
    return Evidence(status, observed, n, n * worth, interval, reason)


def _bad_ones(objective: Objective) -> str:
    """What is said of the requests that count against a promise."""
    if objective.metric.name == "error_rate":
        return "failed"
    if objective.statistic.kind == "whole":
        return "did not meet every limit"
    return "are beyond the limit" if objective.upper else "are below the limit"


def _outage(objective: Objective, n: int, bad: int, share: float, rules: Rules) -> bool:
    """Failures in a row are an outage, which is what a promise about errors is against.

    That they are alike weakens a proof, and never a refutation.
    """
    return objective.metric.name == "error_rate" and bool(rules.refutes(n - bad, bad, share))


def _ratio_shown(
    objective: Objective, n: int, bad: int, worth: float, rules: Rules
) -> tuple[float, tuple[float, float]]:
    low, high = statistics.share_bounds(bad * worth, n * worth, rules.confidence)
    return (bad / n, (low, high)) if objective.upper else (1 - bad / n, (1 - high, 1 - low))


def extreme_level(objective: Objective, pool: Pool, scope: Scope, rules: Rules) -> Level | None:
    """`max` or `min` of these requests, inf where one failed; few leave open how far that of many would lie."""
    histogram = pool.histogram(objective.metric.name, scope)
    top = objective.statistic.kind == "max"
    n = histogram.count + histogram.failures
    if histogram.failures:
        return Level(math.inf, math.inf, math.inf, n)
    extreme = histogram.maximum if top else histogram.minimum
    if extreme is None:
        return None
    enough = n * _worth_of_a_value(objective, pool, scope, n) >= fewest_of_census(rules)
    return Level(extreme, extreme if top or enough else 0.0, extreme if enough or not top else math.inf, n)


def fewest_of_census(rules: Rules) -> int:
    """Requests that say enough about every one of them."""
    return statistics.required_samples(CENSUS_SHARE, 0, rules.confidence)


def percentile_level(objective: Objective, pool: Pool, scope: Scope, rules: Rules) -> Level | None:
    """A percentile with its bounds, whatever it is compared with; None where nothing has a value."""
    found = pool.distributions(objective.metric.name, scope)
    trials = np.concatenate([d.slot_count + d.slot_failures for d in found])
    histogram = pool.histogram(objective.metric.name, scope)
    if not histogram.count:
        return None
    share = float(objective.statistic.share)
    worth = discount(
        tail_clustering(np.zeros_like(trials), trials, found, share, pool.strata(scope), None),
        rules.confidence,
    )
    n = histogram.count + histogram.failures
    worth = min(worth, _worth_of_a_value(objective, pool, scope, n))
    observed, (low, high) = _percentile_shown(objective, histogram, n * worth, rules)
    return Level(observed, low, high, n)


def _percentile_shown(
    objective: Objective, histogram: Histogram, effective: float, rules: Rules
) -> tuple[float, tuple[float, float]]:
    """The percentile at its ceiling rank, and the values whose ranks bound it."""
    n = histogram.count + histogram.failures
    share = objective.statistic.share
    observed = histogram.value_at_rank(max(1, math.ceil(share * n)))[1]
    low, high = statistics.quantile_ranks(n, effective, float(share), rules.confidence)
    return observed, (
        0.0 if low is None else histogram.value_at_rank(low)[0],
        math.inf if high is None else histogram.value_at_rank(high)[1],
    )


def _census(objective: Objective, pool: Pool, scope: Scope, trials: Trials, rules: Rules) -> Evidence:
    """A promise about every request of this run."""
    n, bad = int(trials.all_trials.sum()), int(trials.all_bad.sum())
    if objective.statistic.kind == "whole":
        observed = bad / n if objective.upper else 1 - bad / n
    else:
        histogram = pool.histogram(objective.metric.name, scope)
        extreme = histogram.maximum if objective.statistic.kind == "max" else histogram.minimum
        observed = math.inf if (histogram.failures and objective.upper) or extreme is None else float(extreme)
    enough = fewest_of_census(rules)
    if bad:
        return Evidence(Status.FAIL, observed, n, reason=f"{bad} of {n} requests {_bad_ones(objective)}")
    worth = int(n * trials.most)
    if worth < enough:
        reason = f"{worth} requests say too little about every request: needs about {enough - worth:,} more"
        return Evidence(Status.INCONCLUSIVE, observed, n, reason=reason)
    return Evidence(Status.PASS, observed, n, reason=f"holds for each of these {n:,} requests")


def _whole_value(objective: Objective, trials: Trials, found: Sequence[Seconds]) -> float:
    """The statistic over the whole scope."""
    if not found:
        share = float(trials.all_bad.sum() / trials.all_trials.sum())
        return share if objective.upper else 1 - share
    merged = Histogram()
    for distribution in found:
        merged.merge(distribution.histogram)
    n = merged.count + merged.failures
    return merged.value_at_rank(max(1, math.ceil(objective.statistic.share * n)))[1]


def required_share(objective: Objective, limit: float) -> Fraction:
    """The share of requests that must be good: p of a ceiling, 1 - p of a floor, all for max and min.

    Over 1 for a floor that no run reaches (105 % of a baseline's goodput of 98 %).
    """
    if objective.statistic.kind == "percentile":
        return objective.statistic.share if objective.upper else 1 - objective.statistic.share
    if objective.statistic.kind == "whole":
        allowed = Fraction(limit).limit_denominator(10**12) if math.isfinite(limit) else Fraction(2)
        return 1 - min(Fraction(1), allowed) if objective.upper else allowed
    return Fraction(1)


def trials_of(objective: Objective, pool: Pool, scope: Scope, limit: float) -> Trials:
    """Bad requests and all requests per second, for a promise about a share of them."""
    if objective.statistic.kind == "whole":
        ratios = pool.ratios(objective.metric.name, scope)
        good = [r.slot_trials - r.slot_hits for r in ratios]
        bad = [r.slot_hits for r in ratios] if objective.upper else good
        return Trials(tuple(bad), tuple(r.slot_trials for r in ratios))
    found = pool.distributions(objective.metric.name, scope)
    exact = exact_limit(objective, limit)
    over = [distribution.slot_over(exact) for distribution in found]
    beyond = over if objective.upper else [d.slot_count - n for d, n in zip(found, over, strict=True)]
    bad = [n + d.slot_failures for d, n in zip(found, beyond, strict=True)]
    trials = tuple(d.slot_count + d.slot_failures for d in found)
    return Trials(
        tuple(bad), trials, _worth_of_a_value(objective, pool, scope, sum(int(t.sum()) for t in trials))
    )


def _worth_of_a_value(objective: Objective, pool: Pool, scope: Scope, n: int) -> float:
    """What one of `n` values is worth at most, in requests: the gaps of one answer rise and fall together."""
    if objective.metric.source is not Source.GAP or not n:
        return 1.0
    return min(1.0, sum(counts.intended for counts in pool.counts(scope)) / n)
