"""Ratios, totals, goodput, recovery and break-downs of runs that are written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from made_samples import MS, S, joined, record, rows, summary

from pytest_inferslo.core.samples import ABSENT, Outcome, Rows
from pytest_inferslo.core.summary import ALL, Question, Scope


def test_error_rate_counts_the_never_sent_and_the_unfinished() -> None:
    samples = joined(
        rows(90),
        rows(4, start=9 * S, outcome=Outcome.HTTP_SERVER_ERROR),
        rows(3, start=9 * S, outcome=Outcome.UNFINISHED),
        rows(3, start=9 * S, outcome=Outcome.NEVER_SENT),
    )
    found = summary(samples)
    assert found.ratio("error_rate").value == 0.1
    counts = found.counts()
    assert (counts.intended, counts.issued, counts.succeeded) == (100, 97, 90)
    assert (counts.failed, counts.unfinished, counts.never_sent) == (4, 3, 3)
    assert counts.outcomes[Outcome.HTTP_SERVER_ERROR] == 4
    assert found.ratio("error_rate").slot_hits.tolist() == [0] * 9 + [10]
    assert found.ratio("error_rate").slot_trials.tolist() == [10] * 10


def test_goodput_is_joint_per_request_and_over_all_intended() -> None:
    samples = joined(
        rows(60),
        rows(10, start=6 * S, first=90 * MS),  # late first token, good pace
        rows(10, start=7 * S, last=400 * MS),  # good first token, slow pace
        rows(20, start=8 * S, outcome=Outcome.NEVER_SENT),
    )
    found = summary(samples, goals=(("ttft", 50.0 * MS), ("tpot", 20.0 * MS)))
    assert found.ratio("goodput").value == 0.6
    assert found.total("goodput_rate") == 6.0
    assert found.ratio("goodput").slot_hits.sum() == 60


@pytest.mark.parametrize(
    ("other", "good", "cause"),
    [
        ({"output_tokens": 1, "chunks": 1}, 10, None),  # no time per token: that goal cannot be missed
        ({"output_tokens": ABSENT}, 5, None),  # untold: never good
    ],
)
def test_goodput_where_a_goal_is_undefined(other: dict[str, Any], good: int, cause: None) -> None:
    found = summary(joined(rows(5), rows(5, start=S, **other)), goals=(("tpot", 20.0 * MS),))
    assert found.ratio("goodput").hits == good
    assert found.absent("goodput") == cause


def test_goodput_is_not_measured_where_a_goal_is_defined_for_no_request() -> None:
    found = summary(rows(5, output_tokens=1), goals=(("tpot", 20.0 * MS),))
    assert "tpot is undefined for all 5" in (found.absent("goodput") or "")
    assert found.total("goodput_rate") is None


def test_throughput_counts_what_finished_inside_the_window() -> None:
    # 10/s for 10 s, each answered after 3 s: those of the last 3 s finish in the drain
    found = summary(rows(100, last=3 * S, end=3 * S))
    assert found.total("throughput") == 7.0
    assert found.slots("throughput").tolist() == [0, 0, 0] + [10] * 7


def test_tokens_of_the_drain_tail_are_outside() -> None:
    # one answer of 100 tokens from 8 s to 12 s: half of them in a window that ends at 10 s
    found = summary(rows(1, start=7 * S, first=S, last=5 * S, output_tokens=100))
    assert found.total("output_tokens_per_second") == pytest.approx(5.0)
    assert found.slots("output_tokens_per_second").tolist() == pytest.approx([0] * 8 + [25, 25])


def test_tokens_of_requests_that_began_in_the_warm_up_count_where_they_fall() -> None:
    samples = joined(
        rows(1, first=0, last=4 * S, output_tokens=40),  # 10/s from 0 to 4 s
        rows(1, start=3 * S, first=0, last=0, chunks=1, output_tokens=7),  # all at once at 3 s
    )
    found = summary(samples, run=record(start=2 * S, end=int(4.5 * S)))
    assert found.slots("output_tokens_per_second").tolist() == pytest.approx([10, 17, 0])
    assert found.total("output_tokens_per_second") == pytest.approx(27 / 2.5)


def test_tokens_for_the_cost() -> None:
    samples = joined(
        rows(2, prompt_tokens=1000, cached_tokens=400, output_tokens=50, reasoning_tokens=30),
        rows(1, start=S, output_tokens=ABSENT, prompt_tokens=ABSENT),
        rows(1, start=20 * S),
    )
    tokens = summary(samples).tokens()
    assert (tokens.prompt, tokens.cached, tokens.output, tokens.reasoning) == (2000, 800, 100, 60)
    assert (tokens.requests, tokens.untold) == (3, 1)


def recovering(slow_seconds: list[int], run_end: int = 12) -> Rows:
    """10/s; requests of the slow seconds take 500 ms to the first token."""
    samples = rows(10 * run_end)
    slow = np.isin(samples["intended"] // S, slow_seconds)
    samples["first"][slow] = samples["intended"][slow] + 500 * MS
    return samples


@pytest.mark.parametrize(
    ("slow", "seconds"),
    [
        ([4, 5], 0),  # slow in the spike alone
        ([4, 5, 6, 7], 2),
        ([4, 5, 6, 9], 4),  # back for a while does not count
        ([4, 11], math.inf),  # still slow at the end
    ],
)
def test_recovery_is_when_it_is_back_and_stays(slow: list[int], seconds: float) -> None:
    phases = [{"name": "base", "start": 0, "end": 4 * S}, {"name": "spike", "start": 4 * S, "end": 6 * S}]
    run = record(end=12 * S, phases=[*phases, {"name": "after", "start": 6 * S, "end": 12 * S}])
    found = summary(recovering(slow), Question("ttft", ALL, (100.0 * MS,)), run=run)
    assert found.recovery_time("spike", 100.0 * MS) == seconds * S
    assert found.recovery_time("after", 100.0 * MS) is None  # nothing was asked after it
    assert found.recovery_time("spkie", 100.0 * MS) is None


def test_failures_hold_the_recovery_up() -> None:
    run = record(phases=[{"name": "spike", "start": 0, "end": 2 * S}])
    samples = joined(rows(20), rows(30, start=2 * S, outcome=Outcome.HTTP_OVERLOADED), rows(50, start=5 * S))
    found = summary(samples, Question("ttft", ALL, (100.0 * MS,)), run=run)
    assert found.recovery_time("spike", 100.0 * MS) == 3 * S


def test_break_downs_add_up_to_the_whole() -> None:
    samples = joined(
        rows(60, adapter=0),
        rows(30, start=6 * S, adapter=1, endpoint=1, first=80 * MS),
        rows(10, start=9 * S),
    )
    run = record(adapters=["law", "med"], backend={"endpoints": [{"name": "a"}, {"name": "b"}]})
    found = summary(samples, Question("ttft", Scope(adapter="med"), (50.0 * MS,)), run=run)
    parts = {part.name: part for part in found.breakdown("adapter")}
    assert {name: part.counts.intended for name, part in parts.items()} == {"law": 60, "med": 30, "base": 10}
    assert parts["med"].ttft.percentile(0.5) == 80 * MS
    assert [part.counts.intended for part in found.breakdown("endpoint")] == [70, 30]
    assert found.breakdown("phase") == ()
    assert found.distribution("ttft", Scope(adapter="med")).over(50.0 * MS) == 30
    assert found.counts(Scope(adapter="med")).succeeded == 30


def test_a_phase_that_comes_back_is_one_scope() -> None:
    phases = [
        {"name": name, "start": start * S, "end": (start + 1) * S}
        for start, name in enumerate(["base", "burst", "base", "burst", "base"])
    ]
    samples = recovering([1, 3], run_end=5)
    asked = Question("ttft", Scope(phase="burst"), (100.0 * MS,))
    found = summary(samples, asked, run=record(end=5 * S, phases=phases))
    burst = found.distribution("ttft", Scope(phase="burst"))
    assert burst.count == burst.over(100.0 * MS) == 20
    assert burst.start == S
    assert burst.slot_count.tolist() == [10, 0, 10]
    assert [part.counts.intended for part in found.breakdown("phase")] == [30, 20]
