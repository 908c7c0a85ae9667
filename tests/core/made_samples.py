"""Samples made by hand, for tests of the fold."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.samples import ABSENT, GAP_DTYPE, SAMPLE_DTYPE, Outcome, Rows, SampleBatch
from pytest_inferslo.core.summary import Question, Summary

MS = 1_000_000
S = 1_000_000_000

_ANSWERED = {
    "sent": 0, "first": 20 * MS, "first_content": 20 * MS, "last": 110 * MS, "end": 110 * MS,
    "max_stall": 10 * MS, "prompt_tokens": 100, "output_tokens": 10, "chunks": 10, "status": 200,
}  # fmt: skip


def rows(
    n: int, every: int = 100 * MS, start: int = 0, outcome: int = Outcome.SUCCESS, **columns: Any
) -> Rows:
    """`n` requests, one `every` ns from `start` on. Times in `columns` count from each intended start.

    Successes have 10 tokens: the first after 20 ms, then one every 10 ms. Failures have no times but `sent`.
    """
    made = np.zeros(n, SAMPLE_DTYPE)
    made["index"] = np.arange(n)
    made["intended"] = start + np.arange(n) * every
    made["prompt_hash"] = np.arange(n) + start
    made["adapter"] = ABSENT
    made["outcome"] = outcome
    settings = dict.fromkeys((*_ANSWERED, "cached_tokens", "reasoning_tokens"), ABSENT)
    if outcome == Outcome.SUCCESS:
        settings |= _ANSWERED
    elif outcome != Outcome.NEVER_SENT:
        settings |= {"sent": 0}
    settings |= {"bursts": 0, "chunks": max(0, settings["chunks"])} | columns
    for name, value in settings.items():
        values = np.broadcast_to(np.asarray(value), n)
        is_time = name in ("sent", "first", "first_content", "last", "end")
        made[name] = np.where(values >= 0, made["intended"] + values, ABSENT) if is_time else values
    return made


def gap_rows(*gaps: tuple[int, int, int]) -> Rows:
    """(slot, bucket, count) of the base model on the first endpoint."""
    made = np.zeros(len(gaps), GAP_DTYPE)
    made["adapter"] = ABSENT
    for position, (slot, bucket, count) in enumerate(gaps):
        made[position]["slot"], made[position]["bucket"], made[position]["count"] = slot, bucket, count
    return made


def joined(*parts: Rows) -> Rows:
    """All of them in one schedule, numbered anew."""
    together = np.concatenate(parts)
    together["index"] = np.arange(len(together))
    return together


def record(start: int = 0, end: int = 10 * S, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "window": {"start": start, "end": end},
        "phases": [{"name": "measured", "start": start, "end": end}],
        "backend": {"endpoints": [{"name": "default"}]},
        "adapters": [],
        "scenario": {"definition": {"streaming": True}},
    }
    return made | fields


def summary(
    samples: Rows,
    *questions: Question,
    gaps: Rows | None = None,
    goals: tuple[tuple[str, float], ...] = (),
    run: dict[str, Any] | None = None,
) -> Summary:
    fold = Fold(run or record(), questions, goals)
    fold.add(SampleBatch(samples, np.empty(0, GAP_DTYPE) if gaps is None else gaps))
    return fold.result()
