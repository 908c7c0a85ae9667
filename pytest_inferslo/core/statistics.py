"""How much a number of requests proves about a promise.

A promise "at least a share p of the requests is within the limit" is tested exactly, as MLPerf's early
stopping does: with t requests over the limit and h within, it is proved at confidence c when I(p; h, t + 1)
<= 1 - c, where I is the regularised incomplete beta function (the binomial tail), and refuted when I(1 - p;
t, h + 1) <= 1 - c. Both are one-sided; the two bounds together are the interval that a finding shows, so
that the verdict and the interval agree.

Neighbouring requests share a queue, so n requests are worth fewer independent ones. The design effect
(variance of the count over blocks of time, relative to independence) says how many fewer; the block length
follows from the autocorrelation of the one-second slots. Korn and Graubard (1998) put the effective number,
with a Student correction for the few blocks behind the estimate, into the exact interval. An effect under 1
is never used: the wider counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]

_FEWEST_OF_STRATUM = 4
#: Just over even odds, where both quantiles of `discount` are 0 and their ratio is only a limit.
_LEAST_CONFIDENCE = 0.501


@dataclass(frozen=True)
class Clustering:
    """How alike neighbours are: `effect` >= 1 is the variance of a total relative to independent requests.

    `blocks` is the number of blocks of time behind that estimate, each of `block` slots.
    """

    effect: float
    blocks: int
    block: int = 1

    def discount(self, confidence: float) -> float:
        """What one request is worth, in independent ones (0..1]."""
        if self.blocks < 2:
            return 1.0 / self.effect
        confidence = max(confidence, _LEAST_CONFIDENCE)
        normal = float(special.ndtri(confidence))
        return (normal / student(self.blocks, confidence)) ** 2 / self.effect


def proves_share(within: Any, over: Any, share: float, confidence: float) -> Any:
    """Whether `within` and `over` (numbers or arrays, perhaps fractions) prove that `share` are within."""
    within, over = np.asarray(within, float), np.asarray(over, float)
    tail = special.betainc(np.maximum(within, 1e-300), over + 1, share)
    return (within > 0) & (tail <= 1 - confidence)


def refutes_share(within: Any, over: Any, share: float, confidence: float) -> Any:
    """Whether they prove that fewer than `share` are within."""
    within, over = np.asarray(within, float), np.asarray(over, float)
    tail = special.betainc(np.maximum(over, 1e-300), within + 1, 1 - share)
    return (over > 0) & (tail <= 1 - confidence)


def required_samples(share: float, over: int, confidence: float) -> int:
    """The fewest independent requests that prove `share` with `over` of them over the limit."""

    def proves(n: int) -> bool:
        return bool(proves_share(n - over, over, share, confidence))

    high = over + 1
    while not proves(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if proves(middle) else (middle, high)
    return high


def share_bounds(hits: float, trials: float, confidence: float) -> tuple[float, float]:
    """The one-sided Clopper-Pearson bounds of a share, each at `confidence`; the counts may be fractions."""
    if trials <= 0:
        return 0.0, 1.0
    alpha = 1 - confidence
    low = float(special.betaincinv(hits, trials - hits + 1, alpha)) if hits > 0 else 0.0
    high = float(special.betaincinv(hits + 1, trials - hits, confidence)) if hits < trials else 1.0
    return low, high


def quantile_ranks(
    n: int, effective: float, share: float, confidence: float
) -> tuple[int | None, int | None]:
    """The ranks (1..n) of the values that bound a quantile from below and from above; None where none does.

    By order statistics: the upper bound is the smallest value that, taken as the limit, would be proved;
    the lower bound the largest one that would still be refuted just under it.
    """
    alpha = 1 - confidence
    scale = n / effective
    high = _first_rank(effective, lambda h: special.betainc(h, effective - h + 1, share) <= alpha)
    low = _first_rank(effective, lambda t: special.betainc(t, effective - t + 1, 1 - share) <= alpha)
    upper = None if high is None else min(n, math.ceil(high * scale))
    lower = None if low is None else n - min(n, math.ceil(low * scale)) + 1
    return lower, upper


def _first_rank(n: float, holds: Any) -> float | None:
    """The smallest h in (0, n] from which on `holds`, which is monotone; to 1e-6 of n."""
    if not holds(n):
        return None
    low, high = 0.0, n
    while high - low > 1e-6 * n:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def samples_to_decide(
    within: float, over: float, share: float, confidence: float, *, most: float = 1e4
) -> float | None:
    """The factor by which the run must grow, at the same shares, until it proves or refutes; None: never."""
    low, high = 1.0, 2.0

    def decides(factor: float) -> bool:
        counts = within * factor, over * factor, share, confidence
        return bool(proves_share(*counts) or refutes_share(*counts))

    while not decides(high):
        if high > most:
            return None
        low, high = high, high * 2
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high


def block_length(series: Floats) -> int:
    """Slots per block after which neighbouring blocks are about independent (after Politis and White 2004).

    Twice the last lag of the autocorrelation before five insignificant ones in a row, at most a tenth of
    the series.
    """
    n = len(series)
    longest = max(1, n // 10)
    centred = series - series.mean()
    variance = float(centred @ centred)
    if variance <= 0 or longest == 1:
        return 1
    bar = 2.0 * math.sqrt(max(1.0, math.log10(n)) / n)
    quiet, last = 0, 0
    for lag in range(1, min(n - 1, longest + 5)):
        correlation = float(centred[lag:] @ centred[:-lag]) / variance
        quiet = 0 if abs(correlation) > bar else quiet + 1
        if quiet == 0:
            last = lag
        if quiet == 5:
            break
    return min(longest, max(1, 2 * last))


def share_clustering(
    slot_hits: npt.NDArray[Any], slot_trials: npt.NDArray[Any], strata: npt.NDArray[Any] | None = None
) -> Clustering:
    """The design effect of a share, from hits and trials per slot.

    `strata` numbers the slots by the phase of the load: what differs between phases was asked for and is no
    chance, so each slot is compared with its own phase.
    """
    used = slot_trials > 0
    hits, trials = slot_hits[used].astype(float), slot_trials[used].astype(float)
    if not len(hits):
        return Clustering(1.0, 0)
    share = hits.sum() / trials.sum()
    residuals = _residuals(hits, trials, None if strata is None else strata[used])
    return _clustering(residuals, float(share * (1 - share) * trials.sum()))


def mean_clustering(
    slot_total: Floats,
    slot_count: npt.NDArray[Any],
    variance: float,
    strata: npt.NDArray[Any] | None = None,
    *,
    lasting: bool = False,
) -> Clustering:
    """The design effect of a mean, from totals and counts per slot and the variance of single values.

    With `lasting`, no less than of slots that are an AR(1): what lasts longer than a block counts too.
    """
    used = slot_count > 0
    totals, counts = slot_total[used].astype(float), slot_count[used].astype(float)
    if not len(totals):
        return Clustering(1.0, 0)
    residuals = _residuals(totals, counts, None if strata is None else strata[used])
    found = _clustering(residuals, variance * float(counts.sum()))
    if not lasting or variance <= 0 or found.blocks < 2:
        return found
    swings, of_sum = persistence(residuals)
    effect = max(found.effect, of_sum / (variance * float(counts.sum())))
    return Clustering(effect, min(found.blocks, max(2, int(swings))), found.block)


def _residuals(totals: Floats, counts: Floats, strata: npt.NDArray[Any] | None) -> Floats:
    """How far each slot is off the level of its stratum; strata of few slots count as one."""
    if strata is None:
        return totals - totals.sum() / counts.sum() * counts
    _, where, sizes = np.unique(strata, return_inverse=True, return_counts=True)
    where = np.where(sizes[where] < _FEWEST_OF_STRATUM, len(sizes), where)
    levels = np.bincount(where, weights=totals) / np.maximum(np.bincount(where, weights=counts), 1e-300)
    fitted = len(np.unique(where)) - 1
    lost = len(totals) / max(1, len(totals) - fitted)
    residuals: Floats = (totals - levels[where] * counts) * math.sqrt(lost)
    return residuals


def effective_seconds(
    slot_total: Floats, slot_count: npt.NDArray[Any], strata: npt.NDArray[Any] | None = None
) -> float:
    """How many independent seconds the mean of a metric has been seen for, as an AR(1) of its seconds.

    n (1 - r) / (1 + r) with r the correlation of neighbours: a run that is short against the ups and downs
    of its latency has not seen them, however many requests it holds.
    """
    used = slot_count > 0
    n = int(used.sum())
    if n < 3:
        return float(n)
    totals, counts = slot_total[used].astype(float), slot_count[used].astype(float)
    series = _residuals(totals, counts, None if strata is None else strata[used]) / counts
    variance = float(series @ series)
    correlation = float(series[1:] @ series[:-1]) / variance if variance > 0 else 0.0
    return n * (1 - max(0.0, correlation)) / (1 + max(0.0, correlation))


def _clustering(residuals: Floats, independent: float) -> Clustering:
    """`residuals` sum to 0 over the slots; `independent` is the variance of their sum if requests were so."""
    block = block_length(residuals)
    blocks = len(residuals) // block
    if independent <= 0 or blocks < 2:
        return Clustering(1.0, blocks, block)
    return Clustering(max(1.0, sum_variance(residuals, block) / independent), blocks, block)


def sum_variance(residuals: Floats, block: int) -> float:
    """The variance of the sum of a series of mean 0.

    By overlapping batches of `block` slots. Batches that are not much longer than what they must hold show
    too little of it; twice their variance less that of batches of half the length is free of that bias to
    first order (the lugsail of Vats and Flegal 2022), and the larger of the two counts.
    """
    whole = _batch_variance(residuals, block)
    return max(whole, 2 * whole - _batch_variance(residuals, block // 2)) if block > 1 else whole


def _batch_variance(residuals: Floats, block: int) -> float:
    n = len(residuals)
    batches = block_sums(residuals, block)
    return float(batches @ batches) / len(batches) / block * n * n / max(1, n - block)


def persistence(residuals: Floats) -> tuple[float, float]:
    """Independent slots in a series of mean 0, taken for an AR(1), and the variance of its sum.

    Short series show too little correlation; Kendall (1954) gives the bias as -(1 + 3 r) / n.
    """
    n, variance = len(residuals), float(residuals @ residuals)
    correlation = float(residuals[1:] @ residuals[:-1]) / variance if variance > 0 else 0.0
    correlation = min(max(correlation + (1 + 3 * correlation) / n, 0.0), 0.99)
    inflation = (1 + correlation) / (1 - correlation)
    return n / inflation, variance * inflation


def student(blocks: float, confidence: float) -> float:
    """The one-sided quantile of Student's t for a mean over `blocks` blocks."""
    return float(special.stdtrit(blocks - 1, confidence))


def block_sums(series: Floats, block: int) -> Floats:
    edges = np.concatenate([[0.0], np.cumsum(series)])
    return edges[block:] - edges[:-block]
