"""How far a mean over the seconds of a run may lie from the one that was seen."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.statistics import (
    Floats,
    block_length,
    block_sums,
    persistence,
    student,
    sum_variance,
)

#: Fewest blocks from which a variance is taken at all.
FEWEST_BLOCKS = 5
_RESAMPLES = 2000
#: Parts of the doubt of which the upper bound leaves one.
_DOUBTS_ABOVE = 5


def mean_bounds(
    slot_total: Floats, slot_count: npt.NDArray[Any], confidence: float
) -> tuple[float, float, int] | None:
    """Bounds of sum(total) / sum(count), for values not under 0, and the number of blocks; None where those are few.

    The lower one is at `confidence`: the wider of a moving-block bootstrap (seeded: the same numbers give the same
    bounds) and Student's interval over blocks, for the bootstrap alone is too narrow when blocks are few. The upper
    one leaves a fifth of the doubt and is taken on the scale of logarithms: a run that missed the slow minutes of a
    queue has a low mean and, for the same reason, a low deviation.
    """
    used = slot_count > 0
    totals, counts = slot_total[used].astype(float), slot_count[used].astype(float)
    if len(totals) < FEWEST_BLOCKS:
        return None
    mean = float(totals.sum() / counts.sum())
    residuals = totals - mean * counts
    block = block_length(residuals)
    blocks = len(totals) // block
    if blocks < FEWEST_BLOCKS:
        return None
    swings, lasting = persistence(residuals)
    deviation = math.sqrt(max(sum_variance(residuals, block), lasting)) / float(counts.sum())
    independent = max(2.0, min(blocks, swings))
    above = 1 - (1 - confidence) / _DOUBTS_ABOVE
    low, high = _bootstrap(totals, counts, block, confidence, above)
    down, up = (student(independent, level) * deviation for level in (confidence, above))
    return min(mean - down, low), max(_raised(mean, up), high), blocks


def _raised(mean: float, by: float) -> float:
    """`mean + by` on the scale of logarithms."""
    if mean <= 0 or by > 100 * mean:
        return mean + by if mean <= 0 else math.inf
    return mean * math.exp(by / mean)


def _bootstrap(totals: Floats, counts: Floats, block: int, below: float, above: float) -> tuple[float, float]:
    """The lower bound at confidence `below`, the upper one at `above`."""
    blocks = math.ceil(len(totals) / block)
    starts = np.random.Generator(np.random.PCG64(0)).integers(
        0, len(totals) - block + 1, size=(_RESAMPLES, blocks)
    )
    sums = [block_sums(series, block) for series in (totals, counts)]
    ratios = sums[0][starts].sum(axis=1) / sums[1][starts].sum(axis=1)
    low, high = np.quantile(ratios, [1 - below, above])
    return float(low), float(high)
