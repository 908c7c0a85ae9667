"""Raw samples on disk: two Arrow IPC streams, `samples.arrow` and `gaps.arrow`, batch by batch.

One batch of the engine is one record batch in each file (the n-th of one belongs to the n-th of the other; a
batch without gaps writes an empty one). Columns are named and typed as in core.samples; -1 (`ABSENT`) stands
where a value never came to be. Buffers are LZ4-compressed; any Arrow reader opens the files.

The stream form, rather than Feather or Parquet, is what makes a run readable while it grows and after a
crash: there is no footer to lose. A file that ends without the stream's end marker was not closed; a reader
takes what is whole and says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pytest_inferslo.core.samples import GAP_DTYPE, SAMPLE_DTYPE, Rows, SampleBatch
from pytest_inferslo.storage.arrow_stream import StreamFile, StreamReader, versioned

SAMPLES_FILE = "samples.arrow"
GAPS_FILE = "gaps.arrow"

#: Rows that one yielded batch holds at least, unless the file ends: small batches are joined while reading.
_ROWS_PER_READ = 16_384


class IncompleteRecordWarning(UserWarning):
    """A sample file ends early: what follows in the run was never written, and is not part of any figure."""


def _schema(dtype: np.dtype[np.void]) -> pa.Schema:
    names = dtype.names or ()
    return versioned([pa.field(name, pa.from_numpy_dtype(dtype[name]), nullable=False) for name in names])


SAMPLE_SCHEMA = _schema(SAMPLE_DTYPE)
GAP_SCHEMA = _schema(GAP_DTYPE)


class SampleWriter:
    """Appends batches to a run directory. Every `append` has reached the kernel when it returns, so a killed
    process loses nothing that was appended; `close` writes the end marker and syncs to disk.

    Raises RecordError when the files exist already (a run is written once) or cannot be written (disk full).
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._samples = StreamFile(directory / SAMPLES_FILE, SAMPLE_SCHEMA)
        self._gaps = StreamFile(directory / GAPS_FILE, GAP_SCHEMA)

    def append(self, batch: SampleBatch) -> None:
        if len(batch.samples) or len(batch.gaps):
            self._samples.append(_columns(batch.samples))
            self._gaps.append(_columns(batch.gaps))

    def close(self) -> None:
        self._samples.close()
        self._gaps.close()

    def __enter__(self) -> SampleWriter:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def read_batches(
    directory: Path,
    *,
    follow: bool = False,
    finished: Callable[[], bool] | None = None,
    on_incomplete: Callable[[str], None] | None = None,
    poll_seconds: float = 0.2,
) -> Iterator[SampleBatch]:
    """Yield the samples of a run in the order of writing, holding one batch in memory at a time.

    With `follow` the files may still be growing: batches are yielded as they come, until the end marker is
    seen or `finished()` says that no writer is left. Without it the files are read once and small batches
    joined. A file without its end marker is read as far as it is whole, and that is reported: to
    `on_incomplete`, or as an IncompleteRecordWarning. Bytes in the middle that are not Arrow, and other
    versions, raise RecordError.
    """
    report = on_incomplete or warn_incomplete
    done = (finished or (lambda: False)) if follow else (lambda: True)
    samples = StreamReader(directory / SAMPLES_FILE, SAMPLE_SCHEMA, done, poll_seconds)
    gaps = StreamReader(directory / GAPS_FILE, GAP_SCHEMA, done, poll_seconds)
    try:
        yield from _batches(samples, gaps, 1 if follow else _ROWS_PER_READ)
    finally:
        samples.close()
        gaps.close()
    for reader in (samples, gaps):
        if reader.incomplete:
            report(reader.incomplete)


def warn_incomplete(message: str) -> None:
    """Tell a caller who did not ask to be told otherwise."""
    warnings.warn(message, IncompleteRecordWarning, stacklevel=4)


def _columns(rows: Rows) -> list[pa.Array]:
    return [pa.array(np.ascontiguousarray(rows[name])) for name in rows.dtype.names or ()]


def _rows(batches: list[pa.RecordBatch], dtype: np.dtype[np.void]) -> Rows:
    rows = np.empty(sum(batch.num_rows for batch in batches), dtype)
    start = 0
    for batch in batches:
        part = rows[start : start + batch.num_rows]
        start += batch.num_rows
        for name, column in zip(dtype.names or (), batch.columns, strict=True):
            part[name] = column.to_numpy()
    return rows


def _batches(samples: StreamReader, gaps: StreamReader, at_least: int) -> Iterator[SampleBatch]:
    """Pairs of the two files, joined until they hold `at_least` rows."""
    more = True
    while more:
        held: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])
        rows = 0
        while more and rows < at_least:
            pair = samples.next_batch(), gaps.next_batch()
            more = any(batch is not None for batch in pair)
            for batch, batches in zip(pair, held, strict=True):
                if batch is not None:
                    batches.append(batch)
                    rows += batch.num_rows
        if rows:
            yield SampleBatch(_rows(held[0], SAMPLE_DTYPE), _rows(held[1], GAP_DTYPE))
