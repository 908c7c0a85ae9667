"""Runs that may stop once their verdict is certain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runs_made import SECOND, policy_of, record_of, rows_of

from pytest_inferslo.core.early import Decision, complete_seconds, decide
from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.judge import judge, questions
from pytest_inferslo.core.policy import Policy
from pytest_inferslo.core.samples import GAP_DTYPE, Outcome, SampleBatch
from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import Status

NO_GAPS = np.empty(0, GAP_DTYPE)


def decisions(policy: Policy, rows: np.ndarray, seconds: int, rate: int, **changes: Any) -> list[Decision]:
    """What is decided at the end of each second of a run that is planned for `seconds`."""
    record = record_of(seconds, len(rows), **changes)
    expected = np.full(seconds, rate)
    fold = Fold(record, questions(policy, record), policy.goals())
    decided = []
    for second in range(1, seconds + 1):
        ended = (rows["end"] < second * SECOND) & (rows["end"] >= (second - 1) * SECOND)
        fold.add(SampleBatch(rows[ended], NO_GAPS))
        decided.append(decide(policy, fold.result(), record, expected))
    return decided


def first(found: list[Decision]) -> tuple[int, Status | None]:
    return next(((at + 1, one.status) for at, one in enumerate(found) if one.status), (len(found), None))


def latencies(n: int, ms: float) -> np.ndarray:
    return np.random.default_rng(5).lognormal(np.log(ms), 0.3, n)


@pytest.mark.parametrize(
    ("ms", "status", "latest"), [(20.0, Status.PASS, 20), (140.0, Status.FAIL, 8), (54.0, None, 60)]
)
def test_a_clear_case_ends_early_and_a_close_one_does_not(
    ms: float, status: Status | None, latest: int
) -> None:
    policy = policy_of("ttft p99 <= 110ms", "error_rate <= 5%")
    at, found = first(decisions(policy, rows_of(latencies(6_000, ms), rate=100), 60, 100))
    assert found is status
    assert at <= latest


def test_a_storm_of_errors_ends_within_seconds() -> None:
    policy = policy_of("ttft p99 <= 110ms", "error_rate <= 1%")
    rows = rows_of(np.full(6_000, 5.0), rate=100, outcome=Outcome.HTTP_SERVER_ERROR)
    at, found = first(decisions(policy, rows, 60, 100))
    assert (found, at <= 7) == (Status.FAIL, True)


def test_nothing_is_certain_that_the_rest_of_the_run_could_change() -> None:
    """One clean request after the other: extremes, windows, totals and readings are still open."""
    rows = rows_of(latencies(3_000, 20.0), rate=100)
    for text in ("ttft max <= 1s", "ttft p50 <= 1s for 20s", "throughput >= 5/s", "server_cpu mean <= 90%"):
        assert first(decisions(policy_of(text), rows, 30, 100))[1] is None, text
    budget = {
        "objective": "error_rate <= 1%",
        "period": "1h",
        "burn": [{"rate": 9, "long": "10s", "short": "5s"}],
    }
    assert first(decisions(policy_of("ttft p99 <= 1s", error_budget=budget), rows, 30, 100))[1] is None


def test_what_is_still_open_does_not_hide_a_failure() -> None:
    policy = policy_of("ttft p99 <= 110ms", "throughput >= 5/s")
    assert first(decisions(policy, rows_of(latencies(3_000, 300.0), rate=100), 30, 100))[1] is Status.FAIL


def test_only_whole_seconds_count() -> None:
    """The fast ones of the last seconds are back already, and the slow ones are not."""
    rows = rows_of(np.where(np.arange(3_000) % 2 == 0, 10.0, 5_000.0), rate=100)
    policy = policy_of("ttft p99 <= 110ms")
    record = record_of(30, 3_000)
    fold = Fold(record, questions(policy, record), policy.goals())
    fold.add(SampleBatch(rows[rows["end"] < 10 * SECOND], NO_GAPS))
    summary: Summary = fold.result()
    assert complete_seconds(np.full(30, 100), summary) == 4
    assert decide(policy, summary, record, np.full(30, 100)).status is None


def test_a_calm_stretch_of_a_busy_queue_is_not_the_whole_of_it() -> None:
    """Requests so alike that a second of them is worth a few: a pass is not called early."""
    level = np.repeat(np.where(np.random.default_rng(9).random(60) < 0.4, 35.0, 20.0), 100)
    found = decisions(policy_of("ttft p99 <= 55ms"), rows_of(level, rate=100), 60, 100)
    assert first(found)[1] is None


#: Of a limit of 55 ms: 26 ms are over 0.45 of it and 44 ms near it.
FAST, SLOWER, NEAR = 10.0, 26.0, 44.0


@pytest.mark.parametrize(
    ("name", "usual", "at_times", "share", "requests_alike", "passes"),
    [
        ("none comes near", FAST, FAST, 0.0, 1, True),
        ("some come nearer, each by itself", FAST, SLOWER, 0.03, 1, True),
        ("some come nearer, whole seconds of them", FAST, SLOWER, 0.25, 100, False),
        ("many come nearer, each by itself", FAST, SLOWER, 0.25, 1, True),
        ("all are near, each by itself", NEAR, NEAR, 0.0, 1, True),
        ("all are near, and come in waves", NEAR, NEAR * 1.15, 0.3, 300, False),
    ],
)
def test_a_pass_is_borne_out_by_requests_that_came(
    name: str, usual: float, at_times: float, share: float, requests_alike: int, passes: bool
) -> None:
    """No request is over the limit. What could come is judged by those that came nearest."""
    rng = np.random.default_rng(9)
    slower = np.repeat(rng.random(3_000 // requests_alike) < share, requests_alike)
    ms = np.where(slower, at_times, usual) * rng.lognormal(0.0, 0.02, 3_000)
    at, found = first(decisions(policy_of("ttft p99 <= 55ms"), rows_of(ms, rate=100), 30, 100))
    assert (found, at <= 25) == ((Status.PASS, True) if passes else (None, False)), name


def test_what_was_planned_for_long_is_looked_at_for_longer() -> None:
    rows = rows_of(latencies(3_000, 10.0), rate=10)
    at, found = first(decisions(policy_of("ttft p90 <= 55ms"), rows, 300, 10))
    assert (found, 30 <= at <= 32) == (Status.PASS, True)


def test_a_run_that_could_stop_is_judged_for_looking_often() -> None:
    policy = policy_of("ttft p99 <= 110ms")
    rows = rows_of(latencies(560, 20.0), rate=10)
    for stops, status in ((False, Status.PASS), (True, Status.INCONCLUSIVE)):
        record = record_of(56, 560)
        record["scenario"]["definition"]["stop_when_certain"] = stops
        fold = Fold(record, questions(policy, record), policy.goals())
        fold.add(SampleBatch(rows, NO_GAPS))
        assert judge(policy, fold.result(), record).status is status, stops
