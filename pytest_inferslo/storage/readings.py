"""Telemetry on disk: `telemetry.arrow`, an Arrow IPC stream of readings.

Columns: time (int64, ns since the run's epoch, negative while idle), phase, metric, source (strings), value
(float64, base unit of the metric). It grows batch by batch and, like the samples, is readable after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from pytest_inferslo.core.readings import Reading
from pytest_inferslo.storage.arrow_stream import StreamFile, StreamReader, versioned
from pytest_inferslo.storage.samples import warn_incomplete

TELEMETRY_FILE = "telemetry.arrow"

_FIELDS = {
    "time": pa.int64(),
    "phase": pa.string(),
    "metric": pa.string(),
    "source": pa.string(),
    "value": pa.float64(),
}
READING_SCHEMA = versioned([pa.field(name, kind, nullable=False) for name, kind in _FIELDS.items()])


class ReadingWriter:
    """Appends readings to a run directory; each append has reached the kernel when it returns."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = StreamFile(directory / TELEMETRY_FILE, READING_SCHEMA)

    def append(self, readings: Sequence[Reading]) -> None:
        if readings:
            self._file.append(
                [pa.array([getattr(r, name) for r in readings], kind) for name, kind in _FIELDS.items()]
            )

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> ReadingWriter:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def read_readings(
    directory: Path, *, on_incomplete: Callable[[str], None] | None = None
) -> Iterator[list[Reading]]:
    """Yield the readings of a run, some at a time, in the order of writing.

    A file that was not closed is read as far as it is whole, and reported as by read_batches. A missing file,
    a damaged one or another version raises RecordError.
    """
    reader = StreamReader(directory / TELEMETRY_FILE, READING_SCHEMA, lambda: True)
    try:
        while (batch := reader.next_batch()) is not None:
            columns = [column.to_pylist() for column in batch.columns]
            yield [Reading(*row) for row in zip(*columns, strict=True)]
    finally:
        reader.close()
    if reader.incomplete:
        (on_incomplete or warn_incomplete)(reader.incomplete)
