from __future__ import annotations

import math

import pytest

from pytest_inferslo.core.metrics import Dimension
from pytest_inferslo.core.units import (
    UNITS,
    QuantityError,
    dimension_of,
    format_quantity,
    parse_duration,
    parse_quantity,
    parse_rate,
    parse_share,
)

D = Dimension


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("250ms", D.TIME, 250e6),
        ("1.1ms", D.TIME, 1_100_000),  # not 1100000.0000000002
        ("5 us", D.TIME, 5_000),
        ("5µs", D.TIME, 5_000),
        ("2e3ns", D.TIME, 2_000),
        ("1h30m", D.TIME, 5_400e9),
        ("2w", D.TIME, 1_209_600e9),
        ("0.1%", D.SHARE, 0.001),
        ("120 %", D.SHARE, 1.2),
        ("180/s", D.RATE, 180),
        ("10k/s", D.RATE, 10_000),
        ("600 requests/min", D.RATE, 10),
        ("200 tokens / s", D.RATE, 200),
        ("23GB", D.BYTES, 23e9),
        ("23GiB", D.BYTES, 23 * 2**30),
        ("$0.12", D.MONEY, 0.12),
        ("0.12 EUR", D.MONEY, 0.12),
        ("350W", D.POWER, 350),
        ("1.5kWh", D.ENERGY, 5_400_000),
        ("2.5 cores", D.CORES, 2.5),
        ("128 tokens", D.COUNT, 128),
    ],
)
def test_a_quantity_becomes_base_units(text: str, dimension: Dimension, value: float) -> None:
    assert parse_quantity(text, dimension) == value


@pytest.mark.parametrize(
    ("text", "dimension", "told"),
    [
        (250, D.TIME, "without a unit"),
        ("250", D.TIME, "without a unit"),
        ("", D.TIME, "is not a time"),
        ("ms", D.TIME, "is not a time"),
        ("-1ms", D.TIME, "sign"),
        ("+1ms", D.TIME, "sign"),
        ("nan", D.TIME, "is not a time"),
        ("nan ms", D.TIME, "is not a time"),
        ("inf", D.TIME, "is not a time"),
        ("1e999ms", D.TIME, "too large"),
        ("1e99999999ms", D.TIME, "unknown unit"),
        ("1,500ms", D.TIME, "separator"),
        ("1_500ms", D.TIME, "separator"),
        ("5%", D.TIME, "is a share, but a time is expected"),
        ("$5", D.BYTES, "is an amount of money, but a size in bytes is expected"),
        ("5 mss", D.TIME, "did you mean 'ms'?"),
        ("٣ms", D.TIME, "is not a time"),  # digits of another script
        ("0.12", D.MONEY, "without a unit"),
        ("5ms", D.SHARE, "is a time, but a share is expected"),
    ],
)
def test_what_is_no_quantity_is_refused(text: object, dimension: Dimension, told: str) -> None:
    with pytest.raises(QuantityError, match=told.replace("?", r"\?")):
        parse_quantity(text, dimension)


def test_no_unit_belongs_to_two_dimensions() -> None:
    for dimension, units in UNITS.items():
        for unit in units:
            assert dimension_of(f"1{unit}" if unit not in "$€£" else f"{unit}1") is dimension, unit


def test_numbers_are_taken_as_they_are_in_python() -> None:
    assert parse_duration("90s") == parse_duration(90) == 90.0
    assert parse_duration("1m30s") == 90.0
    assert parse_rate("90/min") == parse_rate(1.5) == 1.5
    assert parse_share("99%") == 0.99
    for bad in (-1, math.nan, math.inf, True):
        with pytest.raises(QuantityError):
            parse_duration(bad)
        with pytest.raises(QuantityError):
            parse_rate(bad)


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (0.0, D.TIME, "0ns"),
        (93_400.0, D.TIME, "93.4us"),
        (250e6, D.TIME, "250ms"),
        (1.239e9, D.TIME, "1.239s"),
        (90e9, D.TIME, "90s"),
        (600e9, D.TIME, "10min"),
        (86_400e9, D.TIME, "24h"),
        (0.00123456, D.SHARE, "0.1235%"),
        (1.2, D.SHARE, "120%"),
        (23 * 2.0**30, D.BYTES, "23GiB"),
        (12_345.6, D.RATE, "12,346/s"),
        (0.12, D.MONEY, "$0.12"),
        (math.inf, D.TIME, "inf"),
        (math.nan, D.TIME, "none"),
        (2.5, D.CORES, "2.5 cores"),
    ],
)
def test_quantities_are_shown_with_four_digits(value: float, dimension: Dimension, text: str) -> None:
    assert format_quantity(value, dimension) == text


def test_what_breaks_a_limit_never_looks_like_it() -> None:
    assert format_quantity(1_200_000_001, D.TIME, apart_from=1.2e9) == "1.200000001s"
    assert format_quantity(0.0100001, D.SHARE, apart_from=0.01) == "1.00001%"
    assert format_quantity(0.12, D.MONEY, currency="EUR") == "0.12 EUR"
