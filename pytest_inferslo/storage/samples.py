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
        pairs = _pairs(samples, gaps)
        yield from (pairs if follow else _joined(pairs))
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


def _rows(batch: pa.RecordBatch | None, dtype: np.dtype[np.void]) -> Rows:
    if batch is None:
        return np.empty(0, dtype)
    rows = np.empty(batch.num_rows, dtype)
    for name, column in zip(dtype.names or (), batch.columns, strict=True):
        rows[name] = column.to_numpy()
    return rows


def _pairs(samples: StreamReader, gaps: StreamReader) -> Iterator[SampleBatch]:
    while True:
        sample_batch, gap_batch = samples.next_batch(), gaps.next_batch()
        if sample_batch is None and gap_batch is None:
            return
        yield SampleBatch(_rows(sample_batch, SAMPLE_DTYPE), _rows(gap_batch, GAP_DTYPE))


def _joined(batches: Iterator[SampleBatch]) -> Iterator[SampleBatch]:
    held: list[SampleBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += len(batch.samples) + len(batch.gaps)
        if rows >= _ROWS_PER_READ:
            yield held[0] if len(held) == 1 else SampleBatch.concatenate(held)
            held, rows = [], 0
    if held:
        yield SampleBatch.concatenate(held)
