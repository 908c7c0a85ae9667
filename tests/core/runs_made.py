"""Runs made of arrays, folded by the real fold: what the tests of the judge look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.baseline import Baseline
from pytest_inferslo.core.document import ListNode, MapNode, Scalar
from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.judge import judge, questions
from pytest_inferslo.core.policy import Policy
from pytest_inferslo.core.policy_parser import parse_policy
from pytest_inferslo.core.readings import Reading
from pytest_inferslo.core.samples import ABSENT, GAP_DTYPE, SAMPLE_DTYPE, Outcome, SampleBatch
from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import Finding, Verdict

MS = 1_000_000
SECOND = 1_000_000_000


def policy_of(*objectives: str, confidence: str = "99%", **sections: Any) -> Policy:
    """A policy with these objectives; `sections` as a YAML file would hold them."""
    data = {"policy": "p", "confidence": confidence, "objectives": list(objectives), **sections}
    return parse_policy(_node(data), "p.yaml", "0" * 64, lambda name: policy_of())


def _node(value: Any) -> Any:
    if isinstance(value, dict):
        return MapNode(tuple((Scalar(str(k), "str", 1, 1), _node(v)) for k, v in value.items()), 1, 1)
    if isinstance(value, (list, tuple)):
        return ListNode(tuple(_node(item) for item in value), 1, 1)
    kind = {bool: "bool", int: "int", float: "float"}.get(type(value), "str")
    return Scalar(str(value), kind, 1, 1)


def record_of(seconds: float, requests: int, **changes: Any) -> dict[str, Any]:
    """A run record of a window of `seconds` that starts with the run."""
    definition = {"streaming": True, "cache": "unique", "arrivals": {"kind": "constant"}}
    return {
        "run_id": "run-1",
        "scenario": {"name": "bursty", "definition": definition},
        "backend": {"name": "sim", "kind": "sim", "endpoints": [{"name": "default"}]},
        "window": {"start": 0, "end": int(seconds * SECOND)},
        "phases": [],
        "adapters": [],
        "counts": {"intended": requests},
        "workers": [{"index": 0, "cpu_share": 0.2, "loop_lag_p99_ns": 100_000, "lost": False}],
        "gpus": [],
        "absent": {},
        "errors": [],
        "notes": [],
    } | changes


def rows_of(
    ttft_ms: npt.ArrayLike,
    *,
    rate: float | None = None,
    intended_s: npt.ArrayLike | None = None,
    **columns: Any,
) -> npt.NDArray[np.void]:
    """One successful request per `ttft_ms`, at `rate` per second or at `intended_s`; answers of 11 tokens that end
    100 ms after their first. `columns` override; `outcome` other than SUCCESS erases the times."""
    first = np.atleast_1d(np.asarray(ttft_ms, float)) * MS
    n = len(first)
    rows = np.full(n, ABSENT, SAMPLE_DTYPE) if n == 0 else np.zeros(n, SAMPLE_DTYPE)
    times = np.arange(n) / (rate or 100.0) if intended_s is None else np.asarray(intended_s, float)
    rows["index"] = np.arange(n)
    rows["intended"] = (times * SECOND).astype(np.int64)
    rows["sent"] = rows["intended"] + 20_000
    rows["first"] = rows["first_content"] = rows["intended"] + first.astype(np.int64)
    rows["last"] = rows["end"] = rows["first"] + 100 * MS
    rows["max_stall"] = 10 * MS
    rows["prompt_hash"] = np.arange(n) + 1
    rows["prompt_tokens"], rows["output_tokens"], rows["chunks"] = 100, 11, 11
    rows["status"] = 200
    rows["adapter"] = ABSENT
    for name, value in columns.items():
        rows[name] = value
    failed = rows["outcome"] != Outcome.SUCCESS
    for name in ("first", "first_content", "last", "output_tokens", "max_stall"):
        rows[name][failed] = ABSENT
    return rows


def folded(
    policy: Policy,
    rows: npt.NDArray[np.void],
    record: dict[str, Any],
    readings: Sequence[Reading] = (),
    baseline: Baseline | None = None,
) -> Summary:
    mine = policy.for_record(record)
    fold = Fold(record, questions(mine, record, baseline), mine.goals())
    fold.add(SampleBatch(rows, np.empty(0, GAP_DTYPE)))
    fold.add_readings(readings)
    return fold.result()


def verdict_of(
    policy: Policy | str,
    rows: npt.NDArray[np.void],
    record: dict[str, Any] | None = None,
    readings: Sequence[Reading] = (),
    baseline: Baseline | None = None,
) -> Verdict:
    policy = policy_of(policy) if isinstance(policy, str) else policy
    seconds = float(rows["intended"].max()) / SECOND + 0.01
    record = record or record_of(seconds, len(rows))
    return judge(policy, folded(policy, rows, record, readings, baseline), record, baseline=baseline)


def only(verdict: Verdict) -> Finding:
    (found,) = verdict.findings
    return found
