"""What a scenario's fields accept; a refusal names the field, the value seen, and what is accepted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_inferslo.core import units
from pytest_inferslo.errors import ScenarioError

#: A time: a text with a unit (`"10s"`, `"5m"`, `"1h30m"`) or a number of seconds.
Seconds = str | float
#: A rate: a text with a unit (`"20/s"`, `"600/min"`) or a number per second.
Rate = str | float


def refuse(field: str, value: object, accepted: str) -> ScenarioError:
    return ScenarioError(f"{field} is {value!r}: {accepted}")


def seconds(field: str, value: Seconds, *, zero: bool = False) -> float:
    """`value` in seconds; above zero unless `zero` allows it."""
    try:
        parsed = units.parse_duration(value)
    except units.QuantityError as error:
        raise refuse(
            field, value, f"{error}; accepted: a time like '10s', '5m', or seconds as a number"
        ) from None
    if parsed == 0 and not zero:
        raise refuse(field, value, "it must last longer than zero; accepted: a time like '10s', '5m'")
    return parsed


def rate(field: str, value: Rate, *, zero: bool = False) -> float:
    """`value` per second; above zero unless `zero` allows it."""
    try:
        parsed = units.parse_rate(value)
    except units.QuantityError as error:
        raise refuse(field, value, f"{error}; accepted: a rate like '20/s', or a number per second") from None
    if parsed == 0 and not zero:
        raise refuse(field, value, "it must be above zero; accepted: a rate like '20/s'")
    return parsed


def whole(field: str, value: int, *, least: int = 1, most: int | None = None) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or value < least
        or (most is not None and value > most)
    ):
        upper = "" if most is None else f" to {most}"
        raise refuse(field, value, f"accepted: a whole number from {least}{upper}")
    return value


def number(
    field: str, value: float, *, least: float = 0.0, most: float = math.inf, above: bool = False
) -> float:
    """A finite number in [least, most], or in (least, most] with `above`."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value > most or value < least or (above and value == least):
        lower = f"above {least:g}" if above else f"from {least:g}"
        upper = "" if math.isinf(most) else f" to {most:g}"
        raise refuse(field, value, f"accepted: a number {lower}{upper}")
    return float(value)


def one_of(field: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        hint = units.nearest(value, known) if isinstance(value, str) else ""
        raise refuse(field, value, f"accepted: {', '.join(known)}{hint}")
    return value


def flag(field: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise refuse(field, value, "accepted: True or False")
    return value


def instance(field: str, value: object, kind: type | tuple[type, ...], accepted: str) -> Any:
    if not isinstance(value, kind):
        raise refuse(field, value, f"accepted: {accepted}")
    return value


def names(field: str, values: Iterable[str]) -> tuple[str, ...]:
    """Different, non-empty names; at least one."""
    listed = (values,) if isinstance(values, str) else tuple(values)
    if not listed or not all(isinstance(name, str) and name for name in listed):
        raise refuse(field, values, "accepted: one or more non-empty names")
    twice = sorted({name for name in listed if listed.count(name) > 1})
    if twice:
        raise refuse(field, values, f"{', '.join(twice)} stands there more than once")
    return listed
