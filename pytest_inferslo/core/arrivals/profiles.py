"""Rate profiles: the rate r(t) that arrivals follow, as straight pieces.

Every profile, also the sine, becomes pieces on which r is linear; so the expected count L(t) = integral of r
from 0 to t is quadratic on a piece and its inverse has a closed form. A process places arrivals on the axis
of expected counts (there the rate is 1), and the inverse of L carries them to time: time rescaling, exact for
a non-homogeneous Poisson process (Cinlar, "Introduction to stochastic processes", 1975, chapter 4.7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core import fields
from pytest_inferslo.core.arrivals.schedule import Span

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pieces:
    """r(t) on [start[i], start[i+1]) is a straight line from `first[i]` to `last[i]`."""

    start: Floats
    first: Floats
    last: Floats

    @classmethod
    def of(cls, parts: Sequence[tuple[float, float, float]], seconds: float, lead: float = 0.0) -> Pieces:
        """From (length, first rate, last rate) parts; `lead` seconds of the first rate come before."""
        start, first, last = [0.0], [], []
        for length, r0, r1 in ((lead, parts[0][1], parts[0][1]), *parts):
            room = seconds - start[-1]
            if length <= 0 or room <= 0:
                continue
            used = min(length, room)
            first.append(r0)
            last.append(r0 + (r1 - r0) * used / length if math.isfinite(length) else r1)
            start.append(seconds if used == room else start[-1] + used)
        return cls(np.array(start), np.array(first), np.array(last))

    def expected(self) -> Floats:
        """The expected count at every `start`: the trapezoids, summed."""
        areas = np.diff(self.start) * (self.first + self.last) / 2
        return np.concatenate([[0.0], np.cumsum(areas)])

    def times_of(self, counts: Floats) -> Floats:
        """The times at which the expected count reaches sorted `counts`, each below the total."""
        knots = self.expected()
        if len(self.first) == 1 and self.first[0] == self.last[0]:
            return np.minimum(counts / self.first[0], self.start[-1])
        inside = np.diff(np.searchsorted(counts, knots[1:-1]), prepend=0, append=len(counts))
        piece = np.repeat(np.arange(len(self.first)), inside)
        slope = (self.last - self.first) / np.diff(self.start)
        x, r0, a = counts - knots[piece], self.first[piece], slope[piece]
        # x = r0 t + a t^2 / 2, solved without cancellation when a is small or negative
        root = np.sqrt(np.maximum(r0 * r0 + 2 * a * x, 0.0))
        with np.errstate(invalid="ignore", divide="ignore"):
            t = np.where(x > 0, 2 * x / (r0 + root), 0.0)
        times: Floats = np.minimum(self.start[piece] + t, self.start[piece + 1])
        return times


class Profile(Protocol):
    kind: ClassVar[str]

    def pieces(self, seconds: float, lead: float) -> Pieces: ...

    def spans(self, seconds: float) -> list[Span]: ...

    def check(self, seconds: float) -> None: ...

    def scaled(self, factor: float) -> Profile: ...


def require(field: str, needed: float, seconds: float, what: str) -> None:
    """Refuses a shape of which `what` would fall outside the window."""
    if needed > seconds * (1 + 1e-9):
        raise fields.refuse(
            field, needed, f"the window lasts {seconds:g} s, so {what}; accepted: up to {seconds:g} s"
        )


def spans_of(parts: Sequence[tuple[str, float]], seconds: float) -> list[Span]:
    """Named lengths one after another, cut at `seconds`; the last one fills what is left."""
    found: list[Span] = []
    at = 0.0
    for i, (name, length) in enumerate(parts):
        end = seconds if i == len(parts) - 1 else min(at + length, seconds)
        if end > at:
            found.append(Span(name, at, end))
        at = end
    return found


@dataclass(frozen=True)
class Flat:
    """r(t) = rate."""

    kind: ClassVar[str] = "flat"
    rate: float

    def pieces(self, seconds: float, lead: float) -> Pieces:
        return Pieces.of([(seconds, self.rate, self.rate)], seconds)

    def spans(self, seconds: float) -> list[Span]:
        return [Span("measured", 0.0, seconds)]

    def check(self, seconds: float) -> None:
        """A constant rate fits any window."""

    def scaled(self, factor: float) -> Flat:
        return self


@dataclass(frozen=True)
class Bursts:
    """r(t) = peak while (every - length)/2 <= t mod every < (every + length)/2, else base.

    The burst stands in the middle of each period, so that a window of whole periods holds whole bursts, each
    with the calm before it and the recovery after it.
    """

    kind: ClassVar[str] = "bursts"
    base: float
    peak: float
    every: float
    length: float

    def _period(self) -> list[tuple[str, float, float]]:
        calm = (self.every - self.length) / 2
        return [("base", calm, self.base), ("burst", self.length, self.peak), ("base", calm, self.base)]

    def pieces(self, seconds: float, lead: float) -> Pieces:
        periods = math.ceil((seconds - lead) / self.every)
        parts = [(length, rate, rate) for _, length, rate in self._period()]
        return Pieces.of(parts * max(periods, 1), seconds, lead)

    def spans(self, seconds: float) -> list[Span]:
        calm = (self.every - self.length) / 2
        parts = [("base", calm)]
        for _ in range(math.ceil(seconds / self.every)):
            parts += [("burst", self.length), ("base", 2 * calm)]
        return spans_of(parts, seconds)

    def check(self, seconds: float) -> None:
        require("every", (self.every + self.length) / 2, seconds, "no burst would end in it")

    def scaled(self, factor: float) -> Bursts:
        return replace(self, every=self.every * factor, length=self.length * factor)


@dataclass(frozen=True)
class Steps:
    """r(t) = rates[floor(t / every)]; the last rate stays."""

    kind: ClassVar[str] = "steps"
    rates: tuple[float, ...]
    every: float

    def pieces(self, seconds: float, lead: float) -> Pieces:
        parts = [(self.every, rate, rate) for rate in self.rates[:-1]]
        return Pieces.of([*parts, (math.inf, self.rates[-1], self.rates[-1])], seconds, lead)

    def spans(self, seconds: float) -> list[Span]:
        return spans_of([(f"step-{i + 1}", self.every) for i in range(len(self.rates))], seconds)

    def check(self, seconds: float) -> None:
        require("every", self.every * len(self.rates), seconds, f"{len(self.rates)} steps do not fit")

    def scaled(self, factor: float) -> Steps:
        return replace(self, every=self.every * factor)


@dataclass(frozen=True)
class Ramp:
    """r(t) = start + (end - start) t / length for t < length, then end. `length` 0 means the whole window."""

    kind: ClassVar[str] = "ramp"
    start: float
    end: float
    length: float = 0.0

    def pieces(self, seconds: float, lead: float) -> Pieces:
        length = self.length or seconds - lead
        return Pieces.of([(length, self.start, self.end), (math.inf, self.end, self.end)], seconds, lead)

    def spans(self, seconds: float) -> list[Span]:
        if not self.length or self.length >= seconds:
            return [Span("ramp", 0.0, seconds)]
        return spans_of([("ramp", self.length), ("hold", math.inf)], seconds)

    def check(self, seconds: float) -> None:
        require("length", self.length, seconds, "the ramp would not end in it")

    def scaled(self, factor: float) -> Ramp:
        return replace(self, length=self.length * factor)


@dataclass(frozen=True)
class Spike:
    """r(t) = base before `at`, peak for `length`, base afterwards; it climbs and falls in `edge` seconds.

    The edges lie outside `length`: up from at - edge to at, down from at + length to at + length + edge.
    """

    kind: ClassVar[str] = "spike"
    base: float
    peak: float
    at: float
    length: float
    edge: float = 0.0

    def pieces(self, seconds: float, lead: float) -> Pieces:
        parts = [
            (self.at - self.edge, self.base, self.base),
            (self.edge, self.base, self.peak),
            (self.length, self.peak, self.peak),
            (self.edge, self.peak, self.base),
            (math.inf, self.base, self.base),
        ]
        return Pieces.of(parts, seconds, lead)

    def spans(self, seconds: float) -> list[Span]:
        spike = self.length + 2 * self.edge
        return spans_of([("base", self.at - self.edge), ("spike", spike), ("recovery", math.inf)], seconds)

    def check(self, seconds: float) -> None:
        require("at", self.at + self.length + self.edge, seconds, "the spike would not end in it")

    def scaled(self, factor: float) -> Spike:
        return replace(self, at=self.at * factor, length=self.length * factor, edge=self.edge * factor)


#: Straight pieces per period of a sine: its rate is off by at most (2 pi / 1024)^2 / 8 = 5e-6 of the
#: amplitude.
SINE_PIECES = 1024


@dataclass(frozen=True)
class Sine:
    """r(t) = mean - amplitude cos(2 pi t / period): lowest at t = 0, highest half a period later."""

    kind: ClassVar[str] = "sine"
    low: float
    high: float
    period: float

    def pieces(self, seconds: float, lead: float) -> Pieces:
        mean, amplitude = (self.low + self.high) / 2, (self.high - self.low) / 2
        step = self.period / SINE_PIECES
        count = math.ceil((seconds - lead) / step)
        rates = mean - amplitude * np.cos(2 * np.pi * np.arange(count + 1) / SINE_PIECES)
        parts = list(zip([step] * count, rates[:-1].tolist(), rates[1:].tolist(), strict=True))
        return Pieces.of(parts, seconds, lead)

    def spans(self, seconds: float) -> list[Span]:
        return [Span("measured", 0.0, seconds)]

    def check(self, seconds: float) -> None:
        """A part of a day is a load too."""

    def scaled(self, factor: float) -> Sine:
        return replace(self, period=self.period * factor)


PROFILES: tuple[type, ...] = (Flat, Bursts, Steps, Ramp, Spike, Sine)
