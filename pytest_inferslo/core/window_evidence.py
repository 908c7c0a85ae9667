"""Evidence on a share of requests in every sliding window of whole seconds (`for 5m`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pytest_inferslo.core.bearing import Bearing
from pytest_inferslo.core.clustering import discount, near_the_limit, seconds_seen, tail_clustering
from pytest_inferslo.core.evidence import Evidence, Rules
from pytest_inferslo.core.objective import SLOT_NS, Objective
from pytest_inferslo.core.policy import exact_limit
from pytest_inferslo.core.pool import Seconds, Trials, sliding
from pytest_inferslo.core.verdict import Status

#: Independent seconds of the level of a metric without which nothing is proved about it.
FEWEST_SWINGS = 6.0


def drift(seconds: float, swings: float) -> str:
    """Said of a run that is short against the ups and downs of its latency."""
    return (
        f"the level drifts: these {seconds:.0f}s are worth {swings:.1f} independent ones, and "
        f"{FEWEST_SWINGS:g} are the least to prove anything; a longer run shows whether it settles"
    )


def window_evidence(
    objective: Objective,
    trials: Trials,
    found: Sequence[Seconds],
    share: float,
    limit: float,
    rules: Rules,
    observed: float,
    bad_ones: str,
) -> Evidence:
    """Whether each window keeps the promise; `observed` is of the whole run, `bad_ones` says what befell the bad.

    Each window must be proved by itself, and borne out (core/bearing), which needs no correction: all of them must
    hold. A window that is refuted must be so at the confidence that is left when all windows are questions of
    their own (Bonferroni). A window without requests says nothing.
    """
    width = objective.window_ns // SLOT_NS
    n_all = int(trials.all_trials.sum())
    bad, n = sliding(trials.bad, width), sliding(trials.trials, width)
    if not len(n):
        longest = max(len(part) for part in trials.trials)
        reason = f"the run lasted {longest}s: no window of {width}s was seen, {width - longest}s are missing"
        return Evidence(Status.INCONCLUSIVE, observed, n_all, reason=reason)
    # What differs from window to window is asked for; only likeness inside of a window makes it worth less.
    strata = np.concatenate([np.arange(len(part)) // max(4, width) for part in trials.trials])
    worth = discount(
        tail_clustering(trials.all_bad, trials.all_trials, found, share, strata, limit),
        rules.confidence,
    )
    worth = min(worth, trials.most)
    within, over = (n - bad) * worth, bad * worth
    worst = int(np.argmax(bad / np.maximum(n, 1)))
    worst_text = f"in the worst of {len(n)} windows {100 * bad[worst] / max(n[worst], 1):.3g} % {bad_ones}"

    def found_to_be(status: Status, reason: str) -> Evidence:
        return Evidence(status, observed, n_all, n_all * worth, reason=reason)

    one_of_many = rules.stricter(len(n))
    refuted = one_of_many.refutes(within, over, share)
    if objective.metric.name == "error_rate":  # failures in a row are an outage, not a doubt
        refuted = refuted | one_of_many.refutes(n - bad, bad, share)
    if refuted.any():
        return found_to_be(Status.FAIL, worst_text)
    if empty := int((n == 0).sum()):
        return found_to_be(Status.INCONCLUSIVE, f"{empty} of {len(n)} windows had no request; {worst_text}")
    proved = rules.proves(within, over, share)
    if not proved.all():
        few = f"{int((~proved).sum())} of {len(n)} windows hold too few requests to prove it"
        return found_to_be(Status.INCONCLUSIVE, f"{few}; {worst_text}")
    if not found:
        return found_to_be(Status.PASS, worst_text)
    swings = seconds_seen(found, strata) if near_the_limit(found, limit) else math.inf
    if swings < FEWEST_SWINGS:
        return found_to_be(Status.INCONCLUSIVE, drift(len(trials.all_trials), swings))
    exact = exact_limit(objective, limit)
    bearing = Bearing(found, trials, strata, share, exact, objective.upper, rules, width)
    if not bearing.holds():
        worth = bearing.worth
        alike = (
            f"neighbours are alike: {n.min():,} requests of a window are worth {n.min() * worth:.0f} of them"
        )
        return found_to_be(Status.INCONCLUSIVE, f"{alike}, too few to prove it; {worst_text}")
    return found_to_be(Status.PASS, worst_text)
