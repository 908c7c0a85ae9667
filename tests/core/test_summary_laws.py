"""The fold against a slow, plain reading of the definitions, and the laws that any run obeys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_samples import MS, S, record

import pytest_inferslo.core.fold as fold_module
from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.samples import ABSENT, GAP_DTYPE, SAMPLE_DTYPE, Outcome, Rows, SampleBatch
from pytest_inferslo.core.summary import ALL, Question, Scope, Summary

LIMITS = {
    "ttft": 100.0 * MS,
    "e2e": 500.0 * MS,
    "tpot": 12.5 * MS,
    "normalized": 30.0 * MS,
    "max_stall": 40.0 * MS,
}
RUN = record(
    start=2 * S,
    end=int(6.5 * S),
    adapters=["law"],
    phases=[
        {"name": "warm-up", "start": 0, "end": 2 * S},
        {"name": "measured", "start": 2 * S, "end": int(6.5 * S)},
    ],
)
SCOPES = (ALL, Scope(adapter="law"), Scope(adapter="base"), Scope(phase="warm-up"))

REQUEST = st.tuples(
    st.integers(0, 8 * S),  # intended
    st.sampled_from([Outcome.SUCCESS] * 5 + [Outcome.RESET, Outcome.UNFINISHED, Outcome.NEVER_SENT]),
    st.integers(0, 300 * MS),  # send to first output
    st.integers(0, 2 * S),  # first to last
    st.sampled_from([ABSENT, 0, 1, 2, 17, 100]),  # tokens
    st.sampled_from([1, 2, 16]),  # chunks
    st.sampled_from([ABSENT, 0]),  # adapter
)
RUNS = st.lists(REQUEST, max_size=40)


def sampled(requests: list[tuple[int, ...]]) -> Rows:
    made = np.full(len(requests), ABSENT, np.int64).astype(SAMPLE_DTYPE)
    for i, (intended, outcome, wait, length, tokens, chunks, adapter) in enumerate(requests):
        row = made[i]
        row["index"], row["intended"], row["outcome"], row["adapter"] = i, intended, outcome, adapter
        row["stream"] = row["endpoint"] = row["worker"] = row["chunks"] = row["bursts"] = 0
        row["prompt_hash"] = i
        if outcome == Outcome.NEVER_SENT:
            continue
        row["sent"] = intended + 1
        if outcome == Outcome.SUCCESS:
            row["first"] = row["first_content"] = row["sent"] + wait
            row["last"] = row["end"] = row["first"] + length
            row["output_tokens"], row["chunks"] = tokens, chunks
            row["max_stall"] = length if chunks > 1 else ABSENT
    return made


def folded(samples: Rows, pieces: int = 1) -> Summary:
    questions = [Question(metric, scope, (limit,)) for metric, limit in LIMITS.items() for scope in SCOPES]
    fold = Fold(RUN, questions, (("ttft", 100.0 * MS), ("tpot", 12.5 * MS)))
    for piece in np.array_split(samples, pieces):
        fold.add(SampleBatch(piece, np.empty(0, GAP_DTYPE)))
    return fold.result()


def plain_value(metric: str, row: Any) -> float | str | None:
    """A number, None (untold), or "absent"."""
    if metric == "ttft":
        return float(row["first"] - row["intended"])
    if metric == "e2e":
        return float(row["last"] - row["intended"])
    if metric == "max_stall":
        return float(row["max_stall"]) if row["chunks"] > 1 else "absent"
    n = int(row["output_tokens"])
    if n == ABSENT:
        return None
    if metric == "normalized":
        return float(row["last"] - row["intended"]) / n if n else "absent"
    if n < 2 or row["chunks"] < 2:
        return "absent"
    # Events that all came in one read lost their order in time: since the send is the most that a token took.
    begin = row["sent"] if row["first"] == row["last"] else row["first"]
    return float(row["last"] - begin) / (n - 1)


def in_scope(row: Any, scope: Scope) -> bool:
    start, end = (0, 2 * S) if scope.phase == "warm-up" else (2 * S, int(6.5 * S))
    adapter = {None: row["adapter"], "law": 0, "base": ABSENT}[scope.adapter]
    return bool(start <= row["intended"] < end and row["adapter"] == adapter)


@settings(max_examples=60, deadline=None)
@given(RUNS)
@example([(3 * S, Outcome.SUCCESS, 1, 0, 2, 2, ABSENT)])
def test_the_fold_is_the_plain_reading(requests: list[tuple[int, ...]]) -> None:
    samples = sampled(requests)
    found = folded(samples)
    for scope in SCOPES:
        mine = [row for row in samples if in_scope(row, scope)]
        for metric, limit in LIMITS.items():
            values = [plain_value(metric, row) for row in mine if row["outcome"] == Outcome.SUCCESS]
            numbers = sorted(v for v in values if isinstance(v, float))
            failures = sum(row["outcome"] != Outcome.SUCCESS for row in mine) + values.count(None)
            distribution = found.distribution(metric, scope)
            assert (distribution.count, distribution.failures) == (len(numbers), failures)
            assert distribution.absent == values.count("absent")
            assert distribution.over(limit) == sum(v > limit for v in numbers)
            assert distribution.slot_count.sum() == len(numbers)
            assert distribution.total == pytest.approx(sum(numbers))
            ranked = [*numbers, *[math.inf] * failures]
            for p in (0.5, 0.99) if ranked else ():
                exact = ranked[math.ceil(p * len(ranked)) - 1]
                assert distribution.percentile(p) == pytest.approx(exact, rel=0.001, abs=1)
        assert found.ratio("error_rate", scope)[:2] == (
            sum(row["outcome"] != Outcome.SUCCESS for row in mine),
            len(mine),
        )
        assert found.ratio("goodput", scope).hits == sum(is_good(row) for row in mine)
        check_totals(found, scope, samples)


def is_good(row: Any) -> bool:
    if row["outcome"] != Outcome.SUCCESS or plain_value("ttft", row) > 100 * MS:  # type: ignore[operator]
        return False
    tpot = plain_value("tpot", row)
    return tpot == "absent" or (tpot is not None and float(tpot) <= 12.5 * MS)


def check_totals(found: Summary, scope: Scope, samples: Rows) -> None:
    """Throughput and tokens: by the instant, whatever the intended start."""
    start, end = (0, 2 * S) if scope.phase == "warm-up" else (2 * S, int(6.5 * S))
    finished, tokens = 0, 0.0
    for row in samples:
        adapter = {None: row["adapter"], "law": 0, "base": ABSENT}[scope.adapter]
        if row["outcome"] != Outcome.SUCCESS or row["adapter"] != adapter:
            continue
        first, last = int(row["first"]), int(row["last"])
        finished += start <= int(row["end"]) < end
        if row["output_tokens"] > 0:
            inside = max(0, min(last, end) - max(first, start))
            whole = float(start <= last < end)
            tokens += int(row["output_tokens"]) * (inside / (last - first) if last > first else whole)
    assert found.slots("throughput", scope).sum() == finished
    assert found.slots("output_tokens_per_second", scope).sum() == pytest.approx(tokens, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(RUNS, st.integers(1, 6), st.integers(1, 7), st.randoms())
def test_batches_and_workers_in_any_order_give_one_result(
    requests: list[tuple[int, ...]], pieces: int, block: int, random: Any
) -> None:
    samples = sampled(requests)
    shuffled = samples[random.sample(range(len(samples)), len(samples))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_module, "BLOCK", block)
        split = folded(shuffled, pieces)
    whole = folded(samples)
    for metric in (*LIMITS, "service_ttft", "icl"):
        one, other = split.distribution(metric), whole.distribution(metric)
        assert (one.histogram.counts == other.histogram.counts).all()
        assert one.slot_count.tolist() == other.slot_count.tolist()
        assert one.slot_failures.tolist() == other.slot_failures.tolist()
        assert (one.minimum, one.maximum, one.absent) == (other.minimum, other.maximum, other.absent)
    assert split.counts() == whole.counts()
    assert split.tokens() == whole.tokens()
    assert split.facts == pytest.approx(whole.facts)


@settings(max_examples=30, deadline=None)
@given(RUNS, st.integers(1, int(4.5 * S) - 1))
def test_a_window_is_the_union_of_its_parts(requests: list[tuple[int, ...]], cut: int) -> None:
    samples = sampled(requests)
    parts = []
    for start, end in ((2 * S, 2 * S + cut), (2 * S + cut, int(6.5 * S))):
        fold = Fold(record(start=start, end=end))
        fold.add(SampleBatch(samples, np.empty(0, GAP_DTYPE)))
        parts.append(fold.result())
    whole = folded(samples)
    for metric in LIMITS:
        merged = parts[0].distribution(metric).histogram
        merged.merge(parts[1].distribution(metric).histogram)
        assert (merged.counts == whole.distribution(metric).histogram.counts).all()
        assert merged.failures == whole.distribution(metric).failures
    for kind in ("throughput", "output_tokens_per_second"):
        in_parts = sum(part.slots(kind).sum() for part in parts)
        assert in_parts == pytest.approx(whole.slots(kind).sum(), abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(RUNS, st.integers(2 * S, 6 * S), st.sampled_from([0.5, 0.95, 0.99]))
def test_one_more_failure_improves_nothing(requests: list[tuple[int, ...]], intended: int, p: float) -> None:
    failed = (intended, Outcome.RESET, 0, 0, ABSENT, 1, ABSENT)
    before, after = folded(sampled(requests)), folded(sampled([*requests, failed]))
    for metric in LIMITS:
        old, new = before.distribution(metric).percentile(p), after.distribution(metric).percentile(p)
        assert new is not None
        assert old is None or new >= old
    assert after.ratio("error_rate").hits == before.ratio("error_rate").hits + 1
    assert after.ratio("goodput").hits == before.ratio("goodput").hits
