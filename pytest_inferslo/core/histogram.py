"""Latency histograms: the HDR layout, filled by numpy, that counts what it cannot place.

The layout is that of HdrHistogram(1, 3.6e12, 3): a value of `e + 1` bits falls into one of 1,024 equal
steps between 2^e and 2^(e+1), and values under 2,048 stand alone. With nanoseconds as the unit a bucket is
at most 1/1,024 of its value wide, from 1 us up to 73 minutes; token counts under 2,048 are exact. The
exponent and the top ten bits of the mantissa of a float64 are that very index: numpy reads it from the
number's bits.

Nothing is dropped: values below 0 and from 2^42 upwards are counted in `negatives` and `overflow`, and
failures rank as +inf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.samples import GAP_DTYPE, Rows

Ints = npt.NDArray[np.int64]

_STEP_BITS = 10  # 1,024 steps per power of two: three significant digits
_STEPS = 1 << _STEP_BITS
_EXPONENT_BIAS = 1023
_MANTISSA_BITS = 52


@dataclass(frozen=True)
class Layout:
    """HDR buckets of three significant digits for integers from 0 up to `limit` (exclusive)."""

    limit_bits: int = 42

    @property
    def limit(self) -> int:
        """The first value that overflows."""
        return 1 << self.limit_bits

    @property
    def buckets(self) -> int:
        return (self.limit_bits - _STEP_BITS + 1) * _STEPS

    def bucket_of(self, values: npt.NDArray[Any]) -> Ints:
        """The bucket of each value; -1 for a negative, `buckets` for an overflow. Fractions are cut off."""
        floats = np.asarray(values).astype(np.float64)
        buckets: Ints = floats.view(np.int64) >> (_MANTISSA_BITS - _STEP_BITS)
        buckets -= (_EXPONENT_BIAS + _STEP_BITS - 1) << _STEP_BITS
        small = floats < _STEPS
        if small.any():
            buckets[small] = np.floor(np.maximum(floats[small], -1.0)).astype(np.int64)
        return np.minimum(buckets, self.buckets, out=buckets)

    def lowest(self, bucket: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
        """The smallest value of each bucket in 0..buckets - 1."""
        bucket = np.asarray(bucket, np.int64)
        octave = np.maximum((bucket >> _STEP_BITS) - 1, 0)
        return (bucket - (octave << _STEP_BITS)) << octave

    def bounds(self, bucket: int) -> tuple[int, int]:
        """The smallest and the largest value of a bucket, both inclusive."""
        low, after = self.lowest(np.array([bucket, bucket + 1])).tolist()
        return low, after - 1


#: The one layout of this package: sample files hold bucket numbers of it, so it never changes.
LAYOUT = Layout()
GAP_LAYOUT = LAYOUT


def ceiling_rank(p: float, n: int) -> int:
    """⌈p·n⌉ for the decimal that `p` stands for, at least 1.

    0.07 of 100 is rank 7, although 0.07 * 100 > 7 in floats.
    """
    if not 0 < p <= 1:
        raise ValueError(f"a percentile is a fraction over 0 and up to 1, not {p!r}")
    return max(1, math.ceil(Fraction(p).limit_denominator(10**9) * n))


@dataclass(eq=False)
class Histogram:
    """Counts per bucket of LAYOUT, and beside them everything that has no bucket.

    `count` is the number of finite values (negatives and overflows included); `failures` rank above all of
    them as +inf. `minimum` and `maximum` are exact, in the unit of the values; None while there is no value.
    """

    counts: Ints = field(default_factory=lambda: np.zeros(LAYOUT.buckets, np.int64))
    negatives: int = 0
    overflow: int = 0
    failures: int = 0
    count: int = 0
    total: float = 0.0
    minimum: float | None = None
    maximum: float | None = None

    def add(self, values: npt.NDArray[Any], buckets: Ints | None = None) -> None:
        """Adds finite values of any numeric type; `buckets` spares the look-up where the caller has it."""
        if len(values) == 0:
            return
        self._place(LAYOUT.bucket_of(values) if buckets is None else buckets)
        self._extend(len(values), float(values.sum()), float(values.min()), float(values.max()))

    def add_buckets(self, buckets: Ints, counts: Ints) -> None:
        """Adds `counts` values per bucket number (-1 and `buckets` as from `bucket_of`).

        The exact values are gone: minimum and maximum become the buckets' outer bounds, the total that of
        their middles.
        """
        if len(buckets) == 0:
            return
        self._place(buckets, counts)
        inside = np.clip(buckets, 0, LAYOUT.buckets - 1)
        low, high = LAYOUT.lowest(inside), LAYOUT.lowest(inside + 1) - 1
        total = float(((low + high) / 2 * counts).sum())
        self._extend(int(counts.sum()), total, float(low.min()), float(high.max()))

    def add_failures(self, count: int = 1) -> None:
        self.failures += count

    def merge(self, other: Histogram) -> None:
        """Adds all of `other`: the result is the histogram of both sets of values together."""
        self.counts += other.counts
        self.negatives += other.negatives
        self.overflow += other.overflow
        self.failures += other.failures
        if other.minimum is not None and other.maximum is not None:
            self._extend(other.count, other.total, other.minimum, other.maximum)

    def value_at_rank(self, rank: int) -> tuple[float, float]:
        """The inclusive bounds of the value at `rank` (1 = smallest); (inf, inf) among the failures."""
        if not 1 <= rank <= self.count + self.failures:
            raise ValueError(f"no rank {rank} among {self.count} values and {self.failures} failures")
        if rank > self.count:
            return math.inf, math.inf
        assert self.minimum is not None
        assert self.maximum is not None
        if rank <= self.negatives:
            return self.minimum, -1.0
        if rank > self.count - self.overflow:
            return float(LAYOUT.limit), self.maximum
        bucket = int(np.searchsorted(np.cumsum(self.counts), rank - self.negatives))
        low, high = LAYOUT.bounds(bucket)
        at_least = max(float(low), self.minimum)
        at_most = self.maximum if rank == self.count else min(float(high), self.maximum)
        return at_least, max(at_least, at_most)

    def percentile_bounds(self, p: float) -> tuple[float, float]:
        """Between which values the percentile lies; `p` is a fraction: 0.99 is p99."""
        return self.value_at_rank(ceiling_rank(p, self.count + self.failures))

    def percentile(self, p: float) -> float | None:
        """The value at the ceiling rank over values and failures; inf where failures reach that rank.

        It is the upper end of the value's bucket: at most 0.1 % above the true one, and below it by a
        fraction of the unit at most. None when there is nothing at all.
        """
        if self.count + self.failures == 0:
            return None
        return self.percentile_bounds(p)[1]

    @property
    def mean(self) -> float | None:
        """Of the finite values; None without any."""
        return self.total / self.count if self.count else None

    def to_hdrh(self) -> Any:
        """The same counts as an `hdrh.histogram.HdrHistogram`, for .hgrm and .hlog files.

        Failures, negatives and overflows have no place there: say their numbers beside it.
        """
        from hdrh.histogram import HdrHistogram

        histogram = HdrHistogram(1, 3_600_000_000_000, 3)
        np.frombuffer(histogram.counts, np.int64)[:] = self.counts
        histogram.total_count = int(self.counts.sum())
        if histogram.total_count:
            used = np.flatnonzero(self.counts)
            histogram.min_value = LAYOUT.bounds(int(used[0]))[0]
            histogram.max_value = LAYOUT.bounds(int(used[-1]))[1]
        return histogram

    def _place(self, buckets: Ints, weights: Ints | None = None) -> None:
        low, high = int(buckets.min()), int(buckets.max())
        counts = np.bincount(buckets - low, weights=weights, minlength=high - low + 1)
        if low < 0:
            self.negatives += int(counts[0])
            counts, low = counts[1:], 0
        if high >= LAYOUT.buckets:
            self.overflow += int(counts[-1])
            counts = counts[:-1]
        self.counts[low : low + len(counts)] += counts.astype(np.int64, copy=False)

    def _extend(self, count: int, total: float, minimum: float, maximum: float) -> None:
        self.count += count
        self.total += total
        self.minimum = minimum if self.minimum is None else min(self.minimum, minimum)
        self.maximum = maximum if self.maximum is None else max(self.maximum, maximum)


def fold_gaps(samples: Rows, gap_counts: npt.NDArray[Any], gaps_ns: npt.NDArray[np.int64]) -> Rows:
    """Inter-chunk gaps as GAP_DTYPE rows, one per second, stream, endpoint, adapter and bucket.

    `samples` are successful rows of SAMPLE_DTYPE, `gap_counts[i]` says how many of the concatenated `gaps_ns`
    belong to `samples[i]`. Gaps of failed requests must be left out by the caller.
    """
    if len(gap_counts) != len(samples) or int(np.sum(gap_counts)) != len(gaps_ns):
        raise ValueError(f"{len(samples)} samples, {len(gap_counts)} gap counts for {len(gaps_ns)} gaps")
    if len(gaps_ns) == 0:
        return np.empty(0, GAP_DTYPE)
    groups = np.empty(len(samples), GAP_DTYPE[["slot", "stream", "endpoint", "adapter"]])
    groups["slot"] = samples["intended"] // 1_000_000_000
    for name in ("stream", "endpoint", "adapter"):
        groups[name] = samples[name]
    distinct, group_of = np.unique(groups, return_inverse=True)
    width = LAYOUT.buckets + 2
    keys = np.repeat(group_of.astype(np.int64) * width, gap_counts) + (LAYOUT.bucket_of(gaps_ns) + 1)
    used, counts = _count_distinct(keys)
    rows = np.empty(len(used), GAP_DTYPE)
    for name in ("slot", "stream", "endpoint", "adapter"):
        rows[name] = distinct[name][used // width]
    rows["bucket"] = used % width - 1
    rows["count"] = counts
    return rows


def _count_distinct(keys: Ints) -> tuple[Ints, Ints]:
    low = int(keys.min())
    span = int(keys.max()) - low + 1
    if span > 8 * len(keys) + 65_536:
        return np.unique(keys, return_counts=True)
    counts = np.bincount(keys - low, minlength=span)
    used = np.flatnonzero(counts)
    return used + low, counts[used]
