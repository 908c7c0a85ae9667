"""How long prompts and answers are, in tokens: each distribution maps a number in [0, 1) to a length."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from statistics import NormalDist
from typing import ClassVar, Protocol

from pytest_inferslo.core import fields

#: The longest prompt or answer that may be asked for, in tokens.
MOST_TOKENS = 10_000_000
_STANDARD = NormalDist()


class Lengths(Protocol):
    kind: ClassVar[str]

    @property
    def least(self) -> int:
        """The smallest length it can give."""
        ...

    def at(self, u: float) -> int:
        """The length below which a share `u` of all lengths lies."""
        ...


@dataclass(frozen=True)
class Fixed:
    kind: ClassVar[str] = "fixed"
    tokens: int

    @property
    def least(self) -> int:
        return self.tokens

    def at(self, u: float) -> int:
        return self.tokens


@dataclass(frozen=True)
class Uniform:
    """Every whole length from `low` to `high`, both included, equally often."""

    kind: ClassVar[str] = "uniform"
    low: int
    high: int

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)

    @property
    def least(self) -> int:
        return self.low

    def at(self, u: float) -> int:
        return self.low + int(u * (self.high - self.low + 1))


@dataclass(frozen=True)
class Normal:
    """Normal(mean, deviation), truncated to [low, high] (not clamped: no heap at the bounds), rounded."""

    kind: ClassVar[str] = "normal"
    mean: float
    deviation: float
    low: int
    high: int

    def __post_init__(self) -> None:
        fields.number("mean", self.mean, above=True)
        fields.number("deviation", self.deviation, above=True)
        _check_bounds(self.low, self.high)
        _check_mass(
            self._shares, f"normal(mean={self.mean:g}, deviation={self.deviation:g})", self.low, self.high
        )

    @cached_property
    def _shares(self) -> tuple[float, float]:
        whole = NormalDist(self.mean, self.deviation)
        return whole.cdf(self.low - 0.5), whole.cdf(self.high + 0.5)

    @property
    def least(self) -> int:
        return self.low

    def at(self, u: float) -> int:
        below, upto = self._shares
        return _bounded(
            self.mean + self.deviation * _quantile(below + u * (upto - below)), self.low, self.high
        )


@dataclass(frozen=True)
class Lognormal:
    """exp(Normal(log(median), sigma)), truncated to [low, high], rounded: the long tail of real prompts."""

    kind: ClassVar[str] = "lognormal"
    median: float
    sigma: float
    low: int
    high: int

    def __post_init__(self) -> None:
        fields.number("median", self.median, above=True)
        fields.number("sigma", self.sigma, above=True)
        _check_bounds(self.low, self.high)
        _check_mass(
            self._shares, f"lognormal(median={self.median:g}, sigma={self.sigma:g})", self.low, self.high
        )

    @cached_property
    def _shares(self) -> tuple[float, float]:
        whole = NormalDist(math.log(self.median), self.sigma)
        return whole.cdf(math.log(self.low - 0.5)), whole.cdf(math.log(self.high + 0.5))

    @property
    def least(self) -> int:
        return self.low

    def at(self, u: float) -> int:
        below, upto = self._shares
        z = _quantile(below + u * (upto - below))
        return _bounded(self.median * math.exp(self.sigma * z), self.low, self.high)


@dataclass(frozen=True)
class Zipf:
    """P(low + k - 1) proportional to 1 / k^exponent for k = 1 ... high - low + 1."""

    kind: ClassVar[str] = "zipf"
    low: int
    high: int
    exponent: float

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)
        fields.number("exponent", self.exponent, above=True)

    @cached_property
    def _cumulative(self) -> list[float]:
        return list(accumulate(k**-self.exponent for k in range(1, self.high - self.low + 2)))

    @property
    def least(self) -> int:
        return self.low

    def at(self, u: float) -> int:
        cumulative = self._cumulative
        return min(self.low + bisect_right(cumulative, u * cumulative[-1]), self.high)


def lengths(field: str, value: int | tuple[int, int] | Lengths) -> Lengths:
    """A number is fixed, a pair is uniform, a distribution is itself."""
    if isinstance(value, KINDS):
        return value
    if isinstance(value, (tuple, list)) and len(value) == 2:
        low, high = (fields.whole(f"{field}[{i}]", n, most=MOST_TOKENS) for i, n in enumerate(value))
        return Uniform(low, high)
    if isinstance(value, int) and not isinstance(value, bool):
        return Fixed(fields.whole(field, value, most=MOST_TOKENS))
    raise fields.refuse(field, value, "accepted: 128, (64, 512), uniform(), normal(), lognormal() or zipf()")


def uniform(low: int, high: int) -> Uniform:
    """Every length from `low` to `high` equally often; the pair (low, high) means the same."""
    return Uniform(low, high)


def normal(mean: float, deviation: float, *, low: int = 1, high: int = MOST_TOKENS) -> Normal:
    """Around `mean` with standard `deviation`, truncated to [low, high]."""
    return Normal(mean, deviation, low, high)


def lognormal(median: float, sigma: float, *, low: int = 1, high: int = MOST_TOKENS) -> Lognormal:
    """Half below `median`; `sigma` is the standard deviation of the logarithm; truncated to [low, high]."""
    return Lognormal(median, sigma, low, high)


def zipf(low: int, high: int, exponent: float = 1.0) -> Zipf:
    """Mostly `low`, with a power-law tail up to `high`."""
    return Zipf(low, high, exponent)


def _quantile(share: float) -> float:
    return _STANDARD.inv_cdf(min(max(share, 1e-300), 1 - 1e-16))


def _bounded(value: float, low: int, high: int) -> int:
    return min(max(round(value), low), high)


def _check_bounds(low: int, high: int) -> None:
    fields.whole("low", low, most=MOST_TOKENS)
    fields.whole("high", high, most=MOST_TOKENS)
    if low > high:
        raise fields.refuse("low", low, f"it must not be above high={high}")


def _check_mass(shares: tuple[float, float], name: str, low: int, high: int) -> None:
    if shares[1] - shares[0] < 1e-6:
        raise fields.refuse(name, (low, high), "almost none of it lies within these bounds; widen them")


KINDS = (Fixed, Uniform, Normal, Lognormal, Zipf)
