from __future__ import annotations

import numpy as np
import pytest
from scipy import signal

from pytest_inferslo.core import sequential, statistics
from pytest_inferslo.core.means import mean_bounds
from pytest_inferslo.core.statistics import (
    Clustering,
    block_length,
    proves_share,
    quantile_ranks,
    refutes_share,
    required_samples,
    samples_to_decide,
    share_bounds,
    share_clustering,
)


@pytest.mark.parametrize(
    ("share", "confidence", "smallest"),
    [  # the table of docs/statistics.md, t = 0, 1, 2, 5, 10, 50
        (0.95, 0.99, [90, 130, 165, 259, 398, 1_372]),
        (0.99, 0.95, [299, 473, 628, 1_049, 1_693, 6_323]),
        (0.99, 0.99, [459, 662, 838, 1_307, 2_010, 6_898]),
        (0.999, 0.95, [2_995, 4_742, 6_294, 10_511, 16_959, 63_281]),
        (0.999, 0.99, [4_603, 6_636, 8_403, 13_105, 20_140, 69_058]),
    ],
)
def test_the_table_of_early_stopping(share: float, confidence: float, smallest: list[int]) -> None:
    over = [0, 1, 2, 5, 10, 50]
    assert [required_samples(share, t, confidence) for t in over] == smallest
    for t, n in zip(over, smallest, strict=True):
        assert proves_share(n - t, t, share, confidence)
        assert not proves_share(n - t - 1, t, share, confidence)


def test_proof_and_refutation_are_mirror_images() -> None:
    within, over = np.meshgrid(np.arange(0, 400, 7), np.arange(0, 60))
    proved = proves_share(within, over, 0.9, 0.95)
    refuted = refutes_share(within, over, 0.9, 0.95)
    assert not (proved & refuted).any()
    assert not proves_share(0, 0, 0.9, 0.95)
    assert not refutes_share(0, 0, 0.9, 0.95)
    assert (refutes_share(over, within, 0.1, 0.95) == proves_share(within, over, 0.9, 0.95))[
        1:, 1:
    ].mean() > 0.9


def test_bounds_of_a_share_agree_with_the_tests() -> None:
    for hits, trials in ((0, 459), (3, 1_000), (50, 900), (900, 900)):
        low, high = share_bounds(hits, trials, 0.99)
        assert low <= hits / trials <= high
        for limit in (0.001, 0.005, 0.01, 0.05, 0.1):
            assert bool(proves_share(trials - hits, hits, 1 - limit, 0.99)) == (high <= limit)
            assert bool(refutes_share(trials - hits, hits, 1 - limit, 0.99)) == (low >= limit)
    assert share_bounds(0, 459, 0.99)[1] == pytest.approx(0.01, rel=0.01)
    assert share_bounds(0, 0, 0.99) == (0.0, 1.0)


def test_the_ranks_that_bound_a_quantile_cover_it_as_often_as_said() -> None:
    rng = np.random.default_rng(1)
    low, high = quantile_ranks(800, 800, 0.95, 0.95)
    assert low is not None
    assert high is not None
    values = np.sort(rng.random((4_000, 800)), axis=1)
    assert (values[:, low - 1] > 0.95).mean() == pytest.approx(0.05, abs=0.015)
    assert (values[:, high - 1] < 0.95).mean() == pytest.approx(0.05, abs=0.015)
    assert quantile_ranks(458, 458, 0.99, 0.99)[1] is None
    assert quantile_ranks(459, 459, 0.99, 0.99)[1] == 459


def test_fewer_effective_samples_widen_the_ranks() -> None:
    narrow, wide = quantile_ranks(5_000, 5_000, 0.99, 0.99), quantile_ranks(5_000, 1_000, 0.99, 0.99)
    assert wide[0] < narrow[0]  # type: ignore[operator]
    assert wide[1] > narrow[1]  # type: ignore[operator]


def test_how_many_more_samples_would_decide() -> None:
    factor = samples_to_decide(300, 0, 0.99, 0.99)
    assert factor == pytest.approx(459 / 300, rel=0.02)
    assert samples_to_decide(990, 10, 0.99, 0.99) is None  # exactly what is allowed
    worse = samples_to_decide(980, 20, 0.99, 0.99)
    assert worse is not None
    assert refutes_share(980 * worse, 20 * worse, 0.99, 0.99)


def slots(values: np.ndarray, per_slot: int, limit: float) -> tuple[np.ndarray, np.ndarray]:
    over = (values > limit).reshape(-1, per_slot).sum(axis=1)
    return over, np.full(len(over), per_slot)


def ar1(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    noise = rng.standard_normal(n) * np.sqrt(1 - phi**2)
    noise[0] /= np.sqrt(1 - phi**2)
    return signal.lfilter([1.0], [1.0, -phi], noise)


def test_independent_requests_are_worth_themselves() -> None:
    rng = np.random.default_rng(2)
    effects = [share_clustering(*slots(rng.standard_normal(6_000), 100, 1.5)).effect for _ in range(200)]
    assert np.median(effects) < 1.2
    assert np.quantile(effects, 0.99) < 2.0


def test_requests_that_are_alike_are_worth_fewer() -> None:
    rng = np.random.default_rng(3)
    phi = 0.95
    effects = [share_clustering(*slots(ar1(rng, 6_000, phi), 100, 0.0)).effect for _ in range(20)]
    # For a sign series of an AR(1): sum of (2/pi) asin(phi^k) over all lags.
    exact = 1 + 2 * sum(2 / np.pi * np.arcsin(phi**k) for k in range(1, 400))
    assert np.mean(effects) == pytest.approx(exact, rel=0.25)


def test_a_phase_that_was_asked_for_is_no_chance() -> None:
    rng = np.random.default_rng(4)
    phase = np.tile([0, 0, 0, 1], 15)
    hits = rng.binomial(50, np.where(phase == 1, 0.3, 0.01))
    trials = np.full(60, 50)
    assert share_clustering(hits, trials).effect > 3
    assert share_clustering(hits, trials, phase).effect < 2
    alone = np.arange(60)  # phases of one second each have no level of their own
    assert share_clustering(hits, trials, alone).effect > 3


def test_blocks_are_as_long_as_neighbours_are_alike() -> None:
    rng = np.random.default_rng(5)
    assert block_length(np.ones(100)) == 1
    assert block_length(rng.standard_normal(400)) <= 3
    assert 8 <= block_length(ar1(rng, 2_000, 0.9)) <= 200
    assert block_length(np.arange(100.0)) == 10  # a trend: as long as is allowed


def test_few_blocks_count_for_less() -> None:
    assert Clustering(1.0, 30).discount(0.99) == pytest.approx(0.893, abs=0.001)
    assert Clustering(2.0, 10_000).discount(0.99) == pytest.approx(0.5, abs=0.001)
    assert Clustering(3.0, 1).discount(0.99) == pytest.approx(1 / 3)


@pytest.mark.parametrize("phi", [0.0, 0.8])
def test_bounds_of_a_mean_cover_it_as_often_as_said(phi: float) -> None:
    rng = np.random.default_rng(6)
    counts = np.full(120, 10)
    below = above = 0
    for _ in range(200):
        bounds = mean_bounds(10 * ar1(rng, 120, phi), counts, 0.95)
        assert bounds is not None
        below += bounds[0] > 0
        above += bounds[1] < 0
    assert below / 200 < 0.11
    assert above / 200 < 0.11


def test_bounds_of_a_mean_are_the_same_each_time_and_need_blocks() -> None:
    rng = np.random.default_rng(7)
    totals, counts = rng.lognormal(size=60) * 30, np.full(60, 30)
    assert mean_bounds(totals, counts, 0.99) == mean_bounds(totals, counts, 0.99)
    assert mean_bounds(totals[:4], counts[:4], 0.99) is None


@pytest.mark.parametrize("share", [0.95, 0.99])
def test_looking_after_every_request_fools_the_fixed_test_alone(share: float) -> None:
    """With the truth at the very limit, 1 run in 100 may be fooled; the test for one look is fooled far more often."""
    rng = np.random.default_rng(8)
    over = np.cumsum(rng.random((500, 2_000)) < 1 - share, axis=1)[:, ::10]
    within = np.arange(1, 2_001)[::10] - over
    for name in ("proves_share", "refutes_share"):
        anytime = getattr(sequential, name)(within, over, share, 0.99)
        fixed = getattr(statistics, name)(within, over, share, 0.99)
        assert anytime.any(axis=1).mean() <= 0.02
        assert fixed.any(axis=1).mean() > 0.025


def test_an_anytime_proof_takes_little_more() -> None:
    n = np.arange(1, 2_000)
    clean = int(n[np.argmax(sequential.proves_share(n, np.zeros_like(n), 0.99, 0.99))])
    assert clean == 556  # 459 for a single look
    storm = int(n[np.argmax(sequential.refutes_share(np.zeros_like(n), n, 0.99, 0.99))])
    assert storm <= 4
    assert not sequential.proves_share(0, 0, 0.99, 0.99)


def test_an_anytime_mean_stands_further_off() -> None:
    for blocks in (10, 50, 1_000):
        assert sequential.mean_reach(blocks, 0.99) > statistics.student(blocks, 0.99)
