"""Promises on little evidence: what is compared with a few requests, with failed ones, or asked of every window."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from runs_made import MS, SECOND, folded, only, policy_of, record_of, rows_of, verdict_of

from pytest_inferslo.core.judge import baseline_from
from pytest_inferslo.core.readings import IDLE, LOAD, Reading
from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.core.verdict import Finding, Status

PASS, FAIL, INCONCLUSIVE = Status.PASS, Status.FAIL, Status.INCONCLUSIVE
ENDPOINTS = {"name": "g", "kind": "group", "endpoints": [{"name": "stable"}, {"name": "candidate"}]}


def beside(promise: str, stable: npt.ArrayLike, candidate: npt.ArrayLike, failed: int = 0) -> Finding:
    """Of `promise` within the candidate, against the stable server; the candidate's first requests fail."""
    stable, candidate = np.asarray(stable, float), np.asarray(candidate, float)
    endpoint = np.r_[np.zeros(len(stable), int), np.ones(len(candidate), int)]
    outcome = np.zeros(len(endpoint), int)
    outcome[len(stable) : len(stable) + failed] = Outcome.HTTP_SERVER_ERROR
    shuffled = np.random.default_rng(1).permutation(len(endpoint))
    rows = rows_of(
        np.r_[stable, candidate][shuffled], rate=50, endpoint=endpoint[shuffled], outcome=outcome[shuffled]
    )
    record = record_of(len(rows) / 50, len(rows), backend=ENDPOINTS)
    return only(verdict_of(f"{promise} of endpoint:stable within endpoint:candidate", rows, record))


@pytest.mark.parametrize(
    ("promise", "stable", "candidate", "failed", "status"),
    [
        ("ttft p50 <= 120%", 3, 2_000, 0, INCONCLUSIVE),  # the least of three is no bound of a median
        ("ttft p50 <= 120%", 2_000, 2_000, 0, PASS),
        ("ttft p99 <= 120%", 1, 2_000, 0, INCONCLUSIVE),
        ("ttft mean <= 120%", 2, 2, 0, INCONCLUSIVE),
        ("ttft mean <= 120%", 2_000, 2_000, 0, PASS),
        ("ttft max <= 120%", 1, 1, 0, INCONCLUSIVE),
        ("ttft max <= 120%", 2_000, 2_000, 0, PASS),
        ("ttft max <= 120%", 2_000, 2_000, 1, FAIL),
        ("output_tokens min >= 90%", 20, 20, 0, INCONCLUSIVE),
        ("output_tokens min >= 90%", 2_000, 2_000, 0, PASS),
    ],
)
def test_a_few_requests_or_failed_ones_keep_no_comparison(
    promise: str, stable: int, candidate: int, failed: int, status: Status
) -> None:
    """The candidate takes 110 ms in place of 100."""
    found = beside(promise, np.full(stable, 100.0), np.full(candidate, 110.0), failed)
    assert found.status is status, found


@pytest.mark.parametrize(("idle", "status"), [(3, INCONCLUSIVE), (60, PASS)])
@pytest.mark.parametrize("statistic", ["mean", "p90", "peak"])
def test_a_few_readings_before_the_load_are_no_level(statistic: str, idle: int, status: Status) -> None:
    readings = [
        Reading((i - idle) * SECOND // 10, IDLE, "server_cpu", "server", 0.10) for i in range(idle)
    ] + [Reading(i * SECOND // 10, LOAD, "server_cpu", "server", 0.12) for i in range(400)]
    found = only(
        verdict_of(f"server_cpu {statistic} <= 5% above idle", rows_of([10.0] * 4_000), readings=readings)
    )
    assert found.status is status, found


def baseline_finding(promise: str, earlier: npt.NDArray[np.void], now: npt.NDArray[np.void]) -> Finding:
    policy = policy_of(promise, "e2e p50 <= 10s")
    records = [
        record_of(len(rows) / 100, len(rows), run_id=name) for rows, name in ((earlier, "a"), (now, "b"))
    ]
    baseline = baseline_from(policy, folded(policy, earlier, records[0]), records[0])
    return verdict_of(policy, now, records[1], (), baseline).findings[0]


def test_no_run_reaches_more_than_all() -> None:
    """120 % of a goodput of 100 %: all good is not enough."""
    rows = rows_of([10.0] * 3_000)
    found = baseline_finding("goodput >= 120% of baseline", rows, rows)
    assert (found.status, found.observed) == (FAIL, 1.0)


def test_an_extreme_of_a_baseline_with_failures_allows_nothing() -> None:
    broken = rows_of([10.0] * 3_000, outcome=np.arange(3_000) % 2 * Outcome.HTTP_SERVER_ERROR)
    found = baseline_finding("ttft max <= 120% of baseline", broken, rows_of([10.0] * 3_000))
    assert (found.status, found.observed) == (FAIL, None)


def phases(*names: str, each: float) -> list[dict[str, Any]]:
    return [
        {"name": name, "start": int(i * each * SECOND), "end": int((i + 1) * each * SECOND)}
        for i, name in enumerate(names)
    ]


def test_of_a_star_the_one_that_is_compared_with_is_as_large_as_itself() -> None:
    """However few saw it: the verdict hangs on the others."""
    record = record_of(8, 400, phases=phases("one", "two", each=4))
    verdict = verdict_of(
        policy_of("ttft p99 <= 150% of phase:one within phase:*"), rows_of([10.0] * 400, rate=50), record
    )
    assert [(f.scope, f.status) for f in verdict.findings] == [
        ("phase:one", PASS),
        ("phase:two", INCONCLUSIVE),
    ]


def test_a_window_without_requests_is_not_kept() -> None:
    """Nor broken: nothing was asked in it."""
    times = np.r_[np.linspace(0, 10, 500), np.linspace(20, 30, 500)]
    for limit, status in (("1s", INCONCLUSIVE), ("1ms", FAIL)):
        promise = {"objective": f"ttft p50 <= {limit} for 5s", "optional": True}
        found = verdict_of(
            policy_of(promise, "error_rate <= 50%"),
            rows_of([20.0] * 1_000, intended_s=times),
            record_of(31, 1_000),
        ).findings[0]
        assert (found.status, found.observed) == (status, 20 * MS), "optional is no reason to leave it out"


def busy_queue(seed: int, seconds: int = 60, rate: float = 100.0) -> tuple[list[float], list[float]]:
    """Arrivals (s) and latencies (ms) of eight servers that are busy 90 % of the time; the true p99 is 345 ms."""
    rng, mean, settle = np.random.default_rng(seed), 8 * 0.9 / rate, 30.0
    arrivals = np.cumsum(rng.exponential(1 / rate, int(rate * (seconds + settle) * 1.2)))
    arrivals = arrivals[arrivals < seconds + settle]
    free = [0.0] * 8
    seen = []
    for at, takes in zip(
        arrivals.tolist(), rng.lognormal(np.log(mean) - 0.125, 0.5, len(arrivals)).tolist(), strict=True
    ):
        done = max(at, free[0]) + takes
        heapq.heapreplace(free, done)
        seen.append((at - settle, 1000 * (done - at)))
    return [at for at, _ in seen if at >= 0], [ms for at, ms in seen if at >= 0]


@pytest.mark.parametrize("seed", [95, 195])
def test_the_proof_of_a_window_must_be_borne_out_as_that_of_a_run(seed: int) -> None:
    """Two quiet minutes of a busy queue, of 250: they look as if the promise held, whether it says `for 60s` or not."""
    arrivals, ms = busy_queue(seed)
    rows = rows_of(ms, intended_s=arrivals)
    verdict = verdict_of(
        policy_of("ttft p99 <= 310.6ms", "ttft p99 <= 310.6ms for 60s"), rows, record_of(60, len(rows))
    )
    assert [found.status for found in verdict.findings] == [INCONCLUSIVE] * 2
    assert "neighbours are alike" in verdict.findings[1].reason
    far = only(verdict_of("ttft p99 <= 900ms for 60s", rows, record_of(60, len(rows))))
    assert far.status is PASS


@pytest.mark.parametrize("seed", [47, 56, 203, 329])
def test_a_quiet_stretch_of_a_queue_proves_no_mean(seed: int) -> None:
    """The true mean is 114 ms, a tenth over the limit; twenty seconds that saw little of that moved little."""
    arrivals, ms = busy_queue(seed, 20)
    rows, record = rows_of(ms, intended_s=arrivals), record_of(20, len(arrivals))
    assert only(verdict_of("ttft mean <= 102.4ms", rows, record)).status is INCONCLUSIVE
    assert only(verdict_of("ttft mean <= 400ms", rows, record)).status is PASS
    assert only(verdict_of("ttft mean <= 40ms", rows, record)).status is FAIL


@pytest.mark.parametrize(
    ("rate", "failures", "status", "told"),
    [
        (1, 0, INCONCLUSIVE, "too few requests to prove it"),
        (1, 1, INCONCLUSIVE, "1 of 60 requests failed: too few to tell"),
        (1, 20, FAIL, "of the budget"),
        (20, 0, PASS, "of the budget"),
        (20, 1, PASS, "of the budget"),
    ],
)
def test_a_budget_is_kept_or_spent_by_enough_requests(
    rate: int, failures: int, status: Status, told: str
) -> None:
    """14.4 times 0.1 %: one failure of sixty is more, and proves nothing."""
    burn = [{"rate": 14.4, "long": "1m", "short": "10s"}]
    policy = policy_of(error_budget={"objective": "error_rate <= 0.1%", "period": "30d", "burn": burn})
    n = 120 * rate
    outcome = np.where((np.arange(n) >= n // 2) & (np.arange(n) < n // 2 + failures), 15, 0)
    found = only(verdict_of(policy, rows_of([10.0] * n, rate=rate, outcome=outcome), record_of(120, n)))
    assert (found.status, told in found.reason) == (status, True), found.reason


def test_a_score_of_nothing_is_open() -> None:
    promise = {"objective": "gpu_memory peak <= 90%", "optional": True}
    assert (
        verdict_of(policy_of(promise, rubric={"pass_at": "75%"}), rows_of([10.0] * 600)).status
        is INCONCLUSIVE
    )


@pytest.mark.parametrize("seed", [170, 195, 204, 224])
def test_a_low_percentile_is_as_lasting_as_the_level_of_its_run(seed: int) -> None:
    """The true p90 is 203 ms; these minutes were quiet. Far from the limit nothing of that matters."""
    arrivals, ms = busy_queue(seed)
    rows, record = rows_of(ms, intended_s=arrivals), record_of(60, len(arrivals))
    assert only(verdict_of("ttft p90 <= 192.6ms", rows, record)).status is INCONCLUSIVE
    assert only(verdict_of("ttft p90 <= 600ms", rows, record)).status is PASS


def test_an_outage_breaks_a_window_of_errors_however_alike_its_failures() -> None:
    outcome = np.where((np.arange(6_000) // 100 >= 20) & (np.arange(6_000) // 100 < 26), 15, 0)
    found = only(verdict_of("error_rate < 5% for 30s", rows_of([10.0] * 6_000, outcome=outcome)))
    assert found.status is FAIL
    assert "20 %" in found.reason
