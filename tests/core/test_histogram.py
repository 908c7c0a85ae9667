"""The histogram against hdrh's own counts, sorted arrays, and its laws."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_inferslo.core.histogram import LAYOUT, Histogram, ceiling_rank, fold_gaps
from pytest_inferslo.core.samples import ABSENT, GAP_DTYPE, SAMPLE_DTYPE

VALUES = st.lists(st.one_of(st.integers(0, 5000), st.integers(0, LAYOUT.limit - 1)), max_size=60)
SHARES = st.sampled_from([0.01, 0.07, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0])


def made(values: list[int], failures: int = 0) -> Histogram:
    histogram = Histogram()
    histogram.add(np.array(values, np.int64))
    histogram.add_failures(failures)
    return histogram


def same(one: Histogram, other: Histogram) -> bool:
    plain = [(h.negatives, h.overflow, h.failures, h.count, h.minimum, h.maximum) for h in (one, other)]
    totals = math.isclose(one.total, other.total, rel_tol=1e-12)
    return plain[0] == plain[1] and totals and bool((one.counts == other.counts).all())


@given(VALUES)
def test_counts_are_those_of_hdrh(values: list[int]) -> None:
    theirs = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values:
        assert theirs.record_value(value)
    ours = made(values).to_hdrh()
    assert list(ours.counts) == list(theirs.counts)
    assert ours.total_count == theirs.total_count
    for percent in (50, 99, 100):
        assert ours.get_value_at_percentile(percent) == theirs.get_value_at_percentile(percent)
    assert ours.get_min_value() == theirs.get_min_value()
    assert ours.get_max_value() == theirs.get_max_value()


@given(st.integers(0, LAYOUT.limit - 1))
def test_a_bucket_holds_its_value_within_a_thousandth(value: int) -> None:
    low, high = LAYOUT.bounds(int(LAYOUT.bucket_of(np.array([value]))[0]))
    assert low <= value <= high
    assert high - low <= value / 1000


def test_ten_microseconds_keep_a_thousandth() -> None:
    low, high = LAYOUT.bounds(int(LAYOUT.bucket_of(np.array([10_000]))[0]))
    assert high - low < 10


@given(VALUES, st.integers(0, 5), SHARES)
def test_percentile_is_the_value_at_the_ceiling_rank(values: list[int], failures: int, p: float) -> None:
    ranked = [*sorted(values), *[math.inf] * failures]
    histogram = made(values, failures)
    if not ranked:
        assert histogram.percentile(p) is None
        return
    exact = ranked[math.ceil(Fraction(str(p)) * len(ranked)) - 1]
    low, high = histogram.percentile_bounds(p)
    assert low <= exact <= high
    assert histogram.percentile(p) == high
    assert high <= exact * 1.001 + 1


@given(st.lists(VALUES, max_size=5), st.randoms())
def test_merging_workers_in_any_order_gives_the_whole(parts: list[list[int]], random: object) -> None:
    shuffled = list(parts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    merged = Histogram()
    for part in shuffled:
        merged.merge(made(part, failures=len(part) % 3))
    assert same(merged, made([v for part in parts for v in part], sum(len(part) % 3 for part in parts)))


@given(VALUES, st.integers(0, 5), SHARES)
def test_one_more_failure_improves_no_percentile(values: list[int], failures: int, p: float) -> None:
    before = made(values, failures).percentile(p)
    after = made(values, failures + 1).percentile(p)
    assert after is not None
    assert before is None or after >= before


@pytest.mark.parametrize(
    ("p", "n", "rank"),
    [
        (0.07, 100, 7),  # 0.07 * 100 > 7 in floats
        (99.9 / 100, 1000, 999),  # 99.9 / 100 > 0.999 in floats
        (Fraction(999, 1000), 1000, 999),
        (0.99, 100, 99),
        (0.99, 101, 100),
        (0.99, 59, 59),
        (0.5, 1, 1),
        (0.001, 5, 1),
        (1.0, 7, 7),
    ],
)
def test_ceiling_rank(p: float, n: int, rank: int) -> None:
    assert ceiling_rank(p, n) == rank


@pytest.mark.parametrize("p", [0, -0.1, 99, 1.01])
def test_a_percentile_is_a_fraction(p: float) -> None:
    with pytest.raises(ValueError, match="fraction"):
        ceiling_rank(p, 10)


def test_what_has_no_bucket_is_counted() -> None:
    beyond = LAYOUT.limit
    histogram = made([-5, 100, beyond, 3 * beyond])
    assert (histogram.count, histogram.negatives, histogram.overflow) == (4, 1, 2)
    assert histogram.value_at_rank(1) == (-5, -1)
    assert histogram.value_at_rank(2) == (100, 100)
    assert histogram.value_at_rank(4) == (beyond, 3 * beyond)
    assert histogram.to_hdrh().total_count == 1


def test_nothing_is_never_zero() -> None:
    empty = Histogram()
    assert empty.percentile(0.99) is None
    assert empty.mean is None
    assert empty.minimum is None
    with pytest.raises(ValueError, match="no rank"):
        empty.value_at_rank(1)


def test_fractions_keep_their_extremes() -> None:
    histogram = Histogram()
    histogram.add(np.array([10.25, 10.75]))
    assert histogram.minimum == 10.25
    assert histogram.percentile(1.0) == 10.75
    assert histogram.mean == 10.5


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5_000_000_000),
            st.integers(0, 2),
            st.lists(st.one_of(st.integers(-3, 10**9), st.just(LAYOUT.limit + 7)), max_size=8),
        ),
        max_size=12,
    )
)
def test_folded_gaps_are_the_gaps(requests: list[tuple[int, int, list[int]]]) -> None:
    samples = np.zeros(len(requests), SAMPLE_DTYPE)
    samples["intended"] = [intended for intended, _, _ in requests]
    samples["endpoint"] = [endpoint for _, endpoint, _ in requests]
    samples["adapter"] = ABSENT
    expected: dict[tuple[int, ...], int] = {}
    for intended, endpoint, gaps in requests:
        for gap in gaps:
            bucket = int(LAYOUT.bucket_of(np.array([gap]))[0])
            key = (intended // 10**9, 0, endpoint, ABSENT, bucket)
            expected[key] = expected.get(key, 0) + 1
    gaps_ns = np.array([gap for _, _, gaps in requests for gap in gaps], np.int64)
    rows = fold_gaps(samples, np.array([len(gaps) for _, _, gaps in requests], np.int64), gaps_ns)
    assert rows.dtype == GAP_DTYPE
    assert {tuple(row)[:5]: row["count"] for row in rows} == expected
    assert len(rows) == len(expected)


def test_gaps_that_belong_to_no_sample_are_refused() -> None:
    with pytest.raises(ValueError, match="gap counts"):
        fold_gaps(np.zeros(1, SAMPLE_DTYPE), np.array([2]), np.array([1, 2, 3]))
