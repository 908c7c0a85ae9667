"""Arrivals by rate: exact counts by table, random ones by the statistics of their process."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pytest_inferslo.core.arrivals import (
    Arrivals,
    bursts,
    concurrency,
    constant,
    gamma,
    poisson,
    ramp,
    sine,
    spike,
    steps,
)
from pytest_inferslo.errors import ScenarioError


def times(arrivals: Arrivals, seconds: float, seed: int = 0, lead: float = 0.0) -> np.ndarray:
    return arrivals.schedule(seconds, seed, lead).intended / 1e9


def test_constant_is_evenly_spaced_from_zero() -> None:
    schedule = constant("50/s").schedule(60, seed=0)
    assert len(schedule) == 3000
    assert schedule.end == 60_000_000_000
    assert np.array_equal(schedule.intended, np.arange(3000) * 20_000_000)
    assert np.array_equal(schedule.index, np.arange(3000))
    assert schedule.input_tokens is None
    assert not schedule.closed


@pytest.mark.parametrize(
    ("arrivals", "seconds", "expected"),
    [
        (constant("50/s"), 60, 3000),
        (constant(0.1), 0.3, 1),  # 0.03 expected: the first one comes at once
        (constant("600/min"), 60, 600),
        (constant(3), 1 / 3 * 100, 100),
        (bursts("20/s", "200/s", "10s", "2s"), 60, 6 * (8 * 20 + 2 * 200)),
        (ramp("0/s", "100/s"), 60, 3000),
        (ramp("100/s", "0/s"), 60, 3000),
        (ramp("10/s", "30/s", "10s"), 20, 200 + 300),
        (steps(["10/s", "20/s", "40/s"], "10s"), 30, 700),
        (steps(["10/s", "0/s"], "10s"), 20, 100),
        (spike("150/s", "3500/s", at="20s", length="5s"), 60, 150 * 55 + 3500 * 5),
        (spike("150/s", "3500/s", at="20s", length="5s", edge="2s"), 60, 150 * 51 + 3500 * 5 + 2 * 2 * 1825),
        (sine("10/s", "30/s", "60s", process="constant"), 60, 1200),
        (sine("10/s", "30/s", "60s", process="constant"), 30, 600),
    ],
)
def test_constant_process_gives_exact_counts(arrivals: Arrivals, seconds: float, expected: int) -> None:
    found = times(arrivals, seconds)
    assert len(found) == expected
    assert np.all(np.diff(found) >= 0)
    assert found[0] >= 0
    assert found[-1] < seconds


@pytest.mark.parametrize(
    ("arrivals", "windows"),
    [
        (bursts("20/s", "200/s", "10s", "2s"), {(0, 4): 80, (4, 6): 400, (6, 10): 80, (14, 16): 400}),
        (ramp("0/s", "100/s", "10s"), {(0, 5): 125, (5, 10): 375, (10, 20): 1000}),
        (steps(["10/s", "20/s"], "10s"), {(0, 10): 100, (10, 20): 200}),
        (spike("10/s", "100/s", at="5s", length="2s"), {(0, 5): 50, (5, 7): 200, (7, 20): 130}),
        (spike("10/s", "100/s", at="5s", length="2s", edge="1s"), {(4, 5): 55, (5, 7): 200, (7, 8): 55}),
        # mean 20, amplitude 10: a quarter period of the minus cosine lacks 10 x 20 / (2 pi)
        (sine("10/s", "30/s", "20s", process="constant"), {(0, 5): 68, (5, 10): 132, (10, 15): 132}),
    ],
)
def test_the_rate_follows_its_profile(arrivals: Arrivals, windows: dict[tuple[int, int], int]) -> None:
    found = times(arrivals, 20)
    for (low, high), expected in windows.items():
        assert np.count_nonzero((found >= low) & (found < high)) == pytest.approx(expected, abs=1)


def test_a_ramp_is_the_inverse_of_its_integral() -> None:
    found = times(ramp("0/s", "100/s", "10s"), 10)
    # L(t) = 5 t^2 = k
    assert found == pytest.approx(np.sqrt(np.arange(500) / 5), abs=1e-9)


@pytest.mark.parametrize("seconds_of_warmup", [0.0, 7.5])
@pytest.mark.parametrize(
    ("arrivals", "first_rate"),
    [
        (bursts("20/s", "200/s", "10s", "2s"), 20),
        (spike("15/s", "350/s", at="5s", length="5s"), 15),
        (ramp("10/s", "100/s"), 10),
        (sine("10/s", "30/s", "60s", process="constant"), 10),
    ],
)
def test_the_warm_up_holds_the_first_rate(
    arrivals: Arrivals, first_rate: float, seconds_of_warmup: float
) -> None:
    """The shape's zero is the start of the measured window, so its counts do not depend on the warm-up."""
    warm = times(arrivals, 60 + seconds_of_warmup, lead=seconds_of_warmup)
    early = np.count_nonzero(warm < seconds_of_warmup)
    assert early == pytest.approx(first_rate * seconds_of_warmup, abs=1)
    assert len(warm) - early == pytest.approx(len(times(arrivals, 60)), abs=1)


@pytest.mark.parametrize("seed", range(5))
def test_poisson_gaps_and_counts(seed: int) -> None:
    found = times(poisson("180/s"), 600, seed)
    counts = np.histogram(found, bins=600, range=(0, 600))[0]
    assert len(found) == pytest.approx(108_000, abs=5 * np.sqrt(108_000))
    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.3)  # dispersion index
    assert stats.kstest(np.diff(found) * 180, "expon").pvalue > 1e-4
    lag_one = np.corrcoef(np.diff(found)[:-1], np.diff(found)[1:])[0, 1]
    assert abs(lag_one) < 0.02


@pytest.mark.parametrize("shape", [0.25, 0.5, 1.0, 4.0, 100.0])
def test_gamma_gaps_have_the_coefficient_of_variation_of_their_shape(shape: float) -> None:
    """As in `vllm bench serve --burstiness`: Gamma(shape, scale = 1 / (rate x shape))."""
    gaps = np.diff(times(gamma("200/s", shape), 500, seed=3))
    assert gaps.mean() == pytest.approx(1 / 200, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(1 / np.sqrt(shape), rel=0.05)
    # not by its p value: at shape 0.25 one gap in a hundred is below a nanosecond, and rounds to zero
    assert stats.kstest(gaps * 200, stats.gamma(shape, scale=1 / shape).cdf).statistic < 0.016


@pytest.mark.parametrize(
    ("arrivals", "integral"),
    [
        (ramp("0/s", "200/s", process="poisson"), lambda t: t * t),
        (sine("50/s", "150/s", "100s"), lambda t: 100 * t - 50 * 100 / (2 * np.pi) * np.sin(np.pi * t / 50)),
        (
            spike("50/s", "500/s", at="40s", length="10s", process="poisson"),
            lambda t: 50 * t + 450 * np.clip(t - 40, 0, 10),
        ),
        (
            bursts("50/s", "500/s", "20s", "4s", process="poisson"),
            lambda t: 50 * t + 450 * (4 * (t // 20) + np.clip(t % 20 - 8, 0, 4)),
        ),
    ],
)
def test_time_rescaling_makes_an_inhomogeneous_poisson_process(arrivals: Arrivals, integral) -> None:  # type: ignore[no-untyped-def]
    """The integral of the rate at the arrivals is a Poisson process of rate 1."""
    rescaled = integral(times(arrivals, 100, seed=1))
    assert len(rescaled) == pytest.approx(integral(100.0), abs=5 * np.sqrt(integral(100.0)))
    assert stats.kstest(np.diff(rescaled, prepend=0), "expon").pvalue > 1e-4


def test_gamma_bursts_keep_their_mean() -> None:
    found = times(bursts("50/s", "500/s", "20s", "4s", process="gamma", shape=0.25), 100, seed=2)
    assert len(found) == pytest.approx(5 * (16 * 50 + 4 * 500), rel=0.1)


@pytest.mark.parametrize("arrivals", [poisson("100/s"), gamma("100/s", 0.5), sine("10/s", "100/s", "30s")])
def test_the_seed_decides(arrivals: Arrivals) -> None:
    first, again, other = (arrivals.schedule(30, seed) for seed in (7, 7, 8))
    assert np.array_equal(first.intended, again.intended)
    assert not np.array_equal(first.intended[:100], other.intended[:100])


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_stripes_are_the_whole_and_keep_their_index(workers: int) -> None:
    whole = poisson("200/s").schedule(20, seed=4)
    stripes = [whole.stripe(worker, workers) for worker in range(workers)]
    index = np.concatenate([stripe.index for stripe in stripes])
    intended = np.concatenate([stripe.intended for stripe in stripes])
    order = np.argsort(index)
    assert np.array_equal(index[order], whole.index)
    assert np.array_equal(intended[order], whole.intended)
    for worker, stripe in enumerate(stripes):
        assert np.all(stripe.index % workers == worker)
        assert np.all(np.diff(stripe.intended) >= 0)


def test_ten_thousand_a_second_for_ten_minutes() -> None:
    schedule = poisson("10000/s").schedule(600, seed=0)
    assert len(schedule) == pytest.approx(6_000_000, abs=5 * np.sqrt(6_000_000))
    assert schedule.intended.dtype == np.int64


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        (constant(5), [("measured", 0, 60)]),
        (ramp(1, 5), [("ramp", 0, 60)]),
        (ramp(1, 5, "20s"), [("ramp", 0, 20), ("hold", 20, 60)]),
        (steps([1, 2], "30s"), [("step-1", 0, 30), ("step-2", 30, 60)]),
        (spike(1, 9, "20s", "5s"), [("base", 0, 20), ("spike", 20, 25), ("recovery", 25, 60)]),
        (spike(1, 9, "20s", "5s", edge="1s"), [("base", 0, 19), ("spike", 19, 26), ("recovery", 26, 60)]),
        (spike(1, 9, "0s", "5s"), [("spike", 0, 5), ("recovery", 5, 60)]),
        (
            bursts(1, 9, "30s", "10s"),
            [("base", 0, 10), ("burst", 10, 20), ("base", 20, 40), ("burst", 40, 50), ("base", 50, 60)],
        ),
        (concurrency(4), [("measured", 0, 60)]),
    ],
)
def test_phases_cover_the_window(arrivals: Arrivals, expected: list[tuple[str, float, float]]) -> None:
    assert [tuple(span) for span in arrivals.spans(60)] == expected


@pytest.mark.parametrize(
    ("arrivals", "scaled"),
    [
        (constant(5), constant(5)),
        (bursts(1, 9, "30s", "10s"), bursts(1, 9, "3s", "1s")),
        (ramp(1, 5, "20s"), ramp(1, 5, "2s")),
        (ramp(1, 5), ramp(1, 5)),
        (steps([1, 2], "30s"), steps([1, 2], "3s")),
        (spike(1, 9, "20s", "5s", edge="1s"), spike(1, 9, "2s", "0.5s", edge="0.1s")),
        (sine(1, 9), sine(1, 9, "2.4h")),
        (concurrency(4, "1s", ramp="20s"), concurrency(4, "1s", ramp="2s")),
    ],
)
def test_scaling_changes_times_and_no_rate(arrivals: Arrivals, scaled: Arrivals) -> None:
    assert arrivals.scaled(0.1) == scaled


def test_closed_loop_users_start_along_the_ramp_and_think() -> None:
    loop = concurrency(4, "2s", thinking="exponential", ramp="8s")
    schedule = loop.schedule(60, seed=1)
    assert schedule.closed
    assert not loop.open_loop
    assert schedule.intended.tolist() == [0, 2_000_000_000, 4_000_000_000, 6_000_000_000]
    assert schedule.stripe(1, 2).index.tolist() == [1, 3]
    pauses = np.array([loop.think_ns(1, index) for index in range(20_000)]) / 1e9
    assert stats.kstest(pauses / 2, "expon").pvalue > 1e-4
    assert loop.think_ns(1, 5) == loop.think_ns(1, 5) != loop.think_ns(2, 5)
    assert concurrency(4, "2s").think_ns(1, 5) == 2_000_000_000


@pytest.mark.parametrize(
    ("make", "field", "accepted"),
    [
        (lambda: constant(0), "rate is 0", "above zero"),
        (lambda: constant("-5/s"), "rate is '-5/s'", "a rate like '20/s'"),
        (lambda: constant(-5), "rate is -5", "not negative"),
        (lambda: constant("50"), "rate is '50'", "unit"),
        (lambda: constant("50ms"), "rate is '50ms'", "'20/s'"),
        (lambda: constant(float("nan")), "rate is nan", "finite"),
        (lambda: gamma(5, 0), "shape is 0", "above 0"),
        (lambda: gamma(5, -1), "shape is -1", "above 0"),
        (lambda: bursts(1, 5, "10s", "10s"), "length is '10s'", "shorter than its period"),
        (lambda: bursts(1, 0, "10s", "1s"), "peak is 0", "above zero"),
        (lambda: bursts(1, 5, "0s", "1s"), "every is '0s'", "longer than zero"),
        (
            lambda: bursts(1, 5, "10s", "1s", process="poison"),
            "process is 'poison'",
            "did you mean 'poisson'",
        ),
        (lambda: ramp(0, 0), "end is 0", "above zero"),
        (lambda: steps([], "10s"), "rates is []", "list of rates"),
        (lambda: steps([0, 0], "10s"), "rates is [0, 0]", "above zero"),
        (lambda: steps(["1/s", "x"], "10s"), "rates[1] is 'x'", "'20/s'"),
        (lambda: spike(1, 5, "1s", "5s", edge="2s"), "edge is '2s'", "before the spike"),
        (lambda: sine(9, 5), "low is 9", "not be above high"),
        (lambda: concurrency(0), "users is 0", "whole number from 1"),
        (lambda: concurrency(2.5), "users is 2.5", "whole number"),  # type: ignore[arg-type]
        (lambda: concurrency(2, "1s", thinking="often"), "thinking is 'often'", "exponential"),
    ],
)
def test_refusals_name_field_value_and_what_is_accepted(make, field: str, accepted: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ScenarioError) as refused:
        make()
    assert field in str(refused.value)
    assert accepted in str(refused.value)


@pytest.mark.parametrize(
    ("arrivals", "seconds", "reason"),
    [
        (bursts(1, 5, "60s", "10s"), 30, "no burst would end"),
        (ramp(1, 5, "60s"), 30, "would not end"),
        (steps([1, 2, 3], "20s"), 50, "3 steps do not fit"),
        (spike(1, 5, at="25s", length="5s", edge="1s"), 30, "would not end"),
        (concurrency(4, ramp="60s"), 30, "before all users start"),
    ],
)
def test_a_shape_must_fit_its_window(arrivals: Arrivals, seconds: float, reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        arrivals.check(seconds, 0.0)
    arrivals.check(120, 0.0)
