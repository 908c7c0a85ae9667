"""A proof near the limit must hold for requests that have not come, as far as those that came can tell."""

from __future__ import annotations

import numpy as np
import pytest
from runs_made import policy_of, record_of, rows_of

from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.judge import judge, questions
from pytest_inferslo.core.samples import GAP_DTYPE, SampleBatch
from pytest_inferslo.core.verdict import Finding, Status

FAST, NEAR = 10.0, 44.0


def found(ms: np.ndarray, promise: str = "ttft p99 <= 55ms") -> Finding:
    policy, record = policy_of(promise), record_of(len(ms) // 100, len(ms))
    fold = Fold(record, questions(policy, record), policy.goals())
    fold.add(SampleBatch(rows_of(ms, rate=100), np.empty(0, GAP_DTYPE)))
    return judge(policy, fold.result(), record).findings[0]


def waves(usual: float, at_times: float, share: float, seconds: int, n: int = 3_000) -> np.ndarray:
    """Latencies (ms) of which a share is `at_times`, for `seconds` at a time (0: each by itself)."""
    rng = np.random.default_rng(9)
    alike = max(1, seconds * 100)
    slower = np.repeat(rng.random(n // alike) < share, alike)
    return np.where(slower, at_times, usual) * rng.lognormal(0.0, 0.02, n)


@pytest.mark.parametrize(
    ("name", "ms", "status"),
    [
        ("far from the limit, in waves", waves(FAST, FAST * 2, 0.3, 3), Status.PASS),
        ("near the limit, each by itself", waves(NEAR, NEAR * 1.15, 0.3, 0), Status.PASS),
        ("near the limit, in waves", waves(NEAR, NEAR * 1.15, 0.3, 3), Status.INCONCLUSIVE),
        (
            "near the limit in waves, for a quarter of an hour",
            waves(NEAR, NEAR * 1.15, 0.3, 3, 90_000),
            Status.PASS,
        ),
    ],
)
def test_what_comes_in_waves_near_the_limit_takes_longer_to_prove(
    name: str, ms: np.ndarray, status: Status
) -> None:
    """No request is over the limit in any of these."""
    assert ms.max() < 55
    assert found(ms).status is status, name


def test_what_is_missing_is_said_in_requests_as_much_alike_as_they_are() -> None:
    finding = found(waves(NEAR, NEAR * 1.15, 0.3, 3))
    assert finding.samples == 3_000
    assert finding.effective_samples < 300
    assert "neighbours are alike" in finding.reason
    assert "more requests" in finding.reason
