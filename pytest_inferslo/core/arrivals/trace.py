"""Arrivals of a recorded trace, with the token counts of each request."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core import fields, seeds
from pytest_inferslo.core.arrivals.schedule import ArrivalSchedule, Span, Times, Tokens, of_times
from pytest_inferslo.core.prompts import BlockPrompts, TokenCounts
from pytest_inferslo.core.prompts.text import TOKENS_PER_WORD

#: (time in ns, input tokens, output tokens), and perhaps the hash ids of the prompt's blocks
Row = tuple[int, int, int] | tuple[int, int, int, tuple[int, ...]]


@dataclass(frozen=True)
class Trace:
    """The requests of a trace at their recorded times.

    `offsets` (int64, ns since the first request), `input_tokens` and `output_tokens` (int32) are packed
    little-endian arrays, so that a trace travels with its scenario and a worker needs no file. `source` and
    `sha256` say which file. `block_ids` (int64, row after row) and `block_counts` (int32, per row) are the
    hash ids of a Mooncake trace, empty where a trace has none. `dropped` rows had no input or no output
    tokens: failures of the recorded service.

    With `time_scale` s, request k is due at s x t_k. With `rate_scale` f, request k comes floor(f) times, and
    once more with probability f - floor(f) (for f < 1 that is random thinning); the extra ones fall uniformly
    between t_k and t_(k+1). The trace starts with the run: its first seconds are the warm-up.
    """

    kind: ClassVar[str] = "trace"
    source: str
    sha256: str
    offsets: bytes
    input_tokens: bytes
    output_tokens: bytes
    block_ids: bytes = b""
    block_counts: bytes = b""
    dropped: int = 0
    time_scale: float = 1.0
    rate_scale: float = 1.0

    def __post_init__(self) -> None:
        fields.number("time_scale", self.time_scale, above=True)
        fields.number("rate_scale", self.rate_scale, above=True)

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        *,
        source: str = "",
        sha256: str = "",
        time_scale: float = 1.0,
        rate_scale: float = 1.0,
    ) -> Trace:
        """From rows in any order. Raises ScenarioError when none has input and output tokens."""
        kept = sorted(row for row in rows if row[1] > 0 and row[2] > 0)
        table = np.array([row[:3] for row in kept], np.int64).reshape(-1, 3)
        blocks = [row[3] if len(row) > 3 else () for row in kept]
        if not kept:
            raise fields.refuse("trace", source, f"none of its {len(rows)} rows has input and output tokens")
        offsets = table[:, 0] - table[0, 0]
        return cls(
            source,
            sha256 or hashlib.sha256(table.tobytes()).hexdigest(),
            _packed(offsets, "<i8"),
            _packed(table[:, 1], "<i4"),
            _packed(table[:, 2], "<i4"),
            _packed(np.array([block for row in blocks for block in row], np.int64), "<i8")
            if any(blocks)
            else b"",
            _packed(np.array([len(row) for row in blocks], np.int64), "<i4") if any(blocks) else b"",
            len(rows) - len(kept),
            time_scale,
            rate_scale,
        )

    def prompts(
        self, *, tokens_per_word: float = TOKENS_PER_WORD, tokenizer: TokenCounts | None = None
    ) -> BlockPrompts:
        """Prompts that share their beginnings as the recorded ones did. Raises ScenarioError without hash ids."""
        if not self.block_counts:
            raise fields.refuse("trace", self.source, "it has no hash_ids (Mooncake); use synthetic()")
        if self.rate_scale != 1:
            raise fields.refuse(
                "rate_scale", self.rate_scale, "blocks belong to recorded requests; accepted: 1"
            )
        return BlockPrompts(self.block_ids, self.block_counts, tokens_per_word, tokenizer)

    @property
    def open_loop(self) -> bool:
        return True

    @cached_property
    def times(self) -> Times:
        """Scaled times of the recorded requests, ns."""
        return np.rint(_unpacked(self.offsets, "<i8") * self.time_scale).astype(np.int64)

    @property
    def length(self) -> float | None:
        """Seconds that the trace covers: until its last request, and one mean gap after it."""
        last = float(self.times[-1]) / 1e9
        return last + last / max(len(self.times) - 1, 1)

    def schedule(self, seconds: float, seed: int, lead: float = 0.0) -> ArrivalSchedule:
        end = round(seconds * 1e9)
        rows, times = self._copies(seed)
        inside = np.searchsorted(times, end)
        rows = rows[:inside]
        return of_times(
            times[:inside],
            end,
            input_tokens=self._column(self.input_tokens, rows),
            output_tokens=self._column(self.output_tokens, rows),
        )

    def _column(self, packed: bytes, rows: npt.NDArray[np.int64]) -> Tokens:
        return _unpacked(packed, "<i4").astype(np.int32)[rows]

    def _copies(self, seed: int) -> tuple[npt.NDArray[np.int64], Times]:
        """Which recorded row each request repeats, and when it is due, sorted by time."""
        times = self.times
        if self.rate_scale == 1:
            return np.arange(len(times)), times
        random = seeds.generator(seed, 2)
        sure = int(self.rate_scale)
        copies = sure + (random.random(len(times)) < self.rate_scale - sure)
        rows = np.repeat(np.arange(len(times)), copies)
        gaps = np.diff(times, append=round((self.length or 0.0) * 1e9))
        again = np.diff(rows, prepend=-1) == 0
        due = times[rows] + np.where(again, random.random(len(rows)) * gaps[rows], 0).astype(np.int64)
        order = np.argsort(due, kind="stable")
        return rows[order], due[order]

    def spans(self, seconds: float) -> list[Span]:
        return [Span("measured", 0.0, seconds)]

    def check(self, seconds: float, lead: float) -> None:
        covered = self.length or 0.0
        if lead + seconds > covered * (1 + 1e-9):
            raise fields.refuse(
                "duration",
                seconds,
                f"the trace {self.source} covers {covered:g} s, warm-up and window together take"
                f" {lead + seconds:g} s; shorten them, or stretch it with time_scale",
            )

    def scaled(self, factor: float) -> Trace:
        """Itself: a shorter run replays the beginning of the trace."""
        return self


def _packed(values: npt.NDArray[np.int64], dtype: str) -> bytes:
    return zlib.compress(values.astype(dtype).tobytes(), 6)


def _unpacked(packed: bytes, dtype: str) -> npt.NDArray[np.int64]:
    return np.frombuffer(zlib.decompress(packed), dtype).astype(np.int64)
