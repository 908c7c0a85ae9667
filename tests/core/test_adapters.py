"""The weighted choice of adapters and endpoints."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pytest_inferslo.core.adapters import Adapters, adapters, choose_endpoint
from pytest_inferslo.core.samples import ABSENT
from pytest_inferslo.errors import ScenarioError

INDICES = np.arange(50_000)


@pytest.mark.parametrize(
    ("chosen", "shares"),
    [
        (adapters(["a", "b", "c", "d"]), [0, 0.25, 0.25, 0.25, 0.25]),
        (adapters(["a", "b", "c"], "zipf"), [0, 6 / 11, 3 / 11, 2 / 11]),
        (adapters(["a", "b"], "zipf", exponent=2.0), [0, 0.8, 0.2]),
        (adapters(["a", "b"], [3, 1]), [0, 0.75, 0.25]),
        (adapters(["a", "b"], {"b": 3, "a": 1}), [0, 0.25, 0.75]),
        (adapters(["a", "b"], base=0.5), [0.5, 0.25, 0.25]),
        (adapters(["a", "b", "c"], [1, 0, 1]), [0, 0.5, 0, 0.5]),
        (adapters("only"), [0, 1]),
    ],
)
def test_shares(chosen: Adapters, shares: list[float]) -> None:
    counts = np.bincount(chosen.choose(3, INDICES) - ABSENT, minlength=len(shares))
    expected = np.array(shares) * len(INDICES)
    assert np.array_equal(counts[expected == 0], [0] * np.count_nonzero(expected == 0))
    some = expected > 0
    assert some.sum() == 1 or stats.chisquare(counts[some], expected[some]).pvalue > 1e-3


def test_a_choice_depends_on_seed_and_index_alone() -> None:
    chosen = adapters([f"a{i}" for i in range(10)])
    whole = chosen.choose(1, INDICES)
    assert whole.dtype == np.int16
    assert np.array_equal(chosen.choose(1, INDICES[7::3]), whole[7::3])
    assert not np.array_equal(chosen.choose(2, INDICES), whole)
    # the endpoint is drawn apart from the adapter
    endpoints = choose_endpoint([1.0] * 10, 1, INDICES)
    assert np.mean(endpoints == whole) == pytest.approx(0.1, abs=0.01)


def test_endpoints_by_weight() -> None:
    counts = np.bincount(choose_endpoint([95, 0, 5], 0, INDICES), minlength=3)
    assert counts[1] == 0
    assert counts[2] / len(INDICES) == pytest.approx(0.05, abs=0.005)


def test_routing() -> None:
    assert (adapters(["a"]).route, adapters(["a"]).header) == ("model", "")
    routed = adapters(["a"], header="x-adapter")
    assert (routed.route, routed.header) == ("header", "x-adapter")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: adapters([]), ["names is []", "one or more"]),
        (lambda: adapters(["a", "a"]), ["a stands there more than once"]),
        (lambda: adapters(["a", ""]), ["non-empty"]),
        (lambda: adapters(["a"], "zip"), ["weights is 'zip'", "did you mean 'zipf'"]),
        (lambda: adapters(["a", "b"], [1]), ["weights is (1,)", "2 weights"]),
        (lambda: adapters(["a", "b"], [1, -1]), ["weights[1] is -1"]),
        (lambda: adapters(["a", "b"], [0, 0]), ["above zero"]),
        (lambda: adapters(["a", "b"], {"a": 1, "c": 1}), ["one weight for each of a, b"]),
        (lambda: adapters(["a"], exponent=2.0), ["exponent is 2", "weights='zipf' alone"]),
        (lambda: adapters(["a"], base=1.5), ["base is 1.5", "0 to 1"]),
        (lambda: Adapters(("a",), (1.0,), "header"), ["header is ''"]),
        (lambda: Adapters(("a",), (1.0,), "body"), ["route is 'body'", "model, header"]),
    ],
)
def test_refusals(make, words: list[str]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ScenarioError) as refused:
        make()
    for word in words:
        assert word in str(refused.value)
