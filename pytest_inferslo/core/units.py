"""Quantities as people write them, in the base units that everything computes with.

    quantity  = money | compound | number unit
    number    = digits ["." digits] ["e" ["+"|"-"] digits]
    money     = ("$" | "€" | "£") number | number ("USD" | "EUR" | "GBP")
    compound  = (integer unit)+          times alone: 1h30m

A unit is mandatory: "250" is refused where a time is expected. Signs, thousands separators, `nan` and `inf`
are refused too. The arithmetic is decimal: `0.1%` is the float nearest to 0.001, `1.1ms` is 1,100,000 ns.
Base units: ns, shares as 0..1, bytes, 1/s, currency units, watts, joules, cores.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from decimal import Decimal

from pytest_inferslo.core.metrics import Dimension
from pytest_inferslo.errors import UsageError


class QuantityError(UsageError, ValueError):
    """A text that is no quantity of the wanted dimension; the message says what is accepted."""


def _decimal(factors: dict[str, int]) -> dict[str, Decimal]:
    return {unit: Decimal(factor) for unit, factor in factors.items()}


_THINGS = ("", "req", "request", "requests", "tok", "token", "tokens", "event", "events")
_PER = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86400}

_TIME = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "sec": 10**9}
_TIME |= {"m": 60 * 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9, "w": 7 * 86400 * 10**9}
_RATE = {f"{thing}/{per}": Decimal(1) / n for thing in _THINGS for per, n in _PER.items()}
_RATE |= {f"k{unit}": 1000 * factor for unit, factor in _RATE.items() if unit.startswith("/")}
_RATE |= {"rps": Decimal(1), "Hz": Decimal(1)}
_BYTES = {"B": 1} | {f"{p}B": 1000 ** (i + 1) for i, p in enumerate("kMGT")}
_BYTES |= {f"{p}iB": 1024 ** (i + 1) for i, p in enumerate("KMGT")} | {"KB": 1000}

#: Every accepted unit of a dimension, as a factor to its base unit.
UNITS: dict[Dimension, dict[str, Decimal]] = {
    Dimension.TIME: _decimal(_TIME),
    Dimension.SHARE: {"%": Decimal("0.01"), "ppm": Decimal("1e-6")},
    Dimension.COUNT: _decimal(
        dict.fromkeys(("requests", "request", "tokens", "token", "samples", "times"), 1)
    ),
    Dimension.RATE: _RATE,
    Dimension.BYTES: _decimal(_BYTES),
    Dimension.MONEY: _decimal(dict.fromkeys(("$", "€", "£", "USD", "EUR", "GBP"), 1)),
    Dimension.POWER: {"mW": Decimal("0.001"), "W": Decimal(1), "kW": Decimal(1000)},
    Dimension.ENERGY: _decimal({"J": 1, "kJ": 1000, "MJ": 10**6, "Wh": 3600, "kWh": 3_600_000}),
    Dimension.CORES: _decimal({"cores": 1, "core": 1}),
}

_EXAMPLES = {
    Dimension.TIME: "250ms, 1.5s, 5m, 24h",
    Dimension.SHARE: "0.1%, 95%",
    Dimension.COUNT: "128 tokens, 500 requests",
    Dimension.RATE: "180/s, 200 tokens/s",
    Dimension.BYTES: "23GB, 512MiB",
    Dimension.MONEY: "$0.12, 0.12 EUR",
    Dimension.POWER: "350W",
    Dimension.ENERGY: "12kJ, 1.5Wh",
    Dimension.CORES: "2.5 cores",
}

#: A dimension as a thing, with its article.
_THING = {dimension: f"a {dimension.value}" for dimension in Dimension} | {
    Dimension.BYTES: "a size in bytes",
    Dimension.MONEY: "an amount of money",
    Dimension.ENERGY: "an energy",
    Dimension.CORES: "a number of cores",
}

_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?"
_QUANTITY = re.compile(rf"({_NUMBER})\s*(\S.*)?")
_PREFIXED = re.compile(rf"([$€£])\s*({_NUMBER})")
_COMPOUND = re.compile(r"(?:[0-9]+(?:ms|us|ns|min|[smhdw]))+")
_PART = re.compile(r"([0-9]+)([a-z]+)")


def parse_quantity(text: object, dimension: Dimension) -> float:
    """The value of `text` in the base unit of `dimension`; finite and not negative.

    Raises QuantityError when it is no such quantity.
    """
    if not isinstance(text, str):
        raise QuantityError(f"{text!r} is a bare number without a unit; write it like {_EXAMPLES[dimension]}")
    stripped = text.strip()
    if dimension is Dimension.TIME and _COMPOUND.fullmatch(stripped):
        parts = _PART.findall(stripped)
        return _finite(sum(Decimal(n) * UNITS[dimension][unit] for n, unit in parts), stripped)
    number, unit = _split(stripped, dimension)
    units = UNITS[dimension]
    if unit not in units:
        raise QuantityError(_unknown_unit(stripped, unit, dimension))
    return _finite(Decimal(number) * units[unit], stripped)


def parse_duration(text: str | float) -> float:
    """Seconds: of a text with a unit (`10s`, `5m`, `1h30m`), or of a number that already is in seconds."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return _plain(text, "a duration in seconds")
    return parse_quantity(text, Dimension.TIME) / 1e9


def parse_rate(text: str | float) -> float:
    """Events per second: of a text with a unit (`20/s`, `600/min`), or of a number that is per second."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return _plain(text, "a rate per second")
    return parse_quantity(text, Dimension.RATE)


def parse_share(text: str) -> float:
    """A share as 0..1, from a percentage (`99%`)."""
    return parse_quantity(text, Dimension.SHARE)


def dimension_of(text: str) -> Dimension | None:
    """The dimension whose units fit `text`, or None. `m` is a time; no unit belongs to two dimensions."""
    for dimension in Dimension:
        try:
            parse_quantity(text, dimension)
        except QuantityError:
            continue
        return dimension
    return None


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean X?)` for the closest known word, or nothing."""
    by_letters = {each.lower(): each for each in known}
    match = difflib.get_close_matches(word.lower(), list(by_letters), n=1, cutoff=0.5)
    return f" (did you mean {by_letters[match[0]]!r}?)" if match else ""


def _split(text: str, dimension: Dimension) -> tuple[str, str]:
    if prefixed := _PREFIXED.fullmatch(text):
        return prefixed[2], prefixed[1]
    if text[:1] in {"-", "+"}:
        raise QuantityError(
            f"{text!r} carries a sign; write the quantity without one, like {_EXAMPLES[dimension]}"
        )
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(f"{text!r} is not {_THING[dimension]}; write it like {_EXAMPLES[dimension]}")
    if not match[2]:
        raise QuantityError(f"{text!r} is a bare number without a unit; write it like {_EXAMPLES[dimension]}")
    if match[2][0] in ",_.":
        raise QuantityError(f"{text!r} has a separator in its number; write digits and at most one point")
    return match[1], re.sub(r"\s*/\s*", "/", match[2])


def _unknown_unit(text: str, unit: str, dimension: Dimension) -> str:
    looks = f"{_THING[dimension]} looks like {_EXAMPLES[dimension]}"
    for other, units in UNITS.items():
        if unit in units:
            return f"{text!r} is {_THING[other]}, but {_THING[dimension]} is expected; {looks}"
    return f"{text!r} has an unknown unit {unit!r}{nearest(unit, UNITS[dimension])}; {looks}"


def _finite(value: Decimal | int, text: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise QuantityError(f"{text!r} is too large to be a number")
    return number


def _plain(value: float, what: str) -> float:
    if not math.isfinite(value) or value < 0:
        raise QuantityError(f"{value!r} is not {what}: it must be finite and not negative")
    return float(value)


_SCALES: dict[Dimension, tuple[tuple[str, float], ...]] = {
    Dimension.TIME: (("h", 3.6e12), ("min", 6e10), ("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)),
    Dimension.SHARE: (("%", 0.01),),
    Dimension.COUNT: (("", 1.0),),
    Dimension.RATE: (("/s", 1.0),),
    Dimension.BYTES: (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 1024.0), ("B", 1.0)),
    Dimension.MONEY: (("", 1.0),),
    Dimension.POWER: (("kW", 1e3), ("W", 1.0)),
    Dimension.ENERGY: (("MJ", 1e6), ("kJ", 1e3), ("J", 1.0)),
    Dimension.CORES: ((" cores", 1.0),),
}


def format_quantity(
    value: float, dimension: Dimension, *, apart_from: float | None = None, currency: str = "$"
) -> str:
    """`value` (base unit) for people, four significant digits; inf is `inf`, NaN is `none`.

    With `apart_from`, digits are added until the text differs from that limit's, so that a table never shows
    a breached limit and an observation that look the same.
    """
    if math.isnan(value):
        return "none"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    for digits in range(4, 18):
        text = _format(value, dimension, digits)
        if apart_from is None or value == apart_from or text != _format(apart_from, dimension, digits):
            break
    if dimension is Dimension.MONEY:
        return f"{currency}{text}" if len(currency) == 1 else f"{text} {currency}"
    return text


def _format(value: float, dimension: Dimension, digits: int) -> str:
    if not math.isfinite(value):
        return str(value)
    scales = _SCALES[dimension]
    unit, factor = next(((u, f) for u, f in scales if abs(value) >= f), scales[-1])
    if dimension is Dimension.TIME and factor > 1e9 and abs(value) < 3 * factor:
        unit, factor = next((u, f) for u, f in scales if f < factor)
    number = value / factor
    whole = len(str(int(abs(number))))
    text = f"{number:.{digits}g}" if 1e-4 <= abs(number) < 1 else f"{number:,.{max(0, digits - whole)}f}"
    if "." in text and "e" not in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text}{unit}"
