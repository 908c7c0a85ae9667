"""How alike the requests of a run are, as far as it matters for a promise about their share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pytest_inferslo.core import statistics
from pytest_inferslo.core.histogram import LAYOUT
from pytest_inferslo.core.pool import Array, Seconds
from pytest_inferslo.core.statistics import Clustering

#: Bad requests from which their own clustering can be read.
_TELLING = 2
#: How many slow requests it takes to see how slow ones cluster: so many times what is allowed, and no fewer than this.
_TIMES_ALLOWED = (2.0, 5.0)
_FEWEST_SLOW = 20.0
#: The part of a limit above which a request is slow enough to tell of those that would exceed it.
_NEAR = 0.5


def tail_clustering(
    bad: Array, trials: Array, found: Sequence[Seconds], share: float, strata: Array, limit: float | None
) -> list[Clustering]:
    """How alike neighbours are as far as this promise goes: the widest of what can be read off.

    Few bad requests say little about how they cluster. So lower limits are looked at too: the highest ones
    that twice and five times as many requests exceed as the promise allows. But only down to half of `limit`:
    what comes and goes far below it tells nothing of what would exceed it, and then requests count in full,
    as in any exact test. Without a limit (a level that is compared later) the values themselves are taken.
    """
    clusterings = [statistics.share_clustering(bad, trials, strata)] if bad.sum() >= _TELLING else []
    if not found:
        return clusterings
    if limit is None:
        return [*clusterings, level_clustering(found, strata)]
    n = float(trials.sum())
    wanted = [max(_FEWEST_SLOW, times * (1 - share) * n) for times in _TIMES_ALLOWED]
    wanted = [least for least in wanted if least > bad.sum()]
    near = [other for other in found[0].limits if _NEAR * limit <= other < limit]
    for other in sorted(near, reverse=True):
        over = slots_over(found, other)
        if over.sum() == n or not wanted:
            break
        if over.sum() >= wanted[0]:
            clusterings.append(statistics.share_clustering(over, trials, strata))
            wanted = [least for least in wanted if least > over.sum()]
    return clusterings or [Clustering(1.0, int(np.count_nonzero(trials)))]


def slots_over(found: Sequence[Seconds], limit: float) -> Array:
    """Requests over a limit that was asked for, the failed ones too, per second."""
    return np.concatenate([d.slot_over(limit) + d.slot_failures for d in found])


def level_clustering(found: Sequence[Seconds], strata: Array, *, lasting: bool = False) -> Clustering:
    """How alike neighbours are in the values themselves; `lasting` as in statistics.mean_clustering."""
    counts = np.concatenate([d.slot_count for d in found])
    totals = np.concatenate([d.slot_total for d in found])
    return statistics.mean_clustering(totals, counts, _variance(found), strata, lasting=lasting)


def near_the_limit(found: Sequence[Seconds], limit: float) -> bool:
    """Whether enough requests took over half of `limit` to see how such requests come."""
    near = [other for other in found[0].limits if _NEAR * limit <= other] if found else []
    return bool(near) and sum(int(d.slot_over(min(near)).sum()) + d.failures for d in found) >= _FEWEST_SLOW


def seconds_seen(found: Sequence[Seconds], strata: Array) -> float:
    """Independent seconds of the metric's mean; no bound where there is no such metric."""
    if not found:
        return math.inf
    totals = np.concatenate([d.slot_total for d in found])
    return statistics.effective_seconds(totals, np.concatenate([d.slot_count for d in found]), strata)


def _variance(found: Sequence[Seconds]) -> float:
    """Of single values, from the histograms (bucket middles)."""
    counts = np.sum([d.histogram.counts for d in found], axis=0)
    used = np.flatnonzero(counts)
    if not len(used):
        return 0.0
    middles = (LAYOUT.lowest(used) + LAYOUT.lowest(used + 1) - 1) / 2
    weights = counts[used]
    mean = float((middles * weights).sum() / weights.sum())
    return float((weights * (middles - mean) ** 2).sum() / weights.sum())


def discount(clusterings: Sequence[Clustering], confidence: float) -> float:
    """What one request is worth in independent ones, by the widest of the clusterings."""
    return min((clustering.discount(confidence) for clustering in clusterings), default=1.0)
