"""Open-loop arrivals: a rate profile and the process that scatters arrivals around it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pytest_inferslo.core import fields, seeds
from pytest_inferslo.core.arrivals.profiles import Bursts, Flat, Floats, Profile, Ramp, Sine, Spike, Steps
from pytest_inferslo.core.arrivals.schedule import ArrivalSchedule, Span, nanoseconds, of_times
from pytest_inferslo.core.fields import Rate, Seconds

PROCESSES = ("constant", "poisson", "gamma")


@dataclass(frozen=True)
class OpenLoop:
    """Requests come when they are due, whatever the server does.

    With L(t) the expected count of the profile, arrival k falls at L^-1(c_k), where by `process`

    - `constant`: c_k = k for k = 0, 1, ..., so that exactly ceil(L(T)) arrivals fall into [0, T);
    - `poisson`: c_k = the sum of k + 1 exponential gaps of mean 1 (a Poisson process of rate r(t));
    - `gamma`: c_k = the sum of k + 1 gaps drawn from Gamma(shape = burstiness, scale = 1 / burstiness), mean
      1. The coefficient of variation of the gaps is 1 / sqrt(burstiness): below 1 burstier than Poisson,
      above 1 more regular, 1 Poisson, as `vllm bench serve --burstiness`.
    """

    kind: ClassVar[str] = "open"
    profile: Profile
    process: str = "constant"
    burstiness: float = 1.0

    def __post_init__(self) -> None:
        fields.one_of("process", self.process, PROCESSES)
        fields.number("shape", self.burstiness, above=True)

    @property
    def open_loop(self) -> bool:
        return True

    @property
    def length(self) -> float | None:
        return None

    def schedule(self, seconds: float, seed: int, lead: float = 0.0) -> ArrivalSchedule:
        pieces = self.profile.pieces(seconds, lead)
        counts = self._counts(float(pieces.expected()[-1]), seed)
        return of_times(nanoseconds(pieces.times_of(counts)), round(seconds * 1e9))

    def _counts(self, total: float, seed: int) -> Floats:
        if self.process == "constant":
            # 50/s for 60 s is 3,000, also where the product of the floats comes out a hair above
            return np.arange(math.ceil(total - 1e-9 * max(total, 1.0)), dtype=np.float64)
        random = seeds.generator(seed, 0)
        shape = 1.0 if self.process == "poisson" else self.burstiness
        reached, parts = 0.0, []
        while reached < total:
            room = total - reached
            some = int(room + 6 * math.sqrt(room / shape) + 16)
            gaps = random.standard_exponential(some) if shape == 1 else random.gamma(shape, 1 / shape, some)
            parts.append(reached + np.cumsum(gaps))
            reached = float(parts[-1][-1])
        counts = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return counts[: np.searchsorted(counts, total)]

    def spans(self, seconds: float) -> list[Span]:
        return self.profile.spans(seconds)

    def check(self, seconds: float, lead: float) -> None:
        self.profile.check(seconds)

    def scaled(self, factor: float) -> OpenLoop:
        return replace(self, profile=self.profile.scaled(factor))


def constant(rate: Rate) -> OpenLoop:
    """One request every 1/rate seconds, the first at once: 50/s for 60 s are exactly 3,000 requests."""
    return OpenLoop(Flat(fields.rate("rate", rate)))


def poisson(rate: Rate) -> OpenLoop:
    """Independent users: gaps are exponential with mean 1/rate; counts have the variance of their mean."""
    return OpenLoop(Flat(fields.rate("rate", rate)), "poisson")


def gamma(rate: Rate, shape: float) -> OpenLoop:
    """Gaps are Gamma(shape, 1 / (rate x shape)): mean 1/rate, coefficient of variation 1 / sqrt(shape).

    `shape` is the burstiness of `vllm bench serve --burstiness`: 0.25 gives a coefficient of variation of 2
    (bursty), 1 is Poisson, 100 is nearly constant.
    """
    return OpenLoop(Flat(fields.rate("rate", rate)), "gamma", fields.number("shape", shape, above=True))


def bursts(
    base: Rate, peak: Rate, every: Seconds, length: Seconds, *, process: str = "constant", shape: float = 1.0
) -> OpenLoop:
    """`base`, with `peak` for `length` in the middle of each period of `every` (phases `base`, `burst`)."""
    period, burst = fields.seconds("every", every), fields.seconds("length", length)
    if burst >= period:
        raise fields.refuse("length", length, f"a burst must be shorter than its period, every={every!r}")
    profile = Bursts(fields.rate("base", base, zero=True), fields.rate("peak", peak), period, burst)
    return OpenLoop(profile, process, shape)


def ramp(
    start: Rate, end: Rate, length: Seconds | None = None, *, process: str = "constant", shape: float = 1.0
) -> OpenLoop:
    """From `start` to `end` in a straight line over `length` (the whole window when None), then `end`."""
    r0, r1 = fields.rate("start", start, zero=True), fields.rate("end", end, zero=True)
    if r0 == r1 == 0:
        raise fields.refuse("end", end, "a ramp from zero to zero offers nothing; give a rate above zero")
    return OpenLoop(Ramp(r0, r1, 0.0 if length is None else fields.seconds("length", length)), process, shape)


def steps(
    rates: Sequence[Rate], every: Seconds, *, process: str = "constant", shape: float = 1.0
) -> OpenLoop:
    """Each of `rates` for `every` (phases `step-1`, `step-2`, ...); the last one stays."""
    if isinstance(rates, (str, int, float)) or not rates:
        raise fields.refuse("rates", rates, "accepted: a list of rates like ['20/s', '40/s', '80/s']")
    levels = tuple(fields.rate(f"rates[{i}]", rate, zero=True) for i, rate in enumerate(rates))
    if not any(levels):
        raise fields.refuse("rates", rates, "every step is zero; give a rate above zero")
    return OpenLoop(Steps(levels, fields.seconds("every", every)), process, shape)


def spike(
    base: Rate,
    peak: Rate,
    at: Seconds,
    length: Seconds,
    *,
    edge: Seconds = 0.0,
    process: str = "constant",
    shape: float = 1.0,
) -> OpenLoop:
    """`base`, then `peak` from `at` for `length`, then `base` again (phases `base`, `spike`, `recovery`).

    `edge` is the time to climb before `at`, and to fall after `at + length`.
    """
    start, climb = fields.seconds("at", at, zero=True), fields.seconds("edge", edge, zero=True)
    if climb > start:
        raise fields.refuse("edge", edge, f"the climb must fit before the spike, at={at!r}")
    profile = Spike(
        fields.rate("base", base, zero=True),
        fields.rate("peak", peak),
        start,
        fields.seconds("length", length),
        climb,
    )
    return OpenLoop(profile, process, shape)


def sine(
    low: Rate, high: Rate, period: Seconds = "24h", *, process: str = "poisson", shape: float = 1.0
) -> OpenLoop:
    """A day: `low` at its start, `high` half a `period` later, and back, along a cosine."""
    r0, r1 = fields.rate("low", low, zero=True), fields.rate("high", high)
    if r0 > r1:
        raise fields.refuse("low", low, f"it must not be above high={high!r}")
    return OpenLoop(Sine(r0, r1, fields.seconds("period", period)), process, shape)
