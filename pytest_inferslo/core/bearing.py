"""Whether a percentile that is proved also holds for the requests that have not come.

An exact test counts independent requests. How alike they are is read off the slow ones, and where few came near
the limit there is little to read: a minute of a busy queue holds a handful of its busy periods, and a quiet one
looks as if the slow requests came each by itself. So the proof must be borne out a second time, by requests
that did come: either at the limit itself, counted as much alike as the values are, or at some 0.43 of the limit, where
there are enough slow ones to see how they cluster. There a promise "at most a share q is over the limit" allows
q ** 0.43, which any latency with a tail no heavier than an exponential one exceeds when it breaks the promise: its
survival S satisfies S(u x) >= S(x) ** u for u < 1 (increasing failure rate on average; Barlow and Proschan 1975,
chapter 4). Busy queues have such tails. With q = 1 % that is 14 %, which takes about 40 independent requests
instead of some 500. It is a second condition and never proves anything alone.

A lower percentile (under p95) speaks of the level of a run more than of its tail, and q ** 0.43 allows too much to
tell. So it must hold without any more doubt: at the limit, counted as much alike as the values are, and no less than
an AR(1) of the seconds makes of them; or at 0.43 of the limit as it stands, far from which nothing matters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_inferslo.core.clustering import discount, level_clustering, slots_over
from pytest_inferslo.core.evidence import Rules
from pytest_inferslo.core.pool import Array, Seconds, Trials, sliding
from pytest_inferslo.core.questions import LOWER_LIMIT
from pytest_inferslo.core.statistics import Clustering, share_clustering

#: Times the doubt that a run of its planned length may leave here. One that is looked at every second has no more
#: than its proof had.
_DOUBT = 5
#: Percentiles under this speak of the level of a run.
_OF_LEVEL = 0.95


class Bearing:
    """`share` of the requests must be within `limit` (as counted: policy.exact_limit); `upper`: it is a ceiling.

    With `width`, in each sliding window of so many seconds, one as well as the other.
    """

    def __init__(
        self,
        found: Sequence[Seconds],
        trials: Trials,
        strata: Array,
        share: float,
        limit: float,
        upper: bool,
        rules: Rules,
        width: int | None = None,
    ) -> None:
        self._found = found
        self._trials = trials
        self._strata = strata
        self._share = share
        self._lower = limit * LOWER_LIMIT if upper else None
        self._width = width
        self._of_level = share < _OF_LEVEL
        self.rules = rules if rules.anytime or self._of_level else rules.laxer(_DOUBT)

    def holds(self) -> bool:
        at_limit = self._proves(self._trials.bad, self.worth, self._share)
        if at_limit.all():
            return True
        if self._lower is None:
            return False
        if self._lower not in self._found[0].limits:
            # of a limit that was known only once the run was read, or the looser of two, nothing was counted there
            return True
        alike = share_clustering(slots_over(self._found, self._lower), self._trials.all_trials, self._strata)
        over = [each.slot_over(self._lower) + each.slot_failures for each in self._found]
        share = self._share if self._of_level else 1 - (1 - self._share) ** LOWER_LIMIT
        below = self._proves(over, self._worth(alike), share)
        return bool((at_limit | below).all())

    @property
    def worth(self) -> float:
        """What one request is worth in independent ones, if they are as much alike as their values."""
        return self._worth(level_clustering(self._found, self._strata, lasting=self._of_level))

    def _worth(self, alike: Clustering) -> float:
        return min(discount([alike], self.rules.confidence), self._trials.most)

    def _proves(self, over: Sequence[Array], worth: float, share: float) -> Array:
        """Whether it is proved, in each window or (one answer) in all of them together."""
        n, t = self._sums(self._trials.trials), self._sums(over)
        return np.asarray(self.rules.proves((n - t) * worth, t * worth, share))

    def _sums(self, slots: Sequence[Array]) -> Array:
        if self._width is None:
            return np.array([sum(int(each.sum()) for each in slots)])
        return sliding(slots, self._width)
