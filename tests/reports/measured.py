"""A measured run for the report tests.

3,600 requests in a minute, folded from samples, and a verdict on it.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.readings import IDLE, LOAD, Reading
from pytest_inferslo.core.samples import GAP_DTYPE, SAMPLE_DTYPE, Outcome, SampleBatch
from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import Finding, GuardFinding, Status, Verdict

RECORD: dict[str, Any] = json.loads((Path(__file__).parent.parent / "storage/data/run.json").read_text())
MS, SECOND = 1_000_000, 1_000_000_000

#: Request index -> how it ended; all others succeed.
FAILED = {
    **{1000 + i: Outcome.HTTP_OVERLOADED for i in range(12)},
    **{2000 + i: Outcome.TIMEOUT_FIRST_OUTPUT for i in range(3)},
    **{4100 + i: Outcome.UNFINISHED for i in range(4)},
    4199: Outcome.NEVER_SENT,
}


def samples(*, lag_ms: float = 0.05, growth: float = 0.0) -> SampleBatch:
    """4,200 requests at 60/s, the first 10 s warm-up. `lag_ms` is how late they are sent; ttft from the
    send is 80 ms, times up to 1 + `growth` at the end."""
    n = 4200
    rows = np.zeros(n, SAMPLE_DTYPE)
    rows["index"] = np.arange(n)
    rows["intended"] = np.arange(n) * SECOND // 60
    rows["sent"] = rows["intended"] + int(lag_ms * MS)
    spread = 1 + 0.1 * np.sin(np.arange(n)) + growth * np.arange(n) / n
    rows["first"] = rows["first_content"] = rows["sent"] + (80 * MS * spread).astype(np.int64)
    rows["last"] = rows["end"] = rows["first"] + 620 * MS
    rows["output_tokens"] = rows["chunks"] = 32
    rows["prompt_tokens"] = 100
    rows["prompt_hash"] = np.arange(n)
    rows["max_stall"] = 20 * MS
    rows["status"] = 200
    rows["adapter"] = -1
    for index, outcome in FAILED.items():
        rows["outcome"][index] = outcome
        rows["last"][index] = -1
    gaps = np.zeros(1, GAP_DTYPE)
    gaps["slot"], gaps["adapter"], gaps["bucket"], gaps["count"] = 20, -1, 20_000, 1000
    return SampleBatch(rows, gaps)


def summary(*, cpu: float = 0.5, **shape: float) -> Summary:
    fold = Fold(RECORD, [])
    fold.add(samples(**shape))
    readings = [Reading(-i * SECOND, IDLE, "server_cpu", "server", 0.05) for i in range(1, 4)]
    for second in range(60):
        time = (10 + second) * SECOND
        readings += [
            Reading(time, LOAD, "server_cpu", "server", cpu),
            Reading(time, LOAD, "server_cpu_cores", "server", 2 * cpu),
            Reading(time, LOAD, "server_memory", "server", 3e9),
        ]
    fold.add_readings(readings)
    return fold.result()


PASSED = Finding(
    objective="tpot p95 <= 40ms",
    metric="tpot",
    statistic="p95",
    scope="all",
    limit=40e6,
    limit_text="40ms",
    observed=20.03e6,
    observed_text="20.03ms",
    interval=(20.0e6, 20.05e6),
    interval_text="20ms to 20.05ms",
    samples=3580,
    effective_samples=3580.0,
    status=Status.PASS,
    source="slo_policies/interactive-chat.yaml:6",
)
BREACHED = replace(
    PASSED,
    objective="ttft p99 <= 250ms",
    metric="ttft",
    statistic="p99",
    limit=250e6,
    limit_text="250ms",
    observed=312.4e6,
    observed_text="312.4ms",
    interval=(290e6, 341e6),
    interval_text="290ms to 341ms",
    samples=3600,
    effective_samples=812.0,
    status=Status.FAIL,
    reason="71 of 3,600 requests were over 250ms, 36 may be",
    source="slo_policies/interactive-chat.yaml:5",
)
INFINITE = replace(
    BREACHED,
    objective="e2e p99.9 <= 2s",
    metric="e2e",
    statistic="p99.9",
    limit=2e9,
    limit_text="2s",
    observed=math.inf,
    observed_text="inf",
    interval=(math.inf, math.inf),
    interval_text="",
    reason="failures reach this rank: 20 of 3,600 requests did not succeed",
)
UNMEASURED = replace(
    PASSED,
    objective="gpu_memory peak <= 90%",
    metric="gpu_memory",
    statistic="max",
    limit_text="90%",
    observed=None,
    observed_text="not measured",
    interval=None,
    interval_text="",
    samples=0,
    effective_samples=0.0,
    optional=True,
    status=Status.FAIL,
    reason="no NVIDIA driver: libnvidia-ml.so.1 was not found",
)
OPEN = replace(
    PASSED,
    objective="error_rate <= 0.5% within adapter:customer-support-german-v12",
    metric="error_rate",
    statistic="",
    scope="adapter:customer-support-german-v12",
    limit_text="0.5%",
    observed=0.0055,
    observed_text="0.5556%",
    interval=(0.003, 0.009),
    interval_text="0.3% to 0.9%",
    status=Status.INCONCLUSIVE,
    reason="needs about 9,000 more requests for 99% confidence",
    severity="warn",
)
HELD = GuardFinding("send_lag", True, "0.05ms", "<= 25ms")
BROKEN = GuardFinding(
    "undelivered", False, "90%", "<= 1%", "offered 5 of 50 requests/s; the load asked for was not offered"
)


def verdict(
    *findings: Finding, status: Status = Status.FAIL, guards: tuple[GuardFinding, ...] = (HELD,)
) -> Verdict:
    return Verdict(
        status=status,
        policy="interactive-chat",
        policy_sha256="ab" * 32,
        confidence=0.99,
        findings=findings,
        guards=guards,
        run_ids=(RECORD["run_id"],),
    )
