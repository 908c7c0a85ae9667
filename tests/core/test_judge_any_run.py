"""Whatever a run holds, every kind of promise gets a finding, and none passes without a finite number that keeps it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from runs_made import SECOND, folded, policy_of, record_of, rows_of

from pytest_inferslo.core.judge import baseline_from, judge
from pytest_inferslo.core.objective import compare
from pytest_inferslo.core.readings import Reading
from pytest_inferslo.core.verdict import Status, Verdict

OBJECTIVES = [
    "ttft p99 <= 250ms", "ttft p50 < 50ms", "ttft mean <= 60ms", "e2e p99 <= 1s within adapter:*",
    "e2e p95 <= 800ms within phase:*", "e2e max <= 10s", "tpot p95 <= 40ms", "max_stall p99 <= 200ms",
    "normalized p99 <= 50ms", "error_rate <= 1%", "goodput >= 90%", "goodput_rate >= 1/s", "throughput >= 100/s",
    "output_tokens_per_second >= 100 tokens/s", "output_tokens_per_second_per_gpu >= 1/s",
    "ttft p99 <= 300ms for 2s", "error_rate <= 1% for 3s", "goodput >= 50% for 2s", "icl p99 <= 100ms",
    "icl mean <= 100ms", "output_tokens mean >= 5 tokens", "output_tokens p5 >= 3 tokens",
    "prompt_tokens min >= 1 tokens", "recovery_time <= 2s after b", "cost_per_million_tokens <= $1",
    "server_cpu mean <= 50%", "server_cpu p95 <= 50%", "server_cpu peak <= 50%", "server_cpu mean <= 30% above idle",
    "server_cpu_increase <= 30%", "gpu_energy <= 5kJ", "gpu_memory peak <= 90%", "gpu_power mean <= 300W",
    "ttft p90 <= 120% of endpoint:x within endpoint:y", "ttft mean <= 120% of phase:a within phase:b",
    "error_rate <= 1% above phase:a within phase:b", "throughput >= 90% of phase:a within phase:b",
    "ttft max <= 120% of phase:a within phase:b",
    "e2e p99 <= 150% of phase:a within phase:* while server_cpu <= 50%", "ttft p99 <= 120% of baseline",
    "ttft p99 <= 120% of baseline for 2s", "error_rate <= 200% of baseline", "throughput >= 90% of baseline",
    "server_cpu mean <= 120% of baseline",
]  # fmt: skip
POLICY = policy_of(
    *OBJECTIVES,
    prices={"hour": "$1"},
    rubric={
        "fail_at": "3 points",
        "penalties": [{"ttft max > 1s": "3 points"}, {"error_rate > 1%": "2 points"}],
    },
    error_budget={
        "objective": "error_rate <= 1%",
        "period": "1h",
        "burn": [{"rate": 2, "long": "3s", "short": "1s"}],
    },
)


def any_run(rng: np.random.Generator, run_id: str) -> tuple[np.ndarray, dict[str, Any], list[Reading]]:
    n, seconds = int(rng.choice([0, 1, 2, 10, 50, 300])), float(rng.choice([0.5, 1, 3, 7.3, 20]))
    failed = np.where(rng.random(n) < rng.choice([0, 0.05, 0.5, 1]), rng.integers(1, 24, n), 0)
    where = {"endpoint": rng.integers(0, 2, n), "adapter": rng.integers(-1, 2, n)}
    rows = rows_of(
        rng.lognormal(3, 1, n), intended_s=np.sort(rng.random(n)) * seconds, outcome=failed, **where
    )
    if rng.random() < 0.3:
        rows["output_tokens"] = -1
    half, end = int(seconds * SECOND / 2), int(seconds * SECOND)
    record = record_of(
        seconds,
        n,
        run_id=run_id,
        adapters=["p", "q"],
        gpus=[{"uuid": "G", "memory_total": 1e10}] if rng.random() < 0.5 else [],
        phases=[{"name": "a", "start": 0, "end": half}, {"name": "b", "start": half, "end": end}],
    )
    record["backend"]["endpoints"] = [{"name": "x"}, {"name": "y"}]
    record["scenario"]["definition"]["stop_when_certain"] = bool(rng.random() < 0.3)
    record["scenario"]["definition"]["streaming"] = bool(rng.random() < 0.8)
    times = np.linspace(0, end, int(rng.choice([0, 1, 5, 40]))).astype(int)
    readings = [
        Reading(int(time), phase, metric, source, float(rng.random()))
        for metric, source in (
            ("server_cpu", "s"),
            ("gpu_memory", "G"),
            ("gpu_power", "G"),
            ("gpu_energy", "G"),
        )
        for phase in ("idle", "load")
        for time in times
    ]
    return rows, record, readings


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(60))
def test_no_promise_passes_without_a_number_that_keeps_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    earlier, record, readings = any_run(rng, "run-0")
    baseline = baseline_from(POLICY, folded(POLICY, earlier, record, readings), record)
    baseline = replace(baseline, invalid="", about={})
    given = baseline if baseline.levels and rng.random() < 0.7 else None
    rows, record, readings = any_run(rng, "run-1")
    verdict = judge(POLICY, folded(POLICY, rows, record, readings, given), record, baseline=given)
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict(), allow_nan=False))) == verdict
    assert {found.objective for found in verdict.findings} >= set(OBJECTIVES)
    for found in verdict.findings:
        if found.status is Status.PASS:
            assert found.observed is not None, found
            assert math.isfinite(found.observed), found
        if found.status is Status.PASS and " for " not in found.objective and found.statistic != "burn":
            objective = next(o for o in POLICY.objectives if o.text == found.objective)
            assert found.limit is not None
            assert compare(
                found.observed, objective.op, found.limit * (1.002 if objective.upper else 0.998)
            ), found
