"""Samples as they end, packed in place as rows of SAMPLE_DTYPE; handed over in batches."""

from __future__ import annotations

from array import array
from typing import Any, Final, NamedTuple

import numpy as np

from pytest_inferslo.core.histogram import fold_gaps
from pytest_inferslo.core.samples import ABSENT, SAMPLE_DTYPE, Outcome, Rows, SampleBatch
from pytest_inferslo.loadgen.ending import ENDING, INT64, Ending, packing

_NAMES = SAMPLE_DTYPE.names or ()
_ROW: Final = packing(*_NAMES)
_PLACE = packing(*_NAMES[_NAMES.index("outcome") + 1 :])
#: A row whose later columns are packed already.
_WHOLE_ROW = packing(*_NAMES[: _NAMES.index("prompt_tokens")], more=f"{ENDING.size}s{_PLACE.size}s")
_FIRST_CAPACITY = 8192

_SIZE: Final = _ROW.size
_SUCCESS: Final = Outcome.SUCCESS
_pack_whole_row: Final = _WHOLE_ROW.pack_into

Place = tuple[int, int, int]  # stream, endpoint, adapter


class Recorder:
    """`epoch` (monotonic ns) is what all recorded times are relative to; `worker` this worker's index."""

    def __init__(self, worker: int) -> None:
        self.epoch = 0
        self.recorded = 0
        self.counts: dict[int, int] = {}
        self.examples: dict[int, str] = {}
        self._worker = worker
        self._buffer = bytearray(_ROW.size * _FIRST_CAPACITY)
        self._at = 0
        self._gaps = array(INT64)
        self._places: dict[Place, bytes] = {}

    def add(
        self,
        reply: Any,
        index: int,
        intended: int,
        sent: int,
        prompt_hash: int,
        place: Place,
    ) -> None:
        """`intended` is relative to the epoch; `sent` and the reply's times are monotonic ns, or ABSENT.

        `place`: stream, endpoint, adapter.
        """
        epoch = self.epoch
        at = self._at
        if at == len(self._buffer):
            self._buffer.extend(bytes(at))
        outcome = reply.outcome
        stream, endpoint, adapter = place
        first, first_content, last, gaps = reply.first, reply.first_content, reply.last, reply.gaps
        _ROW.pack_into(
            self._buffer, at,
            index,
            intended,
            sent - epoch if sent >= 0 else -1,
            first - epoch if first >= 0 else -1,
            first_content - epoch if first_content >= 0 else -1,
            last - epoch if last >= 0 else -1,
            reply.end - epoch,
            max(gaps) if gaps else -1,
            prompt_hash,
            reply.prompt_tokens,
            reply.cached_tokens,
            reply.output_tokens,
            reply.reasoning_tokens,
            reply.chunks,
            reply.bursts,
            reply.status,
            outcome,
            stream,
            endpoint,
            adapter,
            self._worker,
        )  # fmt: skip
        self._at = at + _ROW.size
        if outcome is _SUCCESS:
            if gaps:
                self._gaps.extend(gaps)
        else:
            self.note(outcome, reply.detail)

    def add_whole(
        self,
        ending: Ending,
        t: int,
        index: int,
        intended: int,
        sent: int,
        prompt_hash: int,
        place: Place,
    ) -> None:
        """A success that came whole, with one output, at `t` (monotonic ns); the rest as in `add`."""
        epoch = self.epoch
        at = self._at
        buffer = self._buffer
        if at == len(buffer):
            buffer.extend(bytes(at))
        t -= epoch
        _pack_whole_row(
            buffer, at,
            index,
            intended,
            sent - epoch,
            t,
            t if ending.content else -1,
            t,
            t,
            -1,
            prompt_hash,
            ending.packed,
            self._places.get(place) or self._placed(place),
        )  # fmt: skip
        self._at = at + _SIZE

    def _placed(self, place: Place) -> bytes:
        packed = self._places[place] = _PLACE.pack(*place, self._worker)
        return packed

    def note(self, outcome: Any, detail: str) -> None:
        """Keeps the first example of each kind of failure."""
        if outcome not in self.examples:
            self.examples[outcome] = detail

    def never_sent(self, rows: Rows, detail: str) -> None:
        """Rows with `index`, `intended`, `prompt_hash`, `stream`, `endpoint`, `adapter` set; this sets the
        rest.
        """
        for name in ("sent", "first", "first_content", "last", "end", "max_stall"):
            rows[name] = ABSENT
        for name in ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "status"):
            rows[name] = ABSENT
        rows["chunks"] = rows["bursts"] = 0
        rows["outcome"] = Outcome.NEVER_SENT
        rows["worker"] = self._worker
        data = rows.tobytes()
        self._buffer[self._at : self._at] = data
        self._at += len(data)
        if len(rows):
            self.note(Outcome.NEVER_SENT, detail)

    def take(self) -> Taken:
        """Everything since the last call. What costs time, folding the gaps, is left to who receives it."""
        samples = bytes(memoryview(self._buffer)[: self._at])
        taken = Taken(samples, self._gaps.tobytes())
        self._at = 0
        del self._gaps[:]
        rows = np.frombuffer(samples, SAMPLE_DTYPE)
        self.recorded += len(rows)
        counts = np.bincount(rows["outcome"])
        for outcome in np.flatnonzero(counts).tolist():
            self.counts[outcome] = self.counts.get(outcome, 0) + int(counts[outcome])
        return taken


class Taken(NamedTuple):
    """Rows of SAMPLE_DTYPE; the gaps of their successes, one request's after another's, ns: int64, native."""

    samples: bytes
    gaps: bytes

    def batch(self) -> SampleBatch:
        rows = np.frombuffer(self.samples, SAMPLE_DTYPE)
        successes = rows[rows["outcome"] == Outcome.SUCCESS]
        return SampleBatch(
            rows, fold_gaps(successes, successes["chunks"] - 1, np.frombuffer(self.gaps, np.int64))
        )
