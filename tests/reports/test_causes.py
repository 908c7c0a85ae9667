"""The likely cause of a breach, from figures that show it; and silence where nothing does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from measured import BREACHED, INFINITE, OPEN, PASSED, RECORD, SECOND, samples, summary, verdict

from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.readings import LOAD, Reading
from pytest_inferslo.core.samples import SAMPLE_DTYPE, SampleBatch
from pytest_inferslo.reports.causes import likely_causes, ranked_outcomes


def test_no_breach_needs_no_cause() -> None:
    assert likely_causes(verdict(PASSED, OPEN), RECORD, summary(cpu=1.0, growth=9)) == []


def test_a_breach_without_traces_has_no_made_up_cause() -> None:
    assert likely_causes(verdict(BREACHED), RECORD, summary()) == []


@pytest.mark.parametrize("with_summary", [True, False])
def test_failures_come_first_by_how_often(with_summary: bool) -> None:
    causes = likely_causes(verdict(INFINITE), RECORD, summary() if with_summary else None)
    intended = "3,600" if with_summary else "4,200"
    assert causes[0] == (
        f"20 of {intended} requests did not succeed, most often http overloaded (12): "
        "503 Service Unavailable: queue full"
    )


def test_error_rate_and_goodput_name_the_failures_too() -> None:
    for metric in ("error_rate", "goodput"):
        found = replace(BREACHED, metric=metric, statistic="", observed=0.01)
        assert "did not succeed" in likely_causes(verdict(found), RECORD, summary())[0]


def test_waiting_in_the_generator_is_told_from_a_slow_server() -> None:
    causes = likely_causes(verdict(BREACHED), RECORD, summary(lag_ms=300))
    assert causes == [
        "requests waited before they were sent: ttft p99 is 388ms, from the send it is 88ms (service_ttft)"
    ]


def test_a_growing_queue() -> None:
    causes = likely_causes(verdict(BREACHED), RECORD, summary(growth=9))
    assert len(causes) == 1
    assert causes[0].startswith("a queue built up: ttft rose from ")


@pytest.mark.parametrize(
    ("metric", "value", "host", "expected"),
    [
        ("server_cpu", 0.97, {}, "the server has no CPU left: 97% of what it may use, on average"),
        ("server_memory", 2.0e9, {"memory_allowed": 2 << 30}, "the server's memory is nearly used up"),
        ("gpu_utilization", 0.99, {}, "the GPU is busy without a pause: utilization 99% on average"),
        ("gpu_throttled", 0.25, {}, "the GPU was slowed down (power or heat) in 25% of the readings"),
    ],
)
def test_saturation(metric: str, value: float, host: dict[str, int], expected: str) -> None:
    fold = Fold(RECORD, [])
    fold.add(samples())
    fold.add_readings([Reading((10 + s) * SECOND, LOAD, metric, "x", value) for s in range(60)])
    causes = likely_causes(verdict(BREACHED), {**RECORD, "host": host}, fold.result())
    assert len(causes) == 1
    assert causes[0].startswith(expected)


def test_absent_readings_are_no_cause() -> None:
    record = {**RECORD, "absent": {"server_cpu": "not read"}}
    fold = Fold(record, [])
    fold.add(samples())
    assert likely_causes(verdict(BREACHED), record, fold.result()) == []


def test_one_slow_endpoint_stands_out() -> None:
    endpoints = [{"url": f"http://h{i}", "model": "m", "name": f"replica-{i}"} for i in range(3)]
    record = {**RECORD, "backend": {**RECORD["backend"], "endpoints": endpoints}}
    rows = samples().samples[600:900].copy()
    rows["outcome"] = 0
    rows["endpoint"] = np.arange(300) % 3
    slow = rows["endpoint"] == 2
    rows["last"][slow] = rows["end"][slow] = rows["first"][slow] + 5 * SECOND
    fold = Fold(record, [])
    fold.add(SampleBatch(rows.astype(SAMPLE_DTYPE), SampleBatch.empty().gaps))
    causes = likely_causes(verdict(BREACHED), record, fold.result())
    assert any(cause.startswith("endpoint replica-2 stands out: e2e p99 5.0") for cause in causes), causes


def test_outcomes_are_ranked_and_success_is_none_of_them() -> None:
    assert [row[:2] for row in ranked_outcomes(RECORD)] == [
        ("HTTP_OVERLOADED", 12),
        ("UNFINISHED", 4),
        ("TIMEOUT_FIRST_OUTPUT", 3),
        ("NEVER_SENT", 1),
    ]
