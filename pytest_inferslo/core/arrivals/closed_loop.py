"""Closed-loop arrivals: a fixed number of users, each of which waits for its answer before it asks again."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pytest_inferslo.core import fields, seeds
from pytest_inferslo.core.arrivals.schedule import ArrivalSchedule, Span, nanoseconds
from pytest_inferslo.core.fields import Seconds

THINKING = ("constant", "exponential")


@dataclass(frozen=True)
class ClosedLoop:
    """`users` requests in flight, less those that think.

    User u asks requests u, u + users, u + 2 users, ...: that is their index. The first one is due at u x ramp
    / users; each later one when the answer before it ended, plus `think_ns` of its index. A slow server is
    asked less often: latencies start at that due time, and no stall shows in the requests that were never due
    (coordinated omission). Reports call such runs closed loop.
    """

    kind: ClassVar[str] = "closed"
    users: int
    think: float = 0.0
    thinking: str = "constant"
    ramp: float = 0.0

    @property
    def open_loop(self) -> bool:
        return False

    @property
    def length(self) -> float | None:
        return None

    def schedule(self, seconds: float, seed: int, lead: float = 0.0) -> ArrivalSchedule:
        starts = np.arange(self.users, dtype=np.float64) * (self.ramp / self.users)
        index = np.arange(self.users, dtype=np.int64)
        stream = np.zeros(self.users, np.int8)
        return ArrivalSchedule(nanoseconds(starts), index, stream, round(seconds * 1e9), closed=True)

    def think_ns(self, seed: int, index: int) -> int:
        """The pause before request `index`, ns: `think`, or exponential with that mean."""
        if self.thinking == "constant":
            return round(self.think * 1e9)
        u = seeds.uniform(seeds.key(seed, "think"), index)
        return round(-math.log1p(-u) * self.think * 1e9)

    def spans(self, seconds: float) -> list[Span]:
        return [Span("measured", 0.0, seconds)]

    def check(self, seconds: float, lead: float) -> None:
        if self.ramp > lead + seconds:
            raise fields.refuse(
                "ramp", self.ramp, f"the run ends after {lead + seconds:g} s, before all users start"
            )

    def scaled(self, factor: float) -> ClosedLoop:
        return replace(self, ramp=self.ramp * factor)


def concurrency(
    users: int, think: Seconds = 0.0, *, thinking: str = "constant", ramp: Seconds = 0.0
) -> ClosedLoop:
    """`users` that each wait for an answer, think for `think`, and ask again.

    `thinking="exponential"` draws the pauses with that mean. `ramp` spreads the users' first requests. It
    answers "how fast is it with N in flight", not "how fast is it under N requests per second": see docs.
    """
    return ClosedLoop(
        fields.whole("users", users),
        fields.seconds("think", think, zero=True),
        fields.one_of("thinking", thinking, THINKING),
        fields.seconds("ramp", ramp, zero=True),
    )
