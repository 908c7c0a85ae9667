from __future__ import annotations

import pytest

from pytest_inferslo.core.cost import (
    Prices,
    cost_of_tokens,
    cost_per_million_tokens,
    instances_needed,
    run_cost,
)
from pytest_inferslo.core.tally import Tokens


def test_case_38_cached_input_is_priced_apart_and_reasoning_is_output() -> None:
    tokens = Tokens(prompt=1_000, cached=400, output=50, reasoning=30, requests=1)
    assert cost_of_tokens(tokens, Prices(input=1, cached_input=0.10, output=2)) == pytest.approx(
        0.000740, abs=1e-12
    )
    assert cost_of_tokens(tokens, Prices(input=1, output=2)) == pytest.approx(0.001100, abs=1e-12)
    with pytest.raises(ValueError, match="price for input and for output"):
        cost_of_tokens(tokens, Prices(input=1))


def test_an_hourly_price_is_spread_over_the_tokens_of_an_hour() -> None:
    tokens = Tokens(prompt=2_000_000, output=1_000_000)
    assert cost_per_million_tokens(tokens, 3_600, Prices(hour=3.27)) == pytest.approx(3.27)
    assert cost_per_million_tokens(tokens, 1_800, Prices(hour=3.27, instances=2)) == pytest.approx(3.27)
    assert cost_per_million_tokens(tokens, 3_600, Prices(hour=3.27, count="all")) == pytest.approx(1.09)
    assert cost_per_million_tokens(Tokens(), 3_600, Prices(hour=3.27)) is None


def test_token_prices_give_the_blended_price() -> None:
    tokens = Tokens(prompt=3_000, output=1_000)
    assert cost_per_million_tokens(tokens, 60, Prices(input=1, output=2)) == pytest.approx(1.25)


def test_a_report_can_be_redone_by_hand() -> None:
    assert run_cost(24, 6, 3.27) == pytest.approx(470.88)
    assert run_cost(72, 6, 3.27) == pytest.approx(1_412.64)


@pytest.mark.parametrize(
    ("offered", "capacity", "needed"), [(500, 90, 6), (500, 60, 9), (0, 90, 1), (90, 90, 1)]
)
def test_instances_for_a_rate(offered: float, capacity: float, needed: int) -> None:
    assert instances_needed(offered, capacity) == needed
    with pytest.raises(ValueError, match="serves nothing"):
        instances_needed(offered, 0)
