"""One definition per metric: what each is worth for requests that are written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from made_samples import MS, S, gap_rows, joined, record, rows, summary

from pytest_inferslo.core.histogram import LAYOUT
from pytest_inferslo.core.samples import ABSENT, Outcome
from pytest_inferslo.core.summary import ALL, Question, Scope


@pytest.mark.parametrize(
    ("metric", "changed", "value"),
    [
        ("ttft", {}, 20 * MS),
        ("ttft", {"sent": 5 * MS}, 20 * MS),  # from the intended start, not from the send
        ("service_ttft", {"sent": 5 * MS}, 15 * MS),
        ("ttfo", {"first_content": 60 * MS}, 60 * MS),
        ("e2e", {"end": 900 * MS}, 110 * MS),  # trailing events do not move it
        ("service_e2e", {"sent": 5 * MS}, 105 * MS),
        ("send_lag", {"sent": 5 * MS}, 5 * MS),
        ("tpot", {}, 10 * MS),
        ("tpot", {"output_tokens": 17, "chunks": 3, "first": 100 * MS, "last": 260 * MS}, 10 * MS),
        # Three events in one read: at most the whole time since the send, shared by the gaps.
        ("tpot", {"output_tokens": 17, "chunks": 3, "sent": 4 * MS, "first": 20 * MS, "last": 20 * MS}, MS),
        ("max_stall", {}, 10 * MS),
        ("normalized", {}, 11 * MS),
        ("output_tokens", {}, 10),
        ("prompt_tokens", {}, 100),
    ],
)
def test_definition(metric: str, changed: dict[str, Any], value: float) -> None:
    found = summary(rows(3, **changed)).distribution(metric)
    assert (found.count, found.failures, found.absent) == (3, 0, 0)
    assert found.minimum == found.maximum == value
    assert found.percentile(0.99) == value
    assert found.total == 3 * value


@pytest.mark.parametrize(
    ("metric", "changed", "kind"),
    [
        ("tpot", {"output_tokens": 1}, "absent"),
        ("tpot", {"output_tokens": 0}, "absent"),
        ("tpot", {"output_tokens": 17, "chunks": 1, "last": 20 * MS}, "absent"),  # one event: no time between
        ("tpot", {"output_tokens": ABSENT}, "unknown"),
        ("normalized", {"output_tokens": 0}, "absent"),
        ("normalized", {"output_tokens": ABSENT}, "unknown"),
        ("max_stall", {"max_stall": ABSENT, "chunks": 1}, "absent"),
        ("ttfo", {"first_content": ABSENT}, "unknown"),  # reasoning alone: content never came
        ("output_tokens", {"output_tokens": ABSENT}, "unknown"),
    ],
)
def test_a_value_that_is_not_there_is_never_zero(metric: str, changed: dict[str, Any], kind: str) -> None:
    found = summary(joined(rows(4), rows(6, start=S, **changed))).distribution(metric)
    unknown = kind == "unknown"
    assert found.count == 4
    assert (found.absent, found.unknown) == (6 * (not unknown), 6 * unknown)
    is_time = metric != "output_tokens"
    assert found.failures == (6 if unknown and is_time else 0)
    assert found.percentile(0.99) == (math.inf if unknown and is_time else found.maximum)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.SUCCESS], ids=lambda o: o.name)
def test_every_failure_ranks_as_infinity(outcome: Outcome) -> None:
    found = summary(joined(rows(97), rows(3, start=9 * S, outcome=outcome)), gaps=gap_rows((0, 5000, 97)))
    for metric in (
        "ttft",
        "service_ttft",
        "ttfo",
        "e2e",
        "service_e2e",
        "send_lag",
        "tpot",
        "icl",
        "max_stall",
    ):
        distribution = found.distribution(metric)
        assert distribution.failures == 3, metric
        assert distribution.percentile(0.98) == math.inf, metric
        assert distribution.percentile(0.97) is not None
        assert distribution.percentile(0.97) < math.inf, metric
    assert found.ratio("error_rate")[:2] == (3, 100)


def test_fast_failures_never_improve_a_latency() -> None:
    slow = rows(45, last=1000 * MS)
    refused = rows(55, start=5 * S, outcome=Outcome.HTTP_SERVER_ERROR, end=5 * MS)
    assert summary(joined(slow, refused)).distribution("e2e").percentile(0.5) == math.inf


@pytest.mark.parametrize(
    ("limit", "over"), [(20.0 * MS, 0), (20.0 * MS - 0.25, 50), (math.nextafter(20.0 * MS, 0), 50)]
)
def test_a_limit_is_compared_unrounded(limit: float, over: int) -> None:
    found = summary(rows(50), Question("ttft", ALL, (limit,))).distribution("ttft")
    assert found.over(limit) == over


def test_a_fraction_of_a_nanosecond_counts() -> None:
    # 90,000,001 ns over 9 gaps: 10,000,000.11 ns per token
    found = summary(rows(10, last=110 * MS + 1), Question("tpot", ALL, (10.0 * MS,)))
    assert found.distribution("tpot").over(10.0 * MS) == 10


def test_slots_are_seconds_from_the_windows_start() -> None:
    samples = joined(
        rows(20, start=S // 2),  # half a second of warm-up
        rows(5, start=2 * S, first=300 * MS, last=400 * MS),
        rows(2, start=3 * S, outcome=Outcome.RESET),
    )
    run = record(start=S, end=int(3.5 * S))
    found = summary(samples, Question("ttft", ALL, (100.0 * MS,)), run=run).distribution("ttft")
    assert found.start == S
    assert found.slot_count.tolist() == [10, 10, 0]
    assert found.slot_failures.tolist() == [0, 0, 2]
    assert found.slot_over[100.0 * MS].tolist() == [0, 5, 0]
    assert found.slot_total.tolist() == [200 * MS, 5 * 300 * MS + 5 * 20 * MS, 0]


@pytest.mark.parametrize(
    ("intended", "inside"), [(2 * S - 1, False), (2 * S, True), (5 * S - 1, True), (5 * S, False)]
)
def test_warm_up_and_drain_are_cut_by_intended_start(intended: int, inside: bool) -> None:
    found = summary(rows(1, start=intended), run=record(start=2 * S, end=5 * S))
    assert found.distribution("e2e").count == inside
    assert found.counts().intended == inside
    assert found.facts["warmup_samples"] == (intended < 2 * S)


def test_gaps_are_cut_by_whole_seconds_and_judged_high() -> None:
    bucket = int(LAYOUT.bucket_of(np.array([80 * MS]))[0])
    low, high = LAYOUT.bounds(bucket)
    gaps = gap_rows((0, bucket, 7), (1, bucket, 8), (2, bucket + 50, 9), (5, bucket, 1))
    asked = Question("icl", ALL, (float(low), float(high)))
    run = record(start=S, end=3 * S)
    found = summary(rows(1, start=S), asked, gaps=gaps, run=run).distribution("icl")
    assert found.count == 17
    assert found.slot_count.tolist() == [8, 9]
    assert found.slot_over[float(low)].tolist() == [
        8,
        9,
    ]  # the bucket holds values over the limit: they count
    assert found.slot_over[float(high)].tolist() == [0, 9]
    assert found.minimum == low


def test_two_streams_of_which_one_streams() -> None:
    definition = {
        "api": "chat",
        "streaming": True,
        "arrivals": {
            "kind": "streams",
            "streams": [
                {"name": "chat", "api": None, "streaming": None},
                {"name": "index", "api": "embeddings", "streaming": None},
            ],
        },
    }
    samples = joined(rows(10), rows(20, start=5 * S, stream=1, first=50 * MS, chunks=1, max_stall=ABSENT))
    by_stream = Question("e2e", Scope(stream="index"))
    found = summary(samples, by_stream, run=record(scenario={"definition": definition}))
    assert found.distribution("ttft").count == 10
    assert found.distribution("ttft").absent == 20
    assert found.distribution("ttft").percentile(1.0) == 20 * MS
    assert found.distribution("e2e").count == 30
    assert found.distribution("e2e", Scope(stream="index")).count == 20
    assert [part.name for part in found.breakdown("stream")] == ["chat", "index"]


@pytest.mark.parametrize(
    ("metric", "samples", "cause"),
    [
        ("ttft", rows(0), "no request"),
        ("tpot", rows(5, output_tokens=1), "undefined for all 5"),
        ("tpot", rows(5, output_tokens=ABSENT), "no token counts"),
        ("output_tokens_per_second", rows(5, output_tokens=ABSENT), "no token counts"),
        ("goodput", rows(5), "no per-request objective"),
        ("server_cpu", rows(5), "no reading"),
        ("ttft", rows(5), None),
        ("ttft", rows(5, outcome=Outcome.HTTP_SERVER_ERROR), None),  # measured: all of them failed
    ],
)
def test_absent_says_why(metric: str, samples: Any, cause: str | None) -> None:
    said = summary(samples).absent(metric)
    assert said is None if cause is None else cause in (said or "")


def test_absent_in_an_unstreamed_scenario_and_by_the_record() -> None:
    plain = record(scenario={"definition": {"streaming": False}}, absent={"gpu_memory": "no NVML library"})
    found = summary(rows(5), run=plain)
    assert found.absent("icl") == "the scenario does not stream its answers"
    assert found.absent("e2e") is None
    assert found.absent("gpu_memory") == "no NVML library"
    assert found.distribution("ttft").count == 0
    assert "no adapter 'x'" in (found.absent("ttft", Scope(adapter="x")) or "")


def test_a_scope_that_was_not_asked_for_is_refused() -> None:
    with pytest.raises(LookupError, match="ask a Question"):
        summary(rows(5)).distribution("ttft", Scope(phase="measured"))
