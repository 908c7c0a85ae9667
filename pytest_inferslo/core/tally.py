"""Counts of the requests of one scope: outcomes, goodput, what finished and how many tokens came when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.distribution import SECOND, Floats, Ratio, add_at
from pytest_inferslo.core.frame import Span
from pytest_inferslo.core.histogram import Ints
from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.core.values import Choice, Columns, Mask, chosen

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
        slopes = tokens / np.where(at_once, 1.0, finish - begin)
        if at_once.any():
            self._add(self._steps, finish[at_once], tokens[at_once])
            begin, finish, slopes = (part[~at_once] for part in (begin, finish, slopes))
        for times, change in ((begin, slopes), (finish, -slopes)):
            self._add(self._slope, times, change)
            self._add(self._offset, times, change * times)

    def per_slot(self) -> Floats:
        """Tokens in each second of the span; the last slot may be shorter."""
        edges = np.minimum(np.arange(self._span.slots + 1), (self._span.end - self._span.start) / SECOND)
        slope, offset, steps = (np.cumsum(part) for part in (self._slope, self._offset, self._steps))
        return np.diff(slope * edges - offset + steps)

    def _add(self, target: Floats, times: Floats, amounts: npt.NDArray[Any]) -> None:
        inside = times < (self._span.end - self._span.start) / SECOND
        if not inside.all():
            times, amounts = times[inside], amounts[inside]
        add_at(target, np.maximum(np.floor(times).astype(np.int64), -1) + 1, amounts)


@dataclass(eq=False)
class OutcomeTally:
    """How the requests of a span ended."""

    span: Span
    outcomes: Ints = field(default_factory=lambda: np.zeros(len(Outcome), np.int64))

    def add(self, ok: Columns, failed: Columns) -> None:
        """Rows of the scope, the successful ones and the others apart; those outside the span do not count."""
        intended = ok["intended"]
        self.outcomes[Outcome.SUCCESS] += len(chosen(intended, self.span.holds(intended)))
        lost = chosen(failed["outcome"], self.span.holds(failed["intended"]))
        self.outcomes += np.bincount(lost, minlength=len(Outcome))

    @property
    def intended(self) -> int:
        return int(self.outcomes.sum())

    @property
    def counts(self) -> Counts:
        by = {outcome: int(n) for outcome, n in zip(Outcome, self.outcomes, strict=True) if n}
        succeeded, unfinished = by.get(Outcome.SUCCESS, 0), by.get(Outcome.UNFINISHED, 0)
        never_sent = by.get(Outcome.NEVER_SENT, 0)
        issued = self.intended - never_sent
        failed = issued - succeeded - unfinished
        return Counts(self.intended, issued, succeeded, failed, unfinished, never_sent, by)


@dataclass(eq=False)
class Tally(OutcomeTally):
    """Counts of one scope, per second of its span. Rows that were intended outside of the span count for what
    finished inside it.
    """

    goals: Goals = ()
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

    def add(self, ok: Columns, failed: Columns) -> None:
        """All rows of the scope, whatever their start."""
        super().add(ok, failed)
        self._add_finished(ok)
        mine = self.span.holds(ok["intended"])
        slots = self.span.slot_of(chosen(ok["intended"], mine))
        lost_slots = self.span.slot_of(chosen(failed["intended"], self.span.holds(failed["intended"])))
        add_at(self.slot_intended, slots)
        add_at(self.slot_intended, lost_slots)
        add_at(self.slot_failed, lost_slots)
        self._add_tokens(ok, mine)
        if self.goals:
            good = chosen(self._met(ok, mine), mine)
            self.good += int(np.count_nonzero(good))
            add_at(self.slot_good, slots[good])

    def _add_finished(self, ok: Columns) -> None:
        ends = ok["end"]
        add_at(self.slot_finished, self.span.slot_of(chosen(ends, self.span.holds(ends))))
        counted = (ok["output_tokens"] > 0) & (ok["last"] >= 0)
        told = None if counted.all() else counted
        first = np.where(ok["first"] >= 0, ok["first"], ok["last"])
        self.clock.add(chosen(first, told), chosen(ok["last"], told), chosen(ok["output_tokens"], told))

    def _add_tokens(self, ok: Columns, mine: Choice) -> None:
        kinds = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
        sums = [int(np.maximum(chosen(ok[kind], mine), 0).sum()) for kind in kinds]
        output = chosen(ok["output_tokens"], mine)
        t = self.tokens
        self.tokens = Tokens(
            t.prompt + sums[0],
            t.cached + sums[1],
            t.output + sums[2],
            t.reasoning + sums[3],
            t.requests + len(output),
            t.untold + int(np.count_nonzero(output < 0)),
        )

    def _met(self, ok: Columns, mine: Choice) -> Mask:
        met = np.ones(len(ok), bool)
        for position, (metric, limit) in enumerate(self.goals):
            values = ok.metric(metric)
            within = values.values <= limit
            if values.known is not None:
                undefined = (
                    np.zeros(len(ok), bool) if values.absent is None else values.absent & ~values.known
                )
                within = (within & values.known) | undefined
                self.undefined[position] += int(np.count_nonzero(chosen(undefined, mine)))
            met &= within
        return met

    @property
    def errors(self) -> Ratio:
        failed = self.intended - int(self.outcomes[Outcome.SUCCESS])
        return Ratio(failed, self.intended, self.slot_failed, self.slot_intended)

    @property
    def goodput(self) -> Ratio:
        return Ratio(self.good, self.intended, self.slot_good, self.slot_intended)
