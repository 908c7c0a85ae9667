"""Situations that need no server: given samples, the right number and the right verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_inferslo.core.arrivals import constant
from pytest_inferslo.core.baseline import Baseline
from pytest_inferslo.core.cost import Prices, cost_of_tokens
from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.histogram import LAYOUT
from pytest_inferslo.core.judge import baseline_from, judge
from pytest_inferslo.core.policy import Policy, unmeasurable
from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.questions import questions
from pytest_inferslo.core.readings import LOAD, Reading
from pytest_inferslo.core.samples import ABSENT, GAP_DTYPE, SAMPLE_DTYPE, Outcome, Rows, SampleBatch
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.tally import Tokens
from pytest_inferslo.core.verdict import Status, Verdict
from pytest_inferslo.errors import PolicyError, ScenarioError, UsageError
from pytest_inferslo.policies import load_policy

MS, S = 1_000_000, 1_000_000_000
Written = Callable[..., Policy]


def requests(latencies_ms: list[float], **columns: Any) -> Rows:
    """One a 10 ms from the epoch on; each has this e2e, all of it before the first token. inf is a time-out."""
    n = len(latencies_ms)
    made = np.full(n, ABSENT, np.int64).astype(SAMPLE_DTYPE)
    finite = np.isfinite(latencies_ms)
    made["index"] = made["prompt_hash"] = np.arange(n)
    made["intended"] = made["sent"] = np.arange(n) * 10 * MS
    ends = made["intended"] + (np.where(finite, latencies_ms, 0) * MS).astype(np.int64)
    for name in ("first", "first_content", "last", "end"):
        made[name] = np.where(finite, ends, ABSENT)
    made["outcome"] = np.where(finite, Outcome.SUCCESS, Outcome.TIMEOUT_TOTAL)
    made["chunks"] = np.where(finite, 1, 0)
    for name in ("bursts", "stream", "endpoint", "worker"):
        made[name] = 0
    for name, value in columns.items():
        made[name] = value
    return made


def record(samples: Rows, start: int = 0, **fields: Any) -> dict[str, Any]:
    end = max(S, int(samples["intended"].max()) + 1) if len(samples) else S
    made: dict[str, Any] = {
        "run_id": "today",
        "scenario": {"name": "chat-v1", "definition": {"streaming": True, "cache": "unique"}},
        "backend": {"endpoints": [{"name": "default"}]},
        "window": {"start": start, "end": end},
        "phases": [{"name": "measured", "start": start, "end": end}],
        "counts": {"intended": len(samples)},
        "workers": [{"lost": False}],
    }
    return made | fields


def folded(
    policy: Policy, samples: Rows, run: dict[str, Any], readings: list[Reading] | None = None
) -> Summary:
    fold = Fold(run, questions(policy, run), policy.goals())
    fold.add(SampleBatch(samples, np.empty(0, GAP_DTYPE)))
    fold.add_readings(readings or [])
    return fold.result()


def judged(
    policy: Policy, samples: Rows, readings: list[Reading] | None = None, start: int = 0, **fields: Any
) -> Verdict:
    run = record(samples, start, **fields)
    return judge(policy, folded(policy, samples, run, readings), run)


def observed(verdict: Verdict) -> float | None:
    return verdict.findings[0].observed


def guard(verdict: Verdict, name: str) -> bool:
    return next(found.ok for found in verdict.guards if found.name == name)


@pytest.mark.parametrize(
    ("objectives", "place", "message"),
    [
        ("objectives:\n  - tttf p99 <= 80ms\n", 3, "did you mean 'ttft'"),
        ("objectives: []\n", 2, "without objectives"),
        ("", 1, "without objectives"),
    ],
)
def test_case_2_a_policy_that_promises_nothing(
    tmp_path: Path, objectives: str, place: int, message: str
) -> None:
    path = tmp_path / "gate.yaml"
    path.write_text(f"policy: gate\n{objectives}")
    with pytest.raises(PolicyError, match=message) as caught:
        load_policy(path)
    assert caught.value.problems[0].line == place


def test_case_2_a_promise_that_the_scenario_cannot_show(policy: Written) -> None:
    gate = policy("icl p99 <= 80ms")
    assert "does not stream" in unmeasurable(gate, streaming=False, phases=())[0]
    plain = {"scenario": {"name": "x", "definition": {"streaming": False}}}
    verdict = judged(gate, requests([10.0] * 500), **plain)
    assert verdict.status is Status.FAIL
    assert "not measured" in verdict.findings[0].reason


def test_case_7_time_outs_rank_as_infinity(policy: Written) -> None:
    verdict = judged(policy("e2e p99 <= 500ms"), requests([100.0] * 97 + [float("inf")] * 3))
    assert observed(verdict) == float("inf")
    assert verdict.status is Status.FAIL


@pytest.mark.parametrize("value", [LAYOUT.limit // MS + 1, -30])
def test_case_12_what_a_histogram_cannot_hold_makes_the_run_invalid(policy: Written, value: float) -> None:
    verdict = judged(policy("e2e p50 <= 200ms"), requests([100.0] * 99 + [value]))
    assert verdict.status is Status.INVALID
    assert not guard(verdict, "recording")
    assert observed(verdict) == pytest.approx(100 * MS, rel=0.001)


def test_case_14_histograms_merge_and_percentiles_never_average(policy: Written) -> None:
    """Worker A saw 900 answers of 10 ms, worker B 100 of 2 s."""
    latencies = ([10.0] * 9 + [2000.0]) * 100
    worker = [0 if latency == 10.0 else 1 for latency in latencies]
    verdict = judged(policy("e2e p95 <= 1500ms"), requests(latencies, worker=worker))
    assert observed(verdict) == pytest.approx(2000 * MS, rel=0.001)
    assert verdict.status is Status.FAIL


def test_case_20_prompts_that_come_again(policy: Written) -> None:
    static = requests([20.0] * 100, prompt_hash=4711)
    verdict = judged(policy("ttft p50 <= 200ms"), static)
    assert verdict.status is Status.INVALID
    assert not guard(verdict, "duplicate_prompts")
    shared = {"scenario": {"name": "x", "definition": {"streaming": True, "cache": "shared"}}}
    assert judged(policy("ttft p50 <= 200ms"), static, **shared).status is not Status.INVALID


def test_case_20_what_repeats_on_purpose_must_be_declared_and_warm_up_is_apart() -> None:
    few = synthetic(unique=False, pool=4)
    with pytest.raises(ScenarioError, match="repeat on purpose"):
        Scenario(arrivals=constant("1/s"), prompts=few, duration="1s", cache="unique")
    assert Scenario(arrivals=constant("1/s"), prompts=few, duration="1s").cache == "shared"
    for prompts in (few, synthetic()):
        source = prompts.source(0, "run")
        warm = {source.prompt(i, warm_up=True).hash for i in range(50)}
        assert warm.isdisjoint(source.prompt(i).hash for i in range(50, 100))


def test_case_23_a_gpu_that_is_not_there(policy: Written) -> None:
    absent = {"absent": {"gpu_memory": "libnvidia-ml is not installed"}}
    samples = requests([10.0] * 2000)
    strict = judged(policy("gpu_memory peak <= 90%", "e2e p99 <= 500ms"), samples, **absent)
    assert [found.status for found in strict.findings] == [Status.FAIL, Status.PASS]
    assert "libnvidia-ml" in strict.findings[0].reason
    assert strict.findings[0].observed is None
    optional = "{objective: gpu_memory peak <= 90%, optional: true}"
    assert judged(policy(optional, "e2e p99 <= 500ms"), samples, **absent).status is Status.PASS


def test_case_27_the_stall_is_in_the_tail_once(policy: Written) -> None:
    """10 s at 100/s; the server stands still from 5 s to 6 s and then answers all that waited."""
    waits = [1000.0 - 10 * i + 10 for i in range(100)]
    verdict = judged(policy("e2e p99 <= 500ms"), requests([10.0] * 500 + waits + [10.0] * 400))
    assert observed(verdict) == pytest.approx(910 * MS, rel=0.002)
    assert verdict.findings[0].samples == 1000
    assert verdict.status is not Status.PASS


def test_case_28_a_baseline_of_something_else(policy: Written) -> None:
    gate = policy("e2e p99 <= 120% of baseline")
    samples = requests([10.0] * 600)
    run = record(samples)
    summary = folded(gate, samples, run)
    renamed = {**run, "run_id": "last week", "scenario": {**run["scenario"], "name": "chat_v1"}}
    for baseline, message in (
        (baseline_from(gate, summary, renamed), "chat_v1"),
        (Baseline("last week", "chat-v1", {}), "empty"),
        (baseline_from(gate, summary, run), "the run that is judged"),
    ):
        with pytest.raises(UsageError, match=message):
            judge(gate, summary, run, baseline=baseline)


def test_case_31_one_promise_with_two_limits(tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    path.write_text("policy: gate\nobjectives:\n  - ttft p99 <= 80ms\n  - ttft p99 <= 8000ms\n")
    with pytest.raises(PolicyError, match=r"in line 3 and in line 4"):
        load_policy(path)
    path.write_text("policy: gate\nobjectives:\n  - e2e max <= 1s\nobjectives:\n  - e2e max <= 9s\n")
    with pytest.raises(PolicyError, match=r"in line 2 and in line 4"):
        load_policy(path)


@pytest.mark.parametrize(("milliseconds", "status"), [(1239.0, Status.FAIL), (1200.0, Status.PASS)])
def test_case_34_nothing_is_rounded_before_it_is_compared(
    policy: Written, milliseconds: float, status: Status
) -> None:
    verdict = judged(policy("e2e p99 <= 1200ms"), requests([milliseconds] * 2000))
    assert verdict.status is status
    assert judged(policy("e2e p99 < 1200ms"), requests([milliseconds] * 2000)).status is Status.FAIL


def test_case_37_the_servers_count_of_tokens() -> None:
    samples = requests([1000.0], chunks=100, output_tokens=100)
    samples["first"] -= 990 * MS
    fold = Fold(record(samples))
    fold.add(SampleBatch(samples, np.empty(0, GAP_DTYPE)))
    assert fold.result().distribution("tpot").percentile(0.5) == 10 * MS


def test_case_38_tokens_have_three_prices() -> None:
    tokens = Tokens(prompt=1000, cached=400, output=50, reasoning=30)
    prices = Prices(input=1.0, cached_input=0.1, output=2.0)
    assert cost_of_tokens(tokens, prices) == pytest.approx(0.000740, abs=1e-12)


def test_case_39_the_warm_up_is_cut_by_intended_start_and_counted(policy: Written) -> None:
    samples = requests([3000.0] * 3 + [100.0] * 1997)
    verdict = judged(policy("e2e max <= 500ms"), samples, start=30 * MS)
    assert verdict.status is Status.PASS
    assert verdict.findings[0].samples == 1997
    assert any("3 warm-up requests" in note for note in verdict.notes)


def test_case_49_a_reading_that_is_not_supported_is_never_zero(policy: Written) -> None:
    gate = policy("gpu_utilization mean <= 90%", "e2e p99 <= 500ms")
    mig = {"absent": {"gpu_utilization": "not supported by this GPU (MIG)"}}
    memory = [Reading(i * 100 * MS, LOAD, "gpu_memory", "GPU-0", 1e9) for i in range(190)]
    verdict = judged(gate, requests([10.0] * 2000), memory, **mig)
    assert verdict.status is Status.FAIL
    assert verdict.findings[0].observed is None
    assert "not supported" in verdict.findings[0].reason
