"""Distributions of token lengths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from pytest_inferslo.core.prompts import Lengths, lognormal, normal, uniform, zipf
from pytest_inferslo.core.prompts.lengths import Fixed, lengths
from pytest_inferslo.errors import ScenarioError

DRAWN = np.random.Generator(np.random.PCG64(1)).random(20_000)


def drawn(distribution: Lengths) -> np.ndarray:
    return np.array([distribution.at(u) for u in DRAWN])


@pytest.mark.parametrize(
    ("distribution", "mean", "deviation"),
    [
        (Fixed(128), 128, 0),
        (uniform(64, 512), 288, math.sqrt((449**2 - 1) / 12)),
        (normal(200, 30), 200, 30),
        (normal(200, 30, low=200, high=400), 200 + 30 * math.sqrt(2 / math.pi), None),
        (lognormal(100, 0.5), 100 * math.exp(0.125), None),
        (zipf(10, 10), 10, 0),
        (zipf(1, 2, 1.0), 4 / 3, None),
    ],
)
def test_moments(distribution: Lengths, mean: float, deviation: float | None) -> None:
    found = drawn(distribution)
    assert found.mean() == pytest.approx(mean, rel=0.02)
    if deviation is not None:
        assert found.std() == pytest.approx(deviation, rel=0.02, abs=1e-9)
    assert found.min() >= distribution.least


def test_truncation_makes_no_heap_at_the_bounds() -> None:
    found = drawn(normal(100, 50, low=50, high=150))
    counts = np.bincount(found, minlength=151)[50:]
    assert counts[0] < 2 * counts[1:10].mean()
    assert counts[-1] < 2 * counts[-10:-1].mean()
    low, high = (
        drawn(lognormal(100, 2.0, low=50, high=200)).min(),
        drawn(lognormal(100, 2.0, low=50, high=200)).max(),
    )
    assert (low, high) == (50, 200)


def test_lognormal_follows_its_distribution() -> None:
    found = drawn(lognormal(5_000, 0.7))
    assert stats.kstest(np.log(found / 5_000) / 0.7, "norm").pvalue > 1e-3


def test_zipf_follows_its_law() -> None:
    counts = np.bincount(drawn(zipf(5, 104, 1.2)), minlength=105)[5:]
    expected = np.arange(1, 101) ** -1.2
    assert stats.chisquare(counts, expected / expected.sum() * counts.sum()).pvalue > 1e-3


def test_uniform_is_even_with_both_ends() -> None:
    counts = np.bincount(drawn(uniform(3, 12)))[3:]
    assert len(counts) == 10
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize(
    "distribution",
    [Fixed(3), uniform(3, 9), normal(5, 2, low=3), lognormal(5, 1, low=3, high=99), zipf(3, 9)],
)
def test_ends_of_the_unit_interval(distribution: Lengths, u: float) -> None:
    assert 3 <= distribution.at(u) <= getattr(distribution, "high", 3)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(7, Fixed(7)), ((3, 9), uniform(3, 9)), ([3, 9], uniform(3, 9)), (zipf(1, 2), zipf(1, 2))],
)
def test_shorthands(value: object, expected: Lengths) -> None:
    assert lengths("input_tokens", value) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: uniform(9, 3), ["low is 9", "high=3"]),
        (lambda: uniform(0, 3), ["low is 0"]),
        (lambda: normal(0, 3), ["mean is 0"]),
        (lambda: normal(5, 0), ["deviation is 0"]),
        (lambda: lognormal(5, -1), ["sigma is -1"]),
        (lambda: normal(5, 1, low=900), ["almost none of it"]),
        (lambda: zipf(1, 9, 0), ["exponent is 0"]),
        (lambda: lengths("output_tokens", 2.5), ["output_tokens is 2.5", "lognormal()"]),  # type: ignore[arg-type]
        (lambda: lengths("output_tokens", True), ["output_tokens is True"]),
    ],
)
def test_refusals(make, words: list[str]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ScenarioError) as refused:
        make()
    for word in words:
        assert word in str(refused.value)
