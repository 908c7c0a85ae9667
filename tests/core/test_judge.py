"""Whole policies on whole runs, through the real fold. Case numbers are those of docs/cases."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from runs_made import MS, SECOND, folded, only, policy_of, record_of, rows_of, verdict_of

from pytest_inferslo.core.arrivals import (
    Arrivals,
    bursts,
    concurrency,
    constant,
    phase,
    ramp,
    sine,
    spike,
    steps,
)
from pytest_inferslo.core.arrivals import phases as in_phases
from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.histogram import fold_gaps
from pytest_inferslo.core.judge import baseline_from, judge, judge_together, questions
from pytest_inferslo.core.likeness import load_differences
from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.readings import Reading
from pytest_inferslo.core.samples import Outcome, SampleBatch
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.core.verdict import Status, Verdict
from pytest_inferslo.errors import UsageError

PASS, FAIL, INCONCLUSIVE, INVALID = Status.PASS, Status.FAIL, Status.INCONCLUSIVE, Status.INVALID


def failing(n: int, failed: int, outcome: Outcome = Outcome.HTTP_SERVER_ERROR) -> np.ndarray:
    """Outcomes of n requests of which the last `failed` failed."""
    return np.where(np.arange(n) < n - failed, Outcome.SUCCESS, outcome)


def spread(n: int, ms: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(np.log(ms), 0.3, n)


def reading(metric: str, values: Any, source: str = "server") -> list[Reading]:
    return [Reading(100 * MS * i, "load", metric, source, float(v)) for i, v in enumerate(values)]


def test_case_1_all_requests_fail() -> None:
    found = only(verdict_of("ttft p99 <= 200ms", rows_of(np.full(50, 5.0), outcome=failing(50, 50))))
    assert (found.status, found.observed) == (FAIL, math.inf)
    assert "no successful sample" in found.reason


def test_case_2_what_was_not_measured_fails() -> None:
    record = record_of(10, 900)
    record["scenario"]["definition"]["streaming"] = False
    found = only(verdict_of("icl p99 <= 200ms", rows_of(spread(900, 20), rate=90), record))
    assert (found.status, found.observed, found.observed_text) == (FAIL, None, "not measured")
    assert "does not stream" in found.reason


def test_case_7_time_outs_reach_the_percentile_as_infinity() -> None:
    rows = rows_of(np.full(100, 1.0), rate=10, outcome=failing(100, 3, Outcome.TIMEOUT_TOTAL))
    verdict = verdict_of("e2e p99 <= 500ms", rows)
    assert (only(verdict).status, only(verdict).observed) == (FAIL, math.inf)
    again = Verdict.from_dict(json.loads(json.dumps(verdict.to_dict(), allow_nan=False)))
    assert again == verdict
    assert only(again).observed == math.inf


def test_case_8_fast_failures_improve_nothing() -> None:
    rows = rows_of(np.full(100, 900.0), rate=10, outcome=failing(100, 55))
    assert only(verdict_of("e2e p50 <= 1800ms", rows)).status is FAIL


def test_case_9_unfinished_requests_are_failures() -> None:
    rows = rows_of(np.full(30, 50.0), rate=10, outcome=failing(30, 10, Outcome.UNFINISHED))
    verdict = verdict_of(policy_of("e2e p99 <= 1s", "error_rate <= 1%"), rows)
    assert [f.status for f in verdict.findings] == [FAIL, FAIL]
    assert verdict.findings[1].observed == pytest.approx(1 / 3)


def test_case_14_histograms_are_merged_and_percentiles_never_averaged() -> None:
    ms = np.where(np.arange(1_000) % 10 == 9, 1_900.0, 1.0)
    found = only(verdict_of("e2e p95 <= 1500ms", rows_of(ms, rate=50, worker=np.arange(1_000) % 10 == 9)))
    assert found.status is FAIL
    assert found.observed == pytest.approx(2_000 * MS, rel=0.001)


def test_case_22_a_missing_scope_fails() -> None:
    rows = rows_of(spread(900, 20), rate=90)
    for scope in ("adapter:legal", "endpoint:new", "phase:spike", "adapter:*"):
        found = only(verdict_of(f"ttft p99 <= 1s within {scope}", rows))
        assert (found.status, found.observed) == (FAIL, None), scope


@pytest.mark.parametrize("optional", [False, True])
def test_case_23_and_49_an_absent_gpu_fails_unless_optional(optional: bool) -> None:
    policy = policy_of("ttft p99 <= 1s", {"objective": "gpu_memory peak <= 90%", "optional": optional})
    record = record_of(10, 900, absent={"gpu_memory": "libnvidia-ml is absent"})
    verdict = verdict_of(policy, rows_of(spread(900, 20), rate=90), record)
    assert verdict.findings[0].status is PASS
    assert (verdict.findings[1].status, verdict.findings[1].observed) == (FAIL, None)
    assert "libnvidia-ml is absent" in verdict.findings[1].reason
    assert verdict.status is (PASS if optional else FAIL)


def test_case_25_load_that_was_not_offered_is_invalid() -> None:
    rows = rows_of(spread(1_000, 20), rate=50)
    rows["sent"] = rows["intended"] * 10  # five users and a reply of a second
    verdict = verdict_of("service_ttft p99 <= 200ms", rows, record_of(20, 1_000))
    assert verdict.status is INVALID
    assert "offered 5" in next(g for g in verdict.guards if g.name == "undelivered").reason


def test_case_34_nothing_rounds_before_the_comparison() -> None:
    assert only(verdict_of("ttft p99 <= 1200ms", rows_of(np.full(900, 1_239.0)))).status is FAIL
    exact = np.full(900, 1_200.0)
    assert only(verdict_of("ttft p99 <= 1200ms", rows_of(exact))).status is PASS
    assert only(verdict_of("ttft p99 < 1200ms", rows_of(exact))).status is FAIL
    over = rows_of(exact)
    over["first"] += 1
    found = only(verdict_of("ttft p99 <= 1200ms", over))
    assert found.status is FAIL
    assert found.observed_text != found.limit_text


@pytest.mark.parametrize(
    ("n", "slow", "objective", "status"),
    [
        (900, 0, "ttft p99 <= 100ms", PASS),
        (300, 0, "ttft p99 <= 100ms", INCONCLUSIVE),
        (900, 8, "ttft p99 <= 100ms", INCONCLUSIVE),
        (900, 90, "ttft p99 <= 100ms", FAIL),
        (900, 90, "ttft p90 <= 100ms", INCONCLUSIVE),
        (900, 20, "ttft p90 <= 100ms", PASS),
        (900, 0, "ttft max <= 100ms", PASS),
        (900, 1, "ttft max <= 100ms", FAIL),
        (300, 0, "ttft max <= 100ms", INCONCLUSIVE),
        (900, 0, "ttft mean <= 25ms", PASS),
        (900, 90, "ttft mean <= 25ms", FAIL),
        (900, 0, "throughput >= 28/s", PASS),
        (900, 0, "throughput >= 35/s", FAIL),
        (900, 0, "output_tokens_per_second >= 300 tokens/s", PASS),
        (900, 0, "output_tokens p5 >= 11 tokens", PASS),
        (900, 0, "output_tokens p5 > 11 tokens", FAIL),
        (900, 0, "output_tokens min >= 11 tokens", PASS),
    ],
)
def test_a_promise_is_kept_broken_or_open(n: int, slow: int, objective: str, status: Status) -> None:
    order = np.random.default_rng(1).permutation(n)
    ms = np.where(order < slow, 200.0, spread(n, 20))
    found = only(verdict_of(objective, rows_of(ms, rate=30)))
    assert found.status is status, found
    assert found.observed is not None
    assert found.source == "p.yaml:1"


@pytest.mark.parametrize(
    ("failed", "objective", "status"),
    [
        (0, "error_rate <= 1%", PASS),
        (0, "error_rate <= 0.1%", INCONCLUSIVE),
        (9, "error_rate <= 1%", INCONCLUSIVE),
        (60, "error_rate <= 1%", FAIL),
        (0, "error_rate <= 0%", PASS),
        (1, "error_rate <= 0%", FAIL),
        (0, "goodput >= 99%", PASS),
        (90, "goodput >= 99%", FAIL),
        (0, "goodput >= 100%", PASS),
    ],
)
def test_error_rates_and_goodput(failed: int, objective: str, status: Status) -> None:
    order = np.random.default_rng(1).permutation(900)
    outcome = np.where(order < failed, Outcome.RESET, Outcome.SUCCESS)
    policy = policy_of(objective, {"objective": "e2e p50 <= 10s", "weight": 1})
    verdict = verdict_of(policy, rows_of(spread(900, 20), rate=30, outcome=outcome))
    assert verdict.findings[0].status is status, verdict.findings[0]


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("error_rate <= 1%", "60 of 900 requests failed"),
        ("error_rate <= 0%", "60 of 900 requests failed"),
        ("goodput >= 99%", "60 of 900 requests did not meet every limit"),
        ("e2e max <= 100ms", "900 of 900 requests are beyond the limit"),
    ],
)
def test_a_breach_says_what_befell_the_requests(objective: str, said: str) -> None:
    policy = policy_of(objective, "e2e p50 <= 10s")
    outcome = np.random.default_rng(1).permutation(failing(900, 60))
    verdict = verdict_of(policy, rows_of(spread(900, 20), rate=30, outcome=outcome))
    assert verdict.findings[0].reason == said


@pytest.mark.parametrize(("rate", "time"), [(10, "22 more seconds"), (1, "2.8 more minutes")])
def test_inconclusive_says_what_is_missing(rate: int, time: str) -> None:
    found = only(verdict_of("ttft p99 <= 100ms", rows_of(spread(300, 20), rate=rate)))
    assert found.status is INCONCLUSIVE
    assert f"more requests, {time}" in found.reason


def test_weights_that_nothing_weighs_are_told() -> None:
    rows = rows_of(spread(900, 20), rate=30)
    weighed = {"objective": "ttft p99 <= 100ms", "weight": 2}
    assert any("no effect" in note for note in verdict_of(policy_of(weighed), rows).notes)
    scored = policy_of(weighed, rubric={"pass_at": "50%"})
    assert not any("no effect" in note for note in verdict_of(scored, rows).notes)


def test_requests_that_are_alike_prove_less() -> None:
    """Slow requests in a single second out of thirty are one event, not forty."""
    lone = np.where(np.arange(1_200) // 40 == 7, 90.0, 20.0)
    apart = np.random.default_rng(3).permutation(lone)
    policy = policy_of("ttft p99 <= 100ms")
    together, scattered = (only(verdict_of(policy, rows_of(ms, rate=40))) for ms in (lone, apart))
    assert scattered.status is PASS
    assert together.status is INCONCLUSIVE
    assert together.effective_samples < 200 < scattered.effective_samples
    assert "alike" in together.reason


def test_one_failure_makes_a_mean_infinite_unless_errors_are_limited() -> None:
    rows = rows_of(spread(900, 20), rate=30, outcome=failing(900, 1))
    assert only(verdict_of("ttft mean <= 100ms", rows)).observed == math.inf
    verdict = verdict_of(policy_of("ttft mean <= 100ms", "error_rate <= 5%"), rows)
    assert verdict.status is PASS


def test_an_interval_holds_what_was_seen_and_agrees_with_the_verdict() -> None:
    for limit, status in (("45ms", PASS), ("33ms", INCONCLUSIVE), ("25ms", FAIL)):
        found = only(verdict_of(f"ttft p95 <= {limit}", rows_of(spread(2_000, 20), rate=50)))
        assert found.interval is not None
        low, high = found.interval
        assert low <= found.observed <= high
        assert found.limit is not None
        assert found.status is status
        assert (status is PASS) == (high <= found.limit)
        assert (status is FAIL) == (low > found.limit)


def test_windows_find_the_bad_minute_that_the_whole_run_hides() -> None:
    ms = np.where((np.arange(12_000) // 100) // 20 == 3, 300.0, spread(12_000, 20))  # 20 s of 120 are slow
    rows = rows_of(ms, rate=100)
    assert only(verdict_of("ttft p75 <= 100ms", rows)).status is not FAIL
    found = only(verdict_of("ttft p75 <= 100ms for 20s", rows))
    assert found.status is FAIL
    assert "worst of 101 windows" in found.reason
    assert only(verdict_of("ttft p75 <= 400ms for 20s", rows)).status is PASS
    short = only(verdict_of("ttft p75 <= 400ms for 1h", rows))
    assert (short.status, "no window of 3600s" in short.reason) == (INCONCLUSIVE, True)


def phases(*names: str, each: int = 20) -> list[dict[str, Any]]:
    return [
        {"name": name, "start": i * each * SECOND, "end": (i + 1) * each * SECOND}
        for i, name in enumerate(names)
    ]


def test_scopes_and_their_stars() -> None:
    ms = np.where(np.arange(4_000) % 2 == 0, spread(4_000, 20), spread(4_000, 200))
    record = record_of(40, 4_000, phases=phases("calm", "spike"), adapters=["a", "b"])
    rows = rows_of(ms, rate=100, adapter=np.arange(4_000) % 2)
    verdict = verdict_of(
        policy_of("ttft p95 <= 100ms within adapter:*", "ttft p50 <= 2s within phase:*"), rows, record
    )
    assert [(f.scope, f.status) for f in verdict.findings] == [
        ("adapter:a", PASS),
        ("adapter:b", FAIL),
        ("phase:calm", PASS),
        ("phase:spike", PASS),
    ]


@pytest.mark.parametrize(("slower", "status"), [(1.0, PASS), (1.18, INCONCLUSIVE), (1.6, FAIL)])
def test_a_candidate_beside_the_stable_server(slower: float, status: Status) -> None:
    where = np.arange(8_000) % 2
    ms = spread(8_000, 20) * np.where(where == 1, slower, 1.0)
    record = record_of(80, 8_000)
    record["backend"]["endpoints"] = [{"name": "stable"}, {"name": "new"}]
    found = only(
        verdict_of(
            "ttft p95 <= 120% of endpoint:stable within endpoint:new",
            rows_of(ms, rate=100, endpoint=where),
            record,
        )
    )
    assert found.status is status, found
    assert found.limit is not None
    assert found.limit_text.startswith("120% of endpoint:stable (")


def test_a_baseline_is_an_estimate_too() -> None:
    policy = policy_of("ttft p95 <= 120% of baseline for 10s", "error_rate <= 5%")
    earlier = record_of(40, 4_000, run_id="run-0")
    baseline = baseline_from(
        policy, folded(policy, rows_of(spread(4_000, 20, 1), rate=100), earlier), earlier
    )
    for slower, status in ((1.0, PASS), (1.19, INCONCLUSIVE), (1.6, FAIL)):
        verdict = verdict_of(
            policy, rows_of(spread(4_000, 20) * slower, rate=100), record_of(40, 4_000), (), baseline
        )
        assert verdict.findings[0].status is status, (slower, verdict.findings[0])
    assert type(baseline).from_dict(json.loads(json.dumps(baseline.to_dict()))) == baseline


def test_a_baseline_that_says_too_little_is_named_as_the_cause() -> None:
    """Its open bound is no limit that requests could be beyond."""
    policy = policy_of("ttft p50 <= 1000% of baseline")
    for size, seconds, reason in (
        (4_000, 40, ""),
        (6, 6, "the baseline run-0 (6 samples) leaves open what it was"),
    ):
        earlier = record_of(seconds, size, run_id="run-0")
        seen = folded(policy, rows_of(spread(size, 20, 1), rate=size / seconds), earlier)
        baseline = baseline_from(policy, seen, earlier)
        rows = rows_of(spread(4_000, 20), rate=100)
        finding = only(verdict_of(policy, rows, record_of(40, 4_000), (), baseline))
        assert finding.status is (INCONCLUSIVE if reason else PASS)
        assert finding.reason.startswith(reason)


def test_between_the_edges_of_a_baseline_its_doubt_is_the_reason() -> None:
    policy = policy_of("ttft p95 <= 120% of baseline")
    earlier = record_of(40, 400, run_id="run-0")
    seen = folded(policy, rows_of(spread(400, 20, 1), rate=10), earlier)
    rows = rows_of(spread(4_000, 20) * 1.2, rate=100)
    finding = only(verdict_of(policy, rows, record_of(40, 4_000), (), baseline_from(policy, seen, earlier)))
    assert finding.status is INCONCLUSIVE
    assert finding.reason == "within the doubt of the baseline (400 samples)"


def test_case_28_a_baseline_of_something_else_is_refused() -> None:
    policy = policy_of("ttft p95 <= 120% of baseline")
    rows = rows_of(spread(4_000, 20), rate=100)
    record = record_of(40, 4_000)
    other = record_of(40, 4_000, run_id="run-0", scenario={"name": "chat-v1"})
    baseline = baseline_from(policy, folded(policy, rows, other), other)
    with pytest.raises(UsageError, match="is of scenario 'chat-v1', but 'bursty' is judged"):
        verdict_of(policy, rows, record, (), baseline)
    with pytest.raises(UsageError, match="the run that is judged"):
        verdict_of(policy, rows, record, (), baseline_from(policy, folded(policy, rows, record), record))
    earlier = record_of(40, 4_000, run_id="run-0")
    empty = baseline_from(policy, folded(policy, rows_of([]), earlier), earlier)
    with pytest.raises(UsageError, match="is empty"):
        verdict_of(policy, rows, record, (), empty)
    assert only(verdict_of(policy, rows, record)).observed is None


def test_a_run_that_records_the_baseline_leaves_open_what_is_compared_with_one() -> None:
    rows = rows_of(spread(4_000, 20), rate=100)
    for limit, recording, status in (("1s", True, INCONCLUSIVE), ("1s", False, FAIL), ("1ms", True, FAIL)):
        policy = policy_of("ttft p95 <= 120% of baseline", f"e2e p95 <= {limit}")
        verdict = verdict_of(policy, rows, record_of(40, 4_000, records_baseline=recording))
        assert verdict.status is status
        assert verdict.findings[0].observed is None
        assert verdict.findings[0].status is (INCONCLUSIVE if recording else FAIL)


@pytest.mark.parametrize(
    "objective",
    ["ttft p95 <= 120% of baseline", "ttft p95 <= 120% of baseline for 10s", "ttft mean <= 200% of baseline",
     "error_rate <= 120% of baseline", "throughput >= 90% of baseline"],
)  # fmt: skip
def test_a_baseline_full_of_failures_allows_nothing(objective: str) -> None:
    policy = policy_of(objective)
    earlier = record_of(40, 4_000, run_id="run-0")
    failed = rows_of(spread(4_000, 20), rate=100, outcome=failing(4_000, 3_990))
    if objective.startswith("throughput"):
        failed = rows_of(spread(4_000, 20), rate=100, outcome=failing(4_000, 4_000, Outcome.UNFINISHED))
    baseline = baseline_from(policy, folded(policy, failed, earlier), earlier)
    found = only(verdict_of(policy, rows_of(spread(4_000, 20), rate=100), record_of(40, 4_000), (), baseline))
    assert (found.status, found.observed) == (FAIL, None), found


def test_a_reference_endpoint_full_of_failures_allows_nothing() -> None:
    where = np.arange(8_000) % 2
    record = record_of(80, 8_000)
    record["backend"]["endpoints"] = [{"name": "stable"}, {"name": "new"}]
    outcome = np.where((where == 0) & (np.arange(8_000) > 100), Outcome.HTTP_SERVER_ERROR, Outcome.SUCCESS)
    rows = rows_of(spread(8_000, 20), rate=100, endpoint=where, outcome=outcome)
    for left in ("ttft p95", "error_rate"):
        found = only(verdict_of(f"{left} <= 120% of endpoint:stable within endpoint:new", rows, record))
        assert (found.status, found.observed) == (FAIL, None), found


def changed_load(record: dict[str, Any], **definition: Any) -> dict[str, Any]:
    scenario = record["scenario"]
    return record | {"scenario": scenario | {"definition": scenario["definition"] | definition}}


def earlier_run(**changes: Any) -> dict[str, Any]:
    return record_of(40, 4_000, run_id="run-0", **changes)


def backend_of(**changes: Any) -> dict[str, Any]:
    return {"name": "vllm", "simulated": False, "endpoints": [{"name": "default", "model": "m"}]} | changes


@pytest.mark.parametrize(
    ("earlier", "said"),
    [
        (changed_load(earlier_run(), arrivals={"kind": "poisson"}), r"another load \(other arrivals\)"),
        (changed_load(earlier_run(), streaming=False), r"another load \(other streaming\)"),
        (changed_load(earlier_run(load_seconds=3.0), streaming=False), r"another load \(other streaming\)"),
        (
            changed_load(earlier_run(load_seconds=3.0), arrivals={"kind": "poisson"}),
            r"another load \(other arrivals\)",
        ),
        (
            earlier_run(backend=backend_of(simulated=True)),
            "of a simulator, and the run that is judged is of an engine",
        ),
    ],
)
def test_a_baseline_that_cannot_be_compared_with_is_refused(earlier: dict[str, Any], said: str) -> None:
    policy = policy_of("ttft p95 <= 120% of baseline")
    rows = rows_of(spread(4_000, 20), rate=100)
    baseline = baseline_from(policy, folded(policy, rows, earlier), earlier)
    with pytest.raises(UsageError, match=said):
        verdict_of(policy, rows, record_of(40, 4_000, backend=backend_of()), (), baseline)


@pytest.mark.parametrize(
    ("earlier", "told"),
    [
        (earlier_run(backend=backend_of()), []),
        (earlier_run(backend=backend_of(name="sglang")), ["backend: sglang, not vllm"]),
        (earlier_run(backend=backend_of(version="0.8")), ["version: 0.8, not 0.9"]),
        (earlier_run(backend=backend_of(endpoints=[{"name": "default", "model": "n"}])), ["model: n, not m"]),
        (earlier_run(gpus=[{"name": "L4"}]), ["GPUs: L4, not none"]),
        (
            earlier_run(host={"cpu_model": "b", "memory_allowed": 8 << 30}),
            ["CPU: b, not a", "memory: 8 GiB, not 4 GiB"],
        ),
        (record_of(20, 4_000, run_id="run-0"), ["measured seconds: 20, not 40"]),
        (
            changed_load(earlier_run(), seed=7, timeouts={"stall": 1}),
            ["timeouts: {'stall': 1}, not {'stall': 2}"],
        ),
    ],
)
def test_what_a_baseline_has_other_than_the_run_is_told(earlier: dict[str, Any], told: list[str]) -> None:
    policy = policy_of("ttft p95 <= 120% of baseline")
    rows = rows_of(spread(4_000, 20), rate=100)
    if "simulated" not in earlier["backend"]:
        earlier = earlier | {"backend": backend_of()}
    baseline = baseline_from(policy, folded(policy, rows, earlier), earlier)
    mine = record_of(
        40, 4_000, backend=backend_of(version="0.9"), host={"cpu_model": "a", "memory_allowed": (4 << 30) + 9}
    )
    verdict = verdict_of(policy, rows, changed_load(mine, timeouts={"stall": 2}), (), baseline)
    assert [note for note in verdict.notes if "baseline" in note] == [
        f"the baseline run-0 differs in {difference}" for difference in told
    ]
    assert json.loads(json.dumps(baseline.to_dict()))["about"]["window"] == earlier["window"]


def offered(arrivals: Arrivals, load_seconds: float | None) -> dict[str, Any]:
    scenario = Scenario(arrivals, synthetic(8, 8), duration=40)
    shown = scenario.shortened(load_seconds) if load_seconds else scenario
    return {"load_seconds": load_seconds, "scenario": {"name": "s", "definition": shown.describe()}}


SHAPES = [
    (constant("5/s"), constant("6/s")),
    (bursts("1/s", "9/s", "4s", "2s"), bursts("1/s", "8/s", "4s", "2s")),
    (spike("1/s", "9/s", "4s", "2s", edge="1s"), spike("2/s", "9/s", "4s", "2s", edge="1s")),
    (ramp("1/s", "9/s", "20s"), ramp("1/s", "10/s", "20s")),
    (steps(["1/s", "9/s"], "10s"), steps(["1/s", "9/s", "1/s"], "10s")),
    (sine("1/s", "9/s", "10s"), sine("1/s", "9.5/s", "10s")),
    (concurrency(4, ramp="10s"), concurrency(5, ramp="10s")),
    (
        in_phases(phase("a", constant("5/s"), "20s"), phase("b", bursts("1/s", "9/s", "4s", "2s"), "20s")),
        in_phases(phase("a", constant("5/s"), "20s"), phase("b", bursts("1/s", "7/s", "4s", "2s"), "20s")),
    ),
]


@pytest.mark.parametrize(("mine", "theirs"), SHAPES)
def test_a_shortened_run_has_the_rates_of_the_whole_one(mine: Arrivals, theirs: Arrivals) -> None:
    for shorter in (10.0, 7.0):
        assert load_differences(offered(mine, shorter), offered(mine, None)) == []
        assert load_differences(offered(mine, 10.0), offered(mine, shorter)) == []
        assert load_differences(offered(mine, shorter), offered(theirs, None)) == ["arrivals"]


def test_runs_of_other_loads_or_servers_are_no_repeats() -> None:
    policy, rows = policy_of("ttft p95 <= 1s"), rows_of(spread(900, 20), rate=30)
    first = record_of(30, 900, backend=backend_of())
    for second in (
        changed_load(first, arrivals={"kind": "poisson"}) | {"run_id": "run-2"},
        first | {"backend": backend_of(name="sglang"), "run_id": "run-2"},
    ):
        runs = [(folded(policy, rows, record), record) for record in (first, second)]
        with pytest.raises(UsageError, match="run-2 is no repeat of run-1"):
            judge_together(policy, runs)
    repeat = changed_load(first, seed=1) | {"run_id": "run-2"}
    runs = [(folded(policy, rows, record), record) for record in (first, repeat)]
    assert judge_together(policy, runs).status is PASS


def test_an_invalid_baseline_is_refused() -> None:
    policy = policy_of("ttft p95 <= 120% of baseline")
    rows = rows_of(spread(4_000, 20), rate=100)
    earlier = record_of(40, 4_000, run_id="run-0", errors=["the server died"])
    baseline = baseline_from(policy, folded(policy, rows, earlier), earlier)
    with pytest.raises(UsageError, match=r"INVALID itself \(guard server_survived"):
        verdict_of(policy, rows, record_of(40, 4_000), (), baseline)


def test_nothing_is_proven_by_optional_promises_that_were_not_measured() -> None:
    optional = {"objective": "gpu_memory peak <= 90%", "optional": True}
    record = record_of(10, 900, absent={"gpu_memory": "libnvidia-ml is absent"})
    verdict = verdict_of(policy_of(optional), rows_of(spread(900, 20), rate=90), record)
    assert verdict.status is INCONCLUSIVE
    assert "nothing is proven" in verdict.notes[0]


@pytest.mark.parametrize("confidence", ["50%", "50.00001%"])
def test_even_odds_are_a_confidence_too(confidence: str) -> None:
    policy = policy_of("ttft p90 <= 1s", "ttft mean <= 1s", "error_rate <= 10%", confidence=confidence)
    assert verdict_of(policy, rows_of(spread(3_000, 20), rate=50)).status is PASS


def test_recovery_after_a_spike() -> None:
    second = np.arange(6_000) // 100
    ms = np.where((second >= 20) & (second < 45), 500.0, 20.0)  # the spike ends at 40 s
    record = record_of(60, 6_000, phases=phases("calm", "spike", "after"))
    for limit, status in (("10s", PASS), ("3s", FAIL)):
        policy = policy_of(
            {"objective": "ttft p99 <= 100ms", "severity": "warn"}, f"recovery_time <= {limit} after spike"
        )
        found = verdict_of(policy, rows_of(ms, rate=100), record).findings[1]
        assert (found.status, found.observed) == (status, 5 * SECOND)
    missing = only(verdict_of("recovery_time <= 3s after spike", rows_of(ms, rate=100), record))
    assert "the policy has none" in missing.reason


def test_the_knee_while_a_gpu_is_not_full() -> None:
    record = record_of(80, 8_000, phases=phases("low", "mid", "high", "full"))
    level = np.repeat([0.4, 0.6, 0.79, 0.95], 200)
    step = np.arange(8_000) // 2_000
    text = "ttft p95 <= 150% of phase:low within phase:* while gpu_utilization <= 80%"
    flat = rows_of(spread(8_000, 20) * np.array([1, 1, 1.1, 4])[step], rate=100)
    verdict = verdict_of(text, flat, record, reading("gpu_utilization", level, "GPU-1"))
    assert [f.scope for f in verdict.findings] == ["phase:low", "phase:mid", "phase:high"]
    assert verdict.status is PASS
    early = rows_of(spread(8_000, 20) * np.array([1, 2, 3, 4])[step], rate=100)
    assert verdict_of(text, early, record, reading("gpu_utilization", level, "GPU-1")).status is FAIL
    untried = verdict_of(text, flat, record, reading("gpu_utilization", level / 2, "GPU-1"))
    assert untried.status is not PASS
    gap = [
        one for one in reading("gpu_utilization", level, "GPU-1") if not 20 * SECOND <= one.time < 40 * SECOND
    ]
    unread = verdict_of(text, flat, record, gap)
    assert unread.status is INCONCLUSIVE
    assert [f.scope for f in unread.findings if f.status is not PASS] == ["phase:mid"]


@pytest.mark.parametrize(
    ("objective", "values", "status"),
    [
        ("server_cpu mean <= 35%", 0.3 + 0.01 * np.sin(np.arange(200)), PASS),
        ("server_cpu mean <= 35%", 0.5 + 0.01 * np.sin(np.arange(200)), FAIL),
        ("server_cpu mean <= 35%", np.linspace(0.1, 0.6, 200), INCONCLUSIVE),
        ("server_cpu mean <= 35%", np.full(5, 0.1), INCONCLUSIVE),
        ("server_cpu mean <= 35%", np.full(200, 0.1), PASS),
        ("server_cpu peak <= 35%", np.full(200, 0.35), PASS),
        ("server_cpu peak <= 35%", np.r_[np.full(199, 0.1), 0.36], FAIL),
        ("gpu_utilization mean >= 80%", np.full(200, 0.9), PASS),
        ("gpu_utilization mean >= 80%", np.full(200, 0.7), FAIL),
        ("server_memory p50 <= 1GiB", np.random.default_rng(1).normal(5e8, 1e7, 200), PASS),
        ("server_memory p50 <= 1GiB", np.random.default_rng(1).normal(5e9, 1e7, 200), FAIL),
    ],
)
def test_readings(objective: str, values: np.ndarray, status: Status) -> None:
    metric = objective.split()[0]
    rows = rows_of(spread(900, 20), rate=30)
    assert only(verdict_of(objective, rows, readings=reading(metric, values))).status is status


def test_of_several_gpus_the_worst_counts_and_power_adds_up() -> None:
    rows = rows_of(spread(900, 20), rate=30)
    gpus = [{"uuid": "A", "memory_total": 80e9}, {"uuid": "B", "memory_total": 40e9}]
    both = [*reading("gpu_memory", np.full(100, 39e9), "A"), *reading("gpu_memory", np.full(100, 39e9), "B")]
    found = only(verdict_of("gpu_memory peak <= 90%", rows, record_of(30, 900, gpus=gpus), both))
    assert (found.status, found.observed) == (FAIL, 39 / 40)
    idle = [
        *reading("gpu_utilization", np.full(100, 0.9), "A"),
        *reading("gpu_utilization", np.full(100, 0.2), "B"),
    ]
    assert only(verdict_of("gpu_utilization mean >= 80%", rows, record_of(30, 900), idle)).status is FAIL
    power = [*reading("gpu_power", np.full(100, 300.0), "A"), *reading("gpu_power", np.full(100, 300.0), "B")]
    assert only(verdict_of("gpu_power mean <= 500W", rows, record_of(30, 900), power)).observed == 600


def test_cost_of_a_million_tokens() -> None:
    policy = policy_of("cost_per_million_tokens <= $0.12", prices={"hour": "$3.6"})
    found = only(verdict_of(policy, rows_of(spread(900, 20), rate=30), record_of(30, 900)))
    assert found.observed == pytest.approx(3.6 / 3600 * 30 / (900 * 11) * 1e6)  # 30 s at $3.60 an hour
    assert found.status is FAIL
    assert "no prices" in only(verdict_of("cost_per_million_tokens <= $1", rows_of(spread(900, 20)))).reason


BUDGET = {
    "objective": "error_rate <= 1%",
    "period": "1h",
    "burn": [{"rate": 10, "long": "20s", "short": "5s"}],
}


def test_an_error_budget_without_requests_is_not_kept() -> None:
    policy = policy_of("ttft p50 <= 1s", error_budget=BUDGET)
    idle = rows_of([20.0] * 3, intended_s=[100.0, 100.1, 100.2])
    record = record_of(40, 3)
    found = judge(policy, folded(policy, idle, record), record).findings[-1]
    assert (found.status, found.observed) == (FAIL, None)
    assert "no request in any window of 20s" in found.reason


@pytest.mark.parametrize(("bad_seconds", "status"), [(0, PASS), (3, FAIL)])
def test_an_error_budget_burns(bad_seconds: int, status: Status) -> None:
    second = np.arange(6_000) // 100
    outcome = np.where((second >= 30) & (second < 30 + bad_seconds), Outcome.RESET, Outcome.SUCCESS)
    policy = policy_of("ttft p50 <= 1s", error_budget=BUDGET)
    found = verdict_of(policy, rows_of(spread(6_000, 20), rate=100, outcome=outcome)).findings[1]
    assert found.status is status
    assert found.observed_text == ("0x" if not bad_seconds else "15x")


def test_warnings_are_told_and_decide_nothing() -> None:
    policy = policy_of("ttft p99 <= 1s", {"objective": "ttft p50 <= 1ms", "severity": "warn"})
    verdict = verdict_of(policy, rows_of(spread(900, 20), rate=30))
    assert [f.status for f in verdict.findings] == [PASS, FAIL]
    assert verdict.status is PASS


RUBRIC = {
    "fail_at": "10 points",
    "penalties": [{"e2e p50 > 50ms": "7 points"}, {"error_rate > 5%": "9 points"}],
}


@pytest.mark.parametrize(
    ("failed", "low", "high", "status"), [(0, 7, 7, PASS), (90, 16, 16, FAIL), (44, 7, 16, INCONCLUSIVE)]
)
def test_penalties_add_up_to_a_verdict(failed: int, low: float, high: float, status: Status) -> None:
    order = np.random.default_rng(1).permutation(900)
    outcome = np.where(order < failed, Outcome.RESET, Outcome.SUCCESS)
    verdict = verdict_of(
        policy_of("ttft p50 <= 1s", rubric=RUBRIC), rows_of(spread(900, 20), rate=30, outcome=outcome)
    )
    assert verdict.rubric is not None
    assert (verdict.rubric["points"]["low"], verdict.rubric["points"]["high"]) == (low, high)
    assert verdict.status is status


@pytest.mark.parametrize(
    ("limit", "weight", "key", "status"),
    [("1ms", 1, False, PASS), ("1ms", 5, False, FAIL), ("1ms", 1, True, FAIL), ("1s", 5, True, PASS)],
)
def test_a_weighted_score_with_key_objectives(limit: str, weight: int, key: bool, status: Status) -> None:
    policy = policy_of(
        {"objective": "ttft p99 <= 1s", "weight": 4},
        {"objective": f"e2e p50 <= {limit}", "weight": weight, "key": key},
        rubric={"pass_at": "75%"},
    )
    assert verdict_of(policy, rows_of(spread(900, 20), rate=30)).status is status


@pytest.mark.parametrize(
    ("change", "guard"),
    [
        ({"errors": ["the engine exited with code 1"]}, "server_survived"),
        ({"workers": [{"lost": True}]}, "lost_worker"),
        ({"workers": [{"cpu_share": 0.99}]}, "loadgen_cpu"),
        ({"workers": [{"loop_lag_p99_ns": 2e9}]}, "loop_lag"),
        ({"counts": {"intended": 950}}, "mismatch"),
        ({"simulator": {"steps": 9, "lag_p99_ns": 200e6, "resyncs": 0}}, "simulator_lag"),
        ({"simulator": {"steps": 9, "lag_p99_ns": 1e6, "resyncs": 1}}, "simulator_lag"),
    ],
)
def test_a_broken_guard_makes_the_run_invalid(change: dict[str, Any], guard: str) -> None:
    rows = rows_of(spread(900, 20), rate=30)
    verdict = verdict_of("ttft p99 <= 1s", rows, record_of(30, 900, **change))
    assert verdict.status is INVALID
    assert [g.name for g in verdict.guards if not g.ok] == [guard]
    off = policy_of("ttft p99 <= 1s", guards={guard: "off"})
    verdict = verdict_of(off, rows, record_of(30, 900, **change))
    assert verdict.status is PASS
    assert f"guard {guard} is switched off by the policy" in verdict.notes


CUT = {"counts": {"intended": 950}, "errors": ["worker 0 was lost"], "workers": [{"lost": True}]}


@pytest.mark.parametrize(
    "ended",
    [{"stopped_early": "worker 0 was lost"}, {"epoch": {"unix_ns": 0, "monotonic_ns": 0}}],
    ids=["stopped", "never ended"],
)
def test_of_a_run_that_was_cut_short_the_cause_comes_first(ended: dict[str, Any]) -> None:
    rows = rows_of(spread(900, 20), rate=30)
    guards = verdict_of("ttft p99 <= 1s", rows, record_of(30, 900, **CUT, **ended)).guards
    broken = [guard for guard in guards if not guard.ok]
    assert [(g.name, g.follows) for g in broken] == [
        ("server_survived", ""),
        ("mismatch", "server_survived"),
        ("lost_worker", "server_survived"),
    ]
    assert "ended before its time: worker 0 was lost" in broken[0].reason
    assert "exactly once" not in broken[1].reason, "no advice on what only follows"
    assert all(guard.ok for guard in guards[len(broken) :])


def test_a_guard_that_broke_beside_an_error_is_a_cause_of_its_own() -> None:
    """Nothing follows where the run went on to its end, nor from a guard that the policy switched off."""
    rows = rows_of(spread(900, 20), rate=30)
    whole = verdict_of("ttft p99 <= 1s", rows, record_of(30, 900, **CUT)).guards
    off = policy_of("ttft p99 <= 1s", guards={"server_survived": "off"})
    cut = verdict_of(off, rows, record_of(30, 900, **CUT, stopped_early="worker 0 was lost"))
    assert cut.status is INVALID
    for guards in (whole, cut.guards):
        assert {g.name for g in guards if not g.ok} >= {"mismatch", "lost_worker"}
        assert not any(guard.follows for guard in guards)


@pytest.mark.parametrize(
    ("answered", "status"),
    [("m", PASS), (None, INVALID), ("m-2026", INVALID)],
    ids=["the same", "unnamed", "another"],
)
def test_a_policy_may_insist_on_the_model_that_was_asked_for(answered: str | None, status: Status) -> None:
    rows = rows_of(spread(900, 20), rate=30)
    record = record_of(30, 900, answers=[{"endpoint": "default", "asked": "m", "answered": answered}])
    insists = policy_of("ttft p99 <= 1s", guards={"other_model": "0 times"})
    assert verdict_of(insists, rows, record).status is status
    assert verdict_of("ttft p99 <= 1s", rows, record).status is PASS


@pytest.mark.parametrize(
    ("seen", "status"), [(None, INVALID), ({"steps": 9, "lag_p99_ns": 100e6, "resyncs": 0}, PASS)]
)
def test_a_simulator_is_trusted_that_is_known_to_have_kept_its_pace(seen: Any, status: Status) -> None:
    rows = rows_of(spread(900, 20), rate=30)
    verdict = verdict_of("ttft p99 <= 1s", rows, record_of(30, 900, simulator=seen))
    assert verdict.status is status
    assert "simulator_lag" in [guard.name for guard in verdict.guards]
    engine = verdict_of("ttft p99 <= 1s", rows, record_of(30, 900))
    assert "simulator_lag" not in [guard.name for guard in engine.guards]


@pytest.mark.parametrize(
    ("columns", "guard"),
    [
        ({"outcome": np.where(np.arange(900) == 5, Outcome.CLIENT_ERROR, 0)}, "recording"),
        ({"outcome": np.where(np.arange(900) % 30 == 5, Outcome.NEVER_SENT, 0)}, "undelivered"),
        ({"prompt_hash": np.arange(900) % 800}, "duplicate_prompts"),
    ],
)
def test_guards_over_the_samples(columns: dict[str, Any], guard: str) -> None:
    verdict = verdict_of("ttft p50 <= 1s", rows_of(spread(900, 20), rate=30, **columns), record_of(30, 900))
    assert verdict.status is INVALID
    assert guard in [g.name for g in verdict.guards if not g.ok]


def test_late_sends_and_stepped_clocks_are_invalid() -> None:
    late, stepped = rows_of(spread(900, 200), rate=30), rows_of(spread(900, 200), rate=30)
    for name in ("sent", "first", "first_content", "last", "end"):
        late[name] += 100 * MS
    stepped["first"][7] = stepped["sent"][7] - 1
    for rows, guard in ((late, "send_lag"), (stepped, "clock")):
        verdict = verdict_of("ttft p50 <= 1s", rows, record_of(30, 900))
        assert [g.name for g in verdict.guards if not g.ok] == [guard]


def test_case_18_bursts_spoil_chunk_times_alone() -> None:
    rows = rows_of(spread(900, 20), rate=30, bursts=8)
    assert verdict_of("ttft p99 <= 1s", rows).status is PASS
    assert any("arrived together" in note for note in verdict_of("tpot p99 <= 1s", rows).notes)
    assert verdict_of("max_stall p99 <= 1s", rows).status is INVALID


@pytest.mark.parametrize(
    ("objectives", "allowed"),
    [
        (["ttft p99 <= 200ms", "tpot p95 <= 20ms"], "<= 20ms"),
        (["ttft p99 <= 200ms", "e2e p99 <= 50ms"], "<= 5ms"),
        (["tpot p95 <= 20ms", "service_e2e p95 <= 20ms"], "<= 50ms"),
        (["e2e p99 <= 1ms"], "<= 1ms"),
    ],
)
def test_the_send_may_lag_by_a_tenth_of_the_tightest_limit_that_contains_it(
    objectives: list[str], allowed: str
) -> None:
    verdict = verdict_of(policy_of(*objectives), rows_of(spread(900, 20), rate=30))
    assert next(guard.threshold_text for guard in verdict.guards if guard.name == "send_lag") == allowed


def test_declared_reuse_of_prompts_is_no_fault() -> None:
    record = record_of(30, 900)
    record["scenario"]["definition"]["cache"] = "shared"
    assert (
        verdict_of("ttft p99 <= 1s", rows_of(spread(900, 20), rate=30, prompt_hash=7), record).status is PASS
    )


def test_repeats_are_judged_together() -> None:
    policy = policy_of("ttft p99 <= 100ms")
    runs = []
    for repeat in range(3):
        record = record_of(10, 300, run_id=f"run-{repeat}")
        runs.append((folded(policy, rows_of(spread(300, 20, repeat), rate=30), record), record))
    assert judge(policy, *runs[0]).status is INCONCLUSIVE
    together = judge_together(policy, runs)
    assert together.status is PASS
    assert together.run_ids == ("run-0", "run-1", "run-2")
    assert together.findings[0].samples == 900
    with pytest.raises(UsageError, match="run run-0 is given twice"):
        judge_together(policy, [*runs, runs[0]])
    summary, record = runs[1]
    with pytest.raises(UsageError, match="several scenarios"):
        judge_together(policy, [runs[0], (summary, record | {"scenario": {"name": "spike"}})])
    follows = policy_of("ttft p99 <= 120% of baseline")
    again = [(folded(follows, rows_of(spread(300, 20), rate=30), record), record) for _, record in runs]
    with pytest.raises(UsageError, match="the baseline is the run that is judged, run-2"):
        judge_together(follows, again, baseline=baseline_from(follows, *again[2]))


def test_the_same_run_gives_the_same_bytes() -> None:
    policy = policy_of("ttft p99 <= 100ms", "e2e mean <= 1s", "throughput >= 5/s", "server_cpu mean <= 50%")
    rows, readings = rows_of(spread(900, 20), rate=30), reading("server_cpu", spread(200, 20) / 100)
    texts = {json.dumps(verdict_of(policy, rows, readings=readings).to_dict()) for _ in range(3)}
    assert len(texts) == 1


def test_cpu_is_compared_with_what_it_was_before_the_load() -> None:
    rows = rows_of(spread(900, 20), rate=30)
    idle = [Reading(-100 * MS * i, "idle", "server_cpu", "server", 0.1) for i in range(1, 31)]
    text = "server_cpu mean <= 30% above idle"
    for loaded, status in ((0.35, PASS), (0.45, FAIL)):
        found = only(verdict_of(text, rows, readings=[*idle, *reading("server_cpu", np.full(100, loaded))]))
        assert (found.status, found.limit) == (status, 0.4)
    assert (
        "before the load"
        in only(verdict_of(text, rows, readings=reading("server_cpu", np.full(100, 0.2)))).reason
    )


def test_what_comes_and_goes_far_below_a_limit_says_nothing_of_it() -> None:
    """Latency of 20 to 25 ms in waves, and a limit of 250 ms: the requests count in full."""
    waves = 22 + 3 * np.sin(np.arange(1_000) / 40)
    found = only(verdict_of("ttft p99 <= 250ms", rows_of(waves, rate=40)))
    assert found.status is PASS
    near = only(verdict_of("ttft p99 <= 26ms", rows_of(waves, rate=40)))
    assert near.status is INCONCLUSIVE
    assert near.effective_samples < 200 < found.effective_samples


def test_the_gaps_of_an_answer_are_worth_one_request() -> None:
    rows = rows_of(spread(900, 20), rate=30)
    policy = policy_of("icl p99 <= 100ms", "icl max <= 100ms")
    for requests, status in ((900, PASS), (100, INCONCLUSIVE)):
        few = rows[:requests]
        gaps = fold_gaps(few, np.full(requests, 10), np.full(10 * requests, 10 * MS))
        record = record_of(float(few["intended"].max()) / SECOND + 0.01, requests)
        fold = Fold(record, questions(policy, record), policy.goals())
        fold.add(SampleBatch(few, gaps))
        found = judge(policy, fold.result(), record).findings
        assert [f.samples for f in found] == [10 * requests] * 2
        assert [f.status for f in found] == [status] * 2
