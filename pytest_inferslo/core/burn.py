"""How fast a run spends its error budget: multi-window burn rates, as in Google's SRE workbook, chapter 5.

A promise of error_rate <= 0.1 % over 30 days leaves 0.1 % of the requests to fail. A burn rate of 14.4
spends two per cent of that in an hour. A rule fails where both of its windows, ending in the same second,
burn faster than its rate: the long one shows that it matters, the short one that it still goes on.

One failure of sixty requests is 1.7 %. So a burn breaks the rule only where the long window refutes, by its counts,
that the share of failures is under the rate; and the rule is kept only where each end has a window that proves it.
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
    ratios = pool.ratios("error_rate", ALL)
    trials = sum(ratio.trials for ratio in ratios)
    ends = [_ends(r.slot_hits, r.slot_trials, rule) for r in ratios if len(r.slot_trials) >= rule.long]
    if not ends:
        reason = f"the run is shorter than the window of {_time(rule.long)}"
        return Evidence(Status.INCONCLUSIVE, None, trials, reason=reason)
    long_hits, long_trials, short_hits, short_trials = np.concatenate(ends, axis=1)
    if not long_trials.any():
        return not_measured(f"no request in any window of {_time(rule.long)}")
    burns = np.minimum(_share(long_hits, long_trials), _share(short_hits, short_trials)) / allowed
    worst = int(np.argmax(burns))
    spent = sum(r.hits for r in ratios) / max(1, trials) / allowed * pool.seconds(ALL) / budget.period
    reason = f"this run spent {100 * spent:.3g} % of the budget of the period"
    kept = 1 - rule.rate * allowed
    burning = burns >= rule.rate
    refuted = rules.stricter(len(burns)).refutes(long_trials - long_hits, long_hits, kept)
    proved = rules.proves(long_trials - long_hits, long_hits, kept)
    proved = proved | rules.proves(short_trials - short_hits, short_hits, kept)
    status = Status.PASS
    if (burning & refuted).any():
        status = Status.FAIL
    elif burning.any():
        status = Status.INCONCLUSIVE
        reason = f"{long_hits[worst]} of {long_trials[worst]} requests failed: too few to tell; {reason}"
    elif not proved.all():
        status = Status.INCONCLUSIVE
        reason = f"{int((~proved).sum())} of {len(burns)} windows hold too few requests to prove it; {reason}"
    return Evidence(status, float(burns[worst]), trials, reason=reason)


def _ends(hits: Array, trials: Array, rule: BurnRule) -> Array:
    """Failures and requests of the long window and of the short one, where both are full and end together."""
    long = [sliding([each], rule.long) for each in (hits, trials)]
    short = [sliding([each], rule.short)[rule.long - rule.short :] for each in (hits, trials)]
    return np.array([*long, *short])


def _share(hits: Array, trials: Array) -> Array:
    return hits / np.maximum(1, trials)


def _time(seconds: int) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
