"""Counts of the requests of one scope: outcomes, goodput, what finished and how many tokens came when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pytest_inferslo.core.distribution import SECOND, Floats, Ratio, Scope, add_at
from pytest_inferslo.core.frame import Span
from pytest_inferslo.core.histogram import Ints
from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.core.values import Columns, Mask

Goals = Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Tokens:
    """Server-counted tokens of the successful requests of a scope; `untold` of them carried no counts.

    `cached` is part of `prompt`, `reasoning` part of `output`.
    """

    prompt: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    requests: int = 0
    untold: int = 0


@dataclass(frozen=True)
class Counts:
    """Requests of a scope by how they ended; `outcomes` holds those that happened."""

    intended: int
    issued: int
    succeeded: int
    failed: int
    unfinished: int
    never_sent: int
    outcomes: dict[Outcome, int]


class TokenClock:
    """Output tokens per second of wall time, with those of one request spread evenly from its first
    output to its last: C(t), the tokens that came by t, is a sum of ramps, so its value at a slot's edge
    needs only sums of the ramps' slopes and of slope x start over all earlier slots. One pass, whatever
    the length of an answer.
    """

    def __init__(self, span: Span) -> None:
        self._span = span
        n = span.slots + 1  # slot 0 holds everything before the span
        self._slope = np.zeros(n)
        self._offset = np.zeros(n)
        self._steps = np.zeros(n)  # tokens of answers that came in one instant, and of ramps that ended

    def add(self, first: Ints, last: Ints, tokens: Ints) -> None:
        begin = (first - self._span.start) / SECOND
        finish = (last - self._span.start) / SECOND
        at_once = finish <= begin
        self._ramp(begin, (tokens / np.where(at_once, 1.0, finish - begin)), ~at_once)
        self._ramp(finish, -(tokens / np.where(at_once, 1.0, finish - begin)), ~at_once)
        self._step(finish, tokens.astype(np.float64), at_once)

    def per_slot(self) -> Floats:
        """Tokens in each second of the span; the last slot may be shorter."""
        edges = np.minimum(np.arange(self._span.slots + 1), (self._span.end - self._span.start) / SECOND)
        slope, offset, steps = (np.cumsum(part) for part in (self._slope, self._offset, self._steps))
        return np.diff(slope * edges - offset + steps)

    def _slots(self, times: Floats, chosen: Mask) -> tuple[Ints, Mask]:
        inside = chosen & (times < (self._span.end - self._span.start) / SECOND)
        return np.maximum(np.floor(times[inside]).astype(np.int64), -1) + 1, inside

    def _ramp(self, times: Floats, slopes: Floats, chosen: Mask) -> None:
        slots, inside = self._slots(times, chosen)
        add_at(self._slope, slots, slopes[inside])
        add_at(self._offset, slots, (slopes * times)[inside])

    def _step(self, times: Floats, tokens: Floats, chosen: Mask) -> None:
        slots, inside = self._slots(times, chosen)
        add_at(self._steps, slots, tokens[inside])


@dataclass(eq=False)
class Tally:
    """Counts of one scope, per second of its span. `add` takes the rows of the scope whatever their start;
    those outside the span count only for what finished inside it."""

    scope: Scope
    span: Span
    goals: Goals = ()
    outcomes: Ints = field(default_factory=lambda: np.zeros(len(Outcome), np.int64))
    good: int = 0
    undefined: Ints = field(init=False)  # per goal: successes for which its metric is undefined
    tokens: Tokens = Tokens()

    def __post_init__(self) -> None:
        self.slot_intended = np.zeros(self.span.slots, np.int64)
        self.slot_failed = np.zeros(self.span.slots, np.int64)
        self.slot_good = np.zeros(self.span.slots, np.int64)
        self.slot_finished = np.zeros(self.span.slots, np.int64)
        self.undefined = np.zeros(len(self.goals), np.int64)
        self.clock = TokenClock(self.span)

    def add(self, ok: Columns, ok_mine: Mask, failed: Columns, failed_mine: Mask) -> None:
        """`ok` and `failed` are all rows of a block, apart; the masks choose this scope's, in any phase."""
        self._finished(ok, ok_mine)
        mine = ok_mine & self.span.holds(ok["intended"])
        lost = failed_mine & self.span.holds(failed["intended"])
        self.outcomes += np.bincount(failed["outcome"][lost], minlength=len(Outcome))
        self.outcomes[Outcome.SUCCESS] += int(mine.sum())
        lost_slots = self.span.slot_of(failed["intended"][lost])
        add_at(self.slot_failed, lost_slots)
        add_at(self.slot_intended, lost_slots)
        slots = self.span.slot_of(ok["intended"])
        add_at(self.slot_intended, slots[mine])
        self._add_tokens(ok, mine)
        if self.goals:
            good = mine & self._met(ok, mine)
            self.good += int(good.sum())
            add_at(self.slot_good, slots[good])

    def _finished(self, ok: Columns, mine: Mask) -> None:
        finished = mine & self.span.holds(ok["end"])
        add_at(self.slot_finished, self.span.slot_of(ok["end"][finished]))
        told = mine & (ok["output_tokens"] > 0)
        first = np.where(ok["first"] >= 0, ok["first"], ok["last"])
        self.clock.add(first[told], ok["last"][told], ok["output_tokens"][told])

    def _add_tokens(self, ok: Columns, mine: Mask) -> None:
        untold = mine & (ok["output_tokens"] < 0)
        kinds = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
        sums = [int(np.maximum(ok[kind][mine], 0).sum()) for kind in kinds]
        t = self.tokens
        self.tokens = Tokens(
            t.prompt + sums[0],
            t.cached + sums[1],
            t.output + sums[2],
            t.reasoning + sums[3],
            t.requests + int(mine.sum()),
            t.untold + int(untold.sum()),
        )

    def _met(self, ok: Columns, mine: Mask) -> Mask:
        met = np.ones(len(ok), bool)
        for position, (metric, limit) in enumerate(self.goals):
            values = ok.metric(metric)
            within = values.values <= limit
            if values.known is not None:
                undefined = (
                    np.zeros(len(ok), bool) if values.absent is None else values.absent & ~values.known
                )
                within = (within & values.known) | undefined
                self.undefined[position] += int((undefined & mine).sum())
            met &= within
        return met

    @property
    def intended(self) -> int:
        return int(self.outcomes.sum())

    @property
    def counts(self) -> Counts:
        by = {outcome: int(n) for outcome, n in zip(Outcome, self.outcomes, strict=True) if n}
        succeeded, unfinished = by.get(Outcome.SUCCESS, 0), by.get(Outcome.UNFINISHED, 0)
        never_sent = by.get(Outcome.NEVER_SENT, 0)
        issued = self.intended - never_sent
        return Counts(
            self.intended, issued, succeeded, issued - succeeded - unfinished, unfinished, never_sent, by
        )

    @property
    def errors(self) -> Ratio:
        failed = self.intended - int(self.outcomes[Outcome.SUCCESS])
        return Ratio(failed, self.intended, self.slot_failed, self.slot_intended)

    @property
    def goodput(self) -> Ratio:
        return Ratio(self.good, self.intended, self.slot_good, self.slot_intended)
