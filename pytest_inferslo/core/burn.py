"""How fast a run spends its error budget: multi-window burn rates, as in Google's SRE workbook, chapter 5.

A promise of error_rate <= 0.1 % over 30 days leaves 0.1 % of the requests to fail. A burn rate of 14.4
spends two per cent of that in an hour. A rule fails where both of its windows, ending in the same second,
burn faster than its rate: the long one shows that it matters, the short one that it still goes on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_inferslo.core.distribution import ALL, Scope
from pytest_inferslo.core.evidence import Evidence, Rules, not_measured
from pytest_inferslo.core.finding import finding
from pytest_inferslo.core.policy import BurnRule, ErrorBudget, Policy
from pytest_inferslo.core.pool import Array, Pool, sliding
from pytest_inferslo.core.verdict import Finding, Status


def burn_findings(policy: Policy, pool: Pool, rules: Rules) -> list[Finding]:
    """One per burn rule of the policy's error budget."""
    if policy.budget is None:
        return []
    return [_rule_finding(policy.budget, rule, pool, rules) for rule in policy.budget.rules]


def _rule_finding(budget: ErrorBudget, rule: BurnRule, pool: Pool, rules: Rules) -> Finding:
    evidence = _evidence(budget, rule, pool, rules)
    found = finding(budget.objective, Scope(), evidence)
    text = f"{budget.objective.text}: burns < {rule.rate:g}x over {_time(rule.long)} and {_time(rule.short)}"
    observed = "not measured" if evidence.observed is None else f"{evidence.observed:.3g}x"
    return replace(
        found,
        objective=text,
        statistic="burn",
        limit=rule.rate,
        limit_text=f"{rule.rate:g}x",
        observed_text=observed,
        interval_text="",
    )


def _evidence(budget: ErrorBudget, rule: BurnRule, pool: Pool, rules: Rules) -> Evidence:
    allowed = budget.objective.limit.offset
    rates: list[Array] = []
    trials = 0
    for ratio in pool.ratios("error_rate", ALL):
        trials += ratio.trials
        if len(ratio.slot_trials) >= rule.long:
            rates.append(_both(ratio.slot_hits, ratio.slot_trials, rule) / allowed)
    if not rates:
        reason = f"the run is shorter than the window of {_time(rule.long)}"
        return Evidence(Status.INCONCLUSIVE, None, trials, reason=reason)
    seen = np.concatenate(rates)
    seen = seen[np.isfinite(seen)]
    if not len(seen):
        return not_measured(f"no request in any window of {_time(rule.long)}")
    worst = float(np.max(seen))
    status = Status.PASS if worst < rule.rate else Status.FAIL
    spent = sum(r.hits for r in pool.ratios("error_rate", ALL)) / max(1, trials) / allowed
    share = spent * pool.seconds(ALL) / budget.period
    return Evidence(
        status, worst, trials, reason=f"this run spent {100 * share:.3g} % of the budget of the period"
    )


def _both(hits: Array, trials: Array, rule: BurnRule) -> Array:
    """Where the long window is full, the lower error rate of the two windows that end there; NaN where the long one
    had no request, which says nothing."""
    asked = sliding([trials], rule.long)
    long = np.where(asked > 0, sliding([hits], rule.long) / np.maximum(1, asked), np.nan)
    short = sliding([hits], rule.short) / np.maximum(1, sliding([trials], rule.short))
    return np.minimum(long, short[rule.long - rule.short :])


def _time(seconds: int) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
