"""Samples in, Summary out: batch by batch, in memory that does not grow with the number of requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pytest_inferslo.core.distribution import ALL, SECOND, Distribution, Scope
from pytest_inferslo.core.facts import RunFacts
from pytest_inferslo.core.frame import BASE_MODEL, Frame, Span
from pytest_inferslo.core.histogram import LAYOUT, Ints
from pytest_inferslo.core.metrics import METRICS, Dimension, Source
from pytest_inferslo.core.readings import Reading
from pytest_inferslo.core.samples import Outcome, Rows, SampleBatch
from pytest_inferslo.core.series import SeriesStore
from pytest_inferslo.core.summary import Breakdown, Key, Question, Summary
from pytest_inferslo.core.tally import Goals, OutcomeTally, Tally
from pytest_inferslo.core.values import Choice, Columns, Values, both, chosen

#: Rows that are folded together: numpy's cost per call is spread over them, and they fit the cache's reach.
BLOCK = 32_768
#: A block is longer by itself for every so many scopes, each of which costs a fixed time per block.
_SCOPES_PER_BLOCK = 64


class Fold:
    """Answers `questions` about one run, and for the whole run every metric that samples can tell.

    `record` is a run record (run.json); `goals` are the (metric, limit) pairs that make a request good:
    at most the limit, in base units. A goal whose metric is undefined for a request is met by it; an
    untold one is not.
    """

    def __init__(
        self,
        record: dict[str, Any],
        questions: Sequence[Question] = (),
        goodput: Sequence[tuple[str, float]] = (),
    ) -> None:
        self._record = record
        self._frame = Frame.from_record(record)
        self._goals: Goals = tuple(goodput)
        self._distributions = self._wanted_distributions(questions)
        self._parts = _parts(self._frame)
        self._part_distributions: dict[Key, Distribution] = {
            (metric, scope): _empty(metric, scope, self._frame, slots=False)
            for scopes in self._parts.values()
            for scope in scopes
            for metric in ("ttft", "e2e")
        }
        parts = [scope for scopes in self._parts.values() for scope in scopes]
        self._part_tallies = {scope: OutcomeTally(self._frame.span(scope.phase)) for scope in parts}
        scopes = dict.fromkeys([ALL, *(question.scope for question in questions)])
        self._tallies = {
            scope: Tally(self._frame.span(scope.phase), goals=self._goals)
            for scope in scopes
            if self._frame.missing(scope) is None
        }
        self._facts = RunFacts(self._frame)
        self._readings = SeriesStore()
        self._block = BLOCK * (1 + (len(self._tallies) + len(self._part_tallies)) // _SCOPES_PER_BLOCK)
        self._held: list[SampleBatch] = []
        self._held_rows = 0

    def add(self, batch: SampleBatch) -> None:
        self._held.append(batch)
        self._held_rows += len(batch.samples) + len(batch.gaps)
        if self._held_rows >= self._block:
            self._fold_held()

    def add_readings(self, readings: Iterable[Reading]) -> None:
        self._readings.add(readings)

    def result(self) -> Summary:
        self._fold_held()
        whole = [self._distributions[metric, ALL].histogram for metric in ("e2e", "ttft", "icl")]
        misplaced = sum(histogram.negatives + histogram.overflow for histogram in whole)
        return Summary(
            frame=self._frame,
            facts=self._facts.result(self._record, self._tallies[ALL], misplaced),
            goals=self._goals,
            _distributions=self._distributions,
            _tallies=self._tallies,
            _readings=self._readings,
            _causes=dict(self._record.get("absent") or {}),
            _breakdowns={kind: [self._breakdown(s) for s in scopes] for kind, scopes in self._parts.items()},
        )

    def _wanted_distributions(self, questions: Sequence[Question]) -> dict[Key, Distribution]:
        limits: dict[Key, dict[float, None]] = {
            (name, ALL): {}
            for name, metric in METRICS.items()
            if metric.source in (Source.SAMPLE, Source.GAP)
        }
        for question in questions:
            if METRICS[question.metric].source in (Source.SAMPLE, Source.GAP):
                limits.setdefault((question.metric, question.scope), {}).update(
                    dict.fromkeys(question.limits)
                )
        return {
            (metric, scope): _empty(metric, scope, self._frame, tuple(asked))
            for (metric, scope), asked in limits.items()
        }

    def _breakdown(self, scope: Scope) -> Breakdown:
        name = next(n for n in (scope.endpoint, scope.adapter, scope.phase, scope.stream) if n is not None)
        parts = self._part_distributions
        return Breakdown(name, self._part_tallies[scope].counts, parts["ttft", scope], parts["e2e", scope])

    def _fold_held(self) -> None:
        held, self._held, self._held_rows = self._held, [], 0
        samples = Columns([batch.samples for batch in held], self._frame.unstreamed)
        if len(samples):
            self._fold_samples(samples)
        gaps = [batch.gaps for batch in held if len(batch.gaps)]
        if gaps:
            self._fold_gaps(np.concatenate(gaps))

    def _fold_samples(self, rows: Columns) -> None:
        succeeded = rows["outcome"] == Outcome.SUCCESS
        ok, failed = rows.where(succeeded), rows.where(~succeeded)
        self._facts.add(rows)
        shares = _Shares(self._frame, ok, failed)
        for tallies in (self._tallies, self._part_tallies):
            for scope, tally in tallies.items():
                tally.add(*shares.of(scope))
        picks: dict[Scope, _Pick] = {}
        for distributions in (self._distributions, self._part_distributions):
            for (metric, scope), distribution in distributions.items():
                if self._frame.missing(scope) is None:
                    if scope not in picks:
                        picks[scope] = _Pick(self._frame.span(scope.phase), *shares.of(scope))
                    _fold_metric(metric, distribution, picks[scope])

    def _fold_gaps(self, rows: Rows) -> None:
        buckets = rows["bucket"].astype(np.int64)
        counts = rows["count"].astype(np.int64)
        inside = np.clip(buckets, 0, LAYOUT.buckets - 1)
        lows, highs = LAYOUT.lowest(inside), LAYOUT.lowest(inside + 1) - 1
        begins = rows["slot"].astype(np.int64) * SECOND
        for (metric, scope), distribution in self._distributions.items():
            if METRICS[metric].source is Source.GAP and scope in self._tallies:
                span = self._frame.span(scope.phase)
                mine = both(span.holds(begins), _restricted(self._frame, scope, rows))
                slots = span.slot_of(chosen(begins, mine))
                bounds = chosen(lows, mine), chosen(highs, mine)
                distribution.add_buckets(chosen(buckets, mine), chosen(counts, mine), bounds, slots)


class _Shares:
    """The rows of a block by endpoint, adapter and stream, each share cut out once."""

    def __init__(self, frame: Frame, ok: Columns, failed: Columns) -> None:
        self._frame = frame
        self._all = ok, failed
        self._cut: dict[tuple[tuple[str, int], ...], tuple[Columns, Columns]] = {}

    def of(self, scope: Scope) -> tuple[Columns, Columns]:
        """The successful and the other rows of a scope, in any phase."""
        key = tuple(self._frame.indices(scope).items())
        if key not in self._cut:
            ok, failed = (rows.where(_restricted(self._frame, scope, rows)) for rows in self._all)
            self._cut[key] = ok, failed
        return self._cut[key]


class _Pick:
    """Which rows of a share lie in the span, and in which second of it they were due."""

    def __init__(self, span: Span, ok: Columns, failed: Columns) -> None:
        self.span = span
        self.rows = ok
        self.ok = span.holds(ok["intended"])
        self.ok_slots: Ints = span.slot_of(chosen(ok["intended"], self.ok))
        lost = span.holds(failed["intended"])
        self.failed_slots: Ints = span.slot_of(chosen(failed["intended"], lost))


def _fold_metric(metric: str, distribution: Distribution, pick: _Pick) -> None:
    if METRICS[metric].dimension is Dimension.TIME:
        distribution.add_failures(pick.failed_slots)
    if METRICS[metric].source is not Source.GAP:
        _add_values(distribution, pick.rows.metric(metric), pick)


def _add_values(distribution: Distribution, found: Values, pick: _Pick) -> None:
    if found.known is None:
        distribution.add(chosen(found.values, pick.ok), chosen(found.buckets, pick.ok), pick.ok_slots)
        return
    intended = pick.rows["intended"]
    known = both(pick.ok, found.known)
    slots = pick.span.slot_of(chosen(intended, known))
    distribution.add(chosen(found.values, known), chosen(found.buckets, known), slots)
    lacking = both(pick.ok, ~found.known)
    unknown = lacking if found.absent is None else both(lacking, ~found.absent)
    untold = pick.span.slot_of(chosen(intended, unknown))
    distribution.unknown += len(untold)
    distribution.absent += len(chosen(intended, lacking)) - len(untold)
    if METRICS[distribution.metric].dimension is Dimension.TIME:
        distribution.add_failures(untold)


def _restricted(frame: Frame, scope: Scope, rows: Columns | Rows) -> Choice:
    mine: Choice = None
    for column, value in frame.indices(scope).items():
        mine = both(mine, rows[column] == value)
    return mine


def _empty(
    metric: str, scope: Scope, frame: Frame, limits: tuple[float, ...] = (), *, slots: bool = True
) -> Distribution:
    if frame.missing(scope) is not None:
        return Distribution(metric, scope, 0, 0, limits)
    span = frame.span(scope.phase)
    return Distribution(metric, scope, span.start, span.slots if slots else 0, limits if slots else ())


def _parts(frame: Frame) -> dict[str, list[Scope]]:
    """The scopes of the break-downs: only where there is more than one to tell apart."""
    phases = list(dict.fromkeys(name for name, _, _ in frame.phases))
    adapters = [*frame.adapters, BASE_MODEL] if frame.adapters else []
    parts = {
        "endpoint": [Scope(endpoint=name) for name in frame.endpoints],
        "adapter": [Scope(adapter=name) for name in adapters],
        "phase": [Scope(phase=name) for name in phases],
        "stream": [Scope(stream=name) for name in frame.streams],
    }
    return {kind: scopes for kind, scopes in parts.items() if len(scopes) > 1}
