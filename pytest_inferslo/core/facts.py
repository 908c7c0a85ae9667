"""What the samples say about the measurement itself: the inputs of the validity guards."""

from __future__ import annotations

from typing import Any

import numpy as np

from pytest_inferslo.core.frame import Frame
from pytest_inferslo.core.histogram import Histogram, Ints
from pytest_inferslo.core.samples import ABSENT, Outcome
from pytest_inferslo.core.tally import Tally
from pytest_inferslo.core.values import Columns, both, chosen

_ENDINGS: dict[str, list[Outcome]] = {
    "succeeded": [Outcome.SUCCESS],
    "unfinished": [Outcome.UNFINISHED],
    "never_sent": [Outcome.NEVER_SENT],
}


#: Offered, but the server did not let it in: its failure, and no shortfall of the load.
_REFUSED = [Outcome.CONNECT_REFUSED, Outcome.CONNECT_TIMEOUT, Outcome.TLS_ERROR]


class IndexCheck:
    """Every position of the schedule must come exactly once. Memory: a byte per position that is not yet part
    of the gapless beginning.
    """

    def __init__(self) -> None:
        self._complete = 0  # all positions below have come
        self._seen = np.zeros(0, bool)  # of the positions from `_complete` on
        self.duplicates = 0
        self.highest = -1

    def add(self, indices: Ints) -> None:
        if len(indices) == 0:
            return
        self.highest = max(self.highest, int(indices.max()))
        fresh = indices[indices >= self._complete] - self._complete
        self.duplicates += len(indices) - len(fresh)
        if len(fresh) == 0:
            return
        low, high = int(fresh.min()), int(fresh.max()) + 1
        self._reserve(high)
        touched = self._seen[low:high]
        before = int(touched.sum())
        self._seen[fresh] = True
        self.duplicates += before + len(fresh) - int(touched.sum())
        self._advance()

    def missing(self, expected: int) -> int:
        """Positions below `expected` (and below the highest seen) that never came."""
        total = max(expected, self.highest + 1)
        return total - self._complete - int(self._seen[: max(0, total - self._complete)].sum())

    def _reserve(self, size: int) -> None:
        """Room for `size` positions and one that has not come, twice as much as before at least."""
        if size >= len(self._seen):
            longer = np.zeros(max(size + 1, 2 * len(self._seen)), bool)
            longer[: len(self._seen)] = self._seen
            self._seen = longer

    def _advance(self) -> None:
        if self._seen[0]:
            gap = int(np.argmin(self._seen))
            self._complete += gap
            self._seen = self._seen[gap:]


class RepeatCheck:
    """The share of prompts that had been sent before, exact up to `capacity` distinct prompts.

    Beyond it every second hash is dropped, again and again: what is kept is a fair sample of the distinct
    prompts with all of their repeats (Gibbons, Distinct Sampling, VLDB 2001), so the share stays unbiased.
    """

    def __init__(self, capacity: int = 1 << 18) -> None:
        self._capacity = capacity
        self._mask = np.uint64(0)
        self._distinct = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.int64)
        self._pending: list[np.ndarray[Any, np.dtype[np.uint64]]] = []

    def add(self, hashes: Ints) -> None:
        mixed = hashes[hashes != ABSENT].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
        self._pending.append(mixed[(mixed & self._mask) == 0])
        if sum(map(len, self._pending)) > self._capacity:
            self._compact()

    def share(self) -> float | None:
        """None when no prompt carried a hash."""
        self._compact()
        total = int(self._counts.sum())
        return 1 - len(self._distinct) / total if total else None

    def _compact(self) -> None:
        fresh, counts = np.unique(np.concatenate([self._distinct[:0], *self._pending]), return_counts=True)
        keys, where = np.unique(np.concatenate([self._distinct, fresh]), return_inverse=True)
        sums = np.zeros(len(keys), np.int64)
        sums[where[: len(self._distinct)]] += self._counts
        sums[where[len(self._distinct) :]] += counts
        self._pending = []
        while len(keys) > self._capacity:
            self._mask = (self._mask << np.uint64(1)) | np.uint64(1)
            kept = (keys & self._mask) == 0
            keys, sums = keys[kept], sums[kept]
        self._distinct, self._counts = keys, sums


class RunFacts:
    """Collects over all rows of a run; `result` needs the record's own counts to compare with."""

    def __init__(self, frame: Frame) -> None:
        self._span = frame.span(None)
        self._indices = IndexCheck()
        self._prompts = RepeatCheck()
        self._send_lag = Histogram()
        self._rows = 0
        self._endings = dict.fromkeys(_ENDINGS, 0)
        self._warmup = 0
        self._sent_in_window = 0
        self._refused = 0
        self._steps = 0
        self._bursts = 0
        self._later_chunks = 0

    def add(self, rows: Columns) -> None:
        """All rows of a block, whatever their outcome."""
        self._rows += len(rows)
        for name, outcomes in _ENDINGS.items():
            self._endings[name] += int(np.isin(rows["outcome"], outcomes).sum())
        self._indices.add(rows["index"])
        intended, sent = rows["intended"], rows["sent"]
        self._prompts.add(rows["prompt_hash"][sent >= 0])  # an unsent prompt fills no cache
        inside = self._span.holds(intended)
        self._warmup += int((intended < self._span.start).sum())
        was_sent = sent >= 0
        self._send_lag.add(chosen(sent - intended, both(was_sent, inside)))
        self._sent_in_window += len(chosen(sent, both(was_sent, self._span.holds(sent))))
        refused = np.isin(rows["outcome"], _REFUSED) & ~was_sent
        self._refused += len(chosen(sent, both(refused, inside)))
        self._steps += _impossible(rows)
        answered = both(rows["outcome"] == Outcome.SUCCESS, inside)
        self._bursts += int(np.maximum(chosen(rows["bursts"], answered), 0).sum())
        self._later_chunks += int(np.maximum(chosen(rows["chunks"], answered) - 1, 0).sum())

    def result(self, record: dict[str, Any], whole: Tally, misplaced: int) -> dict[str, float]:
        """`whole` counts the window; `misplaced` values were negative or too large for a histogram."""
        counts = whole.counts
        expected = int((record.get("counts") or {}).get("intended") or 0)
        facts: dict[str, float] = {
            "unfinished": counts.unfinished,
            "never_sent": counts.never_sent,
            "undelivered_share": counts.never_sent / counts.intended if counts.intended else 0.0,
            "recording_errors": counts.outcomes.get(Outcome.CLIENT_ERROR, 0),
            "overflow": misplaced,
            "clock_steps": self._steps,
            "warmup_samples": self._warmup,
            # In a closed loop user u's requests are u, u + N, ...: where users did not ask equally often are gaps.
            "missing_indices": self._indices.missing(expected) if record.get("open_loop", True) else 0,
            "duplicate_indices": self._indices.duplicates,
            "offered_rate": (self._sent_in_window + self._refused) / self._span.seconds,
            "asked_rate": counts.intended / self._span.seconds,
        }
        optional = {
            "count_mismatch": self._count_mismatch(record.get("counts") or {}),
            "send_lag_p99_ns": self._send_lag.percentile(0.99),
            "send_lag_p999_ns": self._send_lag.percentile(0.999),
            "burst_share": self._bursts / self._later_chunks if self._later_chunks else None,
            "duplicate_prompt_share": self._prompts.share(),
            "cached_token_share": whole.tokens.cached / whole.tokens.prompt if whole.tokens.prompt else None,
        }
        facts |= {name: value for name, value in optional.items() if value is not None}
        return facts | _worker_facts(record.get("workers") or [])

    def _count_mismatch(self, told: dict[str, Any]) -> int | None:
        """By how much the record's own counts differ from the rows; None where it has none to compare with.

        A record and samples that are not of one run differ in how the requests ended, if not in their number.
        """
        if told.get("intended") is None:
            return None
        endings = sum(abs(told[name] - seen) for name, seen in self._endings.items() if name in told)
        return max(abs(told["intended"] - self._rows), endings)


def _impossible(rows: Columns) -> int:
    """Rows whose times run backwards: a clock stepped, or two clocks were mixed.

    A failure ends when it is seen; output that still comes after that is no step of a clock.
    """
    failed = rows["outcome"] != Outcome.SUCCESS
    stages = [
        rows["sent"],
        *(np.where(failed & (rows[name] > rows["end"]), ABSENT, rows[name]) for name in ("first", "last")),
        rows["end"],
    ]
    reached = rows["intended"].copy()
    backwards = np.zeros(len(rows), bool)
    for stage in stages:
        there = stage >= 0
        backwards |= there & (stage < reached)
        reached = np.where(there, np.maximum(stage, reached), reached)
    return int(backwards.sum())


def _worker_facts(workers: list[dict[str, Any]]) -> dict[str, float]:
    facts: dict[str, float] = {"lost_workers": sum(1 for worker in workers if worker.get("lost"))}
    for fact, key in (("loadgen_cpu_max", "cpu_share"), ("loop_lag_p99_ns", "loop_lag_p99_ns")):
        seen = [worker[key] for worker in workers if worker.get(key) is not None]
        if seen:
            facts[fact] = float(max(seen))
    return facts
