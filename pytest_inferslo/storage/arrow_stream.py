"""One Arrow IPC stream file: appended to message by message, and read as far as it is whole."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from pytest_inferslo.errors import RecordError

SCHEMA_VERSION = 1

_BUFFER_BYTES = 1 << 20
_CONTINUATION = b"\xff\xff\xff\xff"
_END_OF_STREAM = _CONTINUATION + b"\0\0\0\0"
_VERSION_KEY = b"inferslo.schema_version"


def versioned(fields: list[pa.Field]) -> pa.Schema:
    """An Arrow schema stamped with SCHEMA_VERSION."""
    return pa.schema(fields, metadata={_VERSION_KEY: str(SCHEMA_VERSION)})


class StreamFile:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        if path.exists():
            raise RecordError(f"{path} exists already: a run is recorded once; give each its own directory")
        self._path, self._schema = path, schema
        try:
            # Each message reaches the file as one write, by the explicit flush of append.
            self._sink = pa.output_stream(str(path), compression=None, buffer_size=_BUFFER_BYTES)
            options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
            self._writer = pa.ipc.new_stream(self._sink, schema, options=options)
            self._sink.flush()
        except OSError as error:
            raise self._failure(error) from error

    def append(self, columns: list[pa.Array]) -> None:
        """Write one record batch; it has reached the kernel when this returns."""
        try:
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            self._sink.flush()
        except OSError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        if self._sink.closed:
            return
        try:
            self._writer.close()
            self._sink.close()
            with self._path.open("rb") as written:
                os.fsync(written.fileno())
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> RecordError:
        return RecordError(
            f"{self._path}: cannot be written ({error}); free some space or choose another directory"
        )


class StreamReader:
    """Reads batch by batch, so that a growing or cut file is read up to its last whole one.

    `finished` says whether no writer is left; while it says no, the end of the file is waited out.
    """

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        finished: Callable[[], bool],
        poll_seconds: float = 0.2,
    ) -> None:
        self._path, self._schema = path, schema
        self._finished, self._poll_seconds = finished, poll_seconds
        self._file: pa.NativeFile | None = None
        self._reader: pa.RecordBatchStreamReader | None = None
        self._offset = 0  # behind the last whole message
        self._batches = 0
        self._ended = False
        self._last_look = False
        #: why the file is not complete, once it has been read to its end
        self.incomplete: str | None = None

    def next_batch(self) -> pa.RecordBatch | None:
        """The next batch, or None at the end. The first call checks the schema."""
        while not self._ended:
            # Asked before the read: what a writer left just before it finished is then still found.
            self._last_look = self._finished()
            batch = self._try_batch()
            if batch is not None:
                self._batches += 1
                return batch
            if self._last_look and not self._ended:
                self._ended = True
                self.incomplete = (
                    f"{self._path} ends without its end marker, after {self._batches} whole batches: its "
                    "writer was killed or is still running; what came later is not in any figure"
                )
            elif not self._ended:
                time.sleep(self._poll_seconds)
        return None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _try_batch(self) -> pa.RecordBatch | None:
        """A batch; or None, with `_ended` set at the end marker, when no whole one is there yet."""
        try:
            if self._reader is None and not self._open():
                return None
            assert self._reader is not None
            assert self._file is not None
            batch = self._reader.read_next_batch()
            self._offset = self._file.tell()
        except (StopIteration, pa.ArrowInvalid, OSError) as error:
            self._reader = None
            self._check_tail(error)
            return None
        return batch

    def _open(self) -> bool:
        """Read the schema, and go on behind what was read before; False when the file is not there yet."""
        if self._file is None:
            if not self._path.exists():
                return self._absent()
            self._file = pa.OSFile(str(self._path))
        self._file.seek(0)
        # Threads per buffer cost more than they save on batches of this size.
        self._reader = pa.ipc.open_stream(self._file, options=pa.ipc.IpcReadOptions(use_threads=False))
        if self._offset:
            self._file.seek(self._offset)
        else:
            self._check_schema(self._reader.schema)
            self._offset = self._file.tell()
        return True

    def _check_tail(self, error: Exception) -> None:
        """What stands where no batch could be read: the end marker, nothing whole yet, or damage."""
        assert self._file is not None
        size = self._path.stat().st_size
        self._file.seek(self._offset)
        prefix = self._file.read(8)
        if prefix == _END_OF_STREAM:
            self._ended = True
            return
        if len(prefix) < 8 or (not any(prefix) and self._only_zeros()):
            return
        if prefix[:4] != _CONTINUATION:
            raise self._damage(f"no message starts at byte {self._offset}")
        (metadata_bytes,) = struct.unpack("<i", prefix[4:])
        if metadata_bytes < 0:
            raise self._damage(f"the message at byte {self._offset} has a negative length")
        if self._offset + 8 + metadata_bytes <= size:
            self._check_cut(size, error)

    def _check_cut(self, size: int, error: Exception) -> None:
        assert self._file is not None
        self._file.seek(self._offset)
        try:
            pa.ipc.read_message(self._file)
        except (pa.ArrowInvalid, OSError, EOFError):
            # A body that is cut short was read up to the end of the file; anything else stops before it.
            if self._file.tell() >= size:
                return
        else:
            if not self._last_look or isinstance(error, StopIteration):
                return  # the writer may have finished this message between the two reads: read it again
        raise self._damage(str(error)) from error

    def _absent(self) -> bool:
        if self._last_look:
            raise RecordError(
                f"{self._path} is missing: the run ended before it wrote any, or this is no run; "
                "give the directory that holds run.json"
            )
        return False

    def _only_zeros(self) -> bool:
        """A tail of zeros is what a power cut leaves: a cut file, not a damaged one."""
        assert self._file is not None
        while block := self._file.read(_BUFFER_BYTES):
            if block.strip(b"\0"):
                return False
        return True

    def _check_schema(self, found: pa.Schema) -> None:
        version = (found.metadata or {}).get(_VERSION_KEY, b"none").decode()
        if version != str(SCHEMA_VERSION) or not found.equals(self._schema):
            raise RecordError(
                f"{self._path} has schema version {version}, this program reads version "
                f"{SCHEMA_VERSION}: judge the run with the version of pytest-inferslo that wrote it "
                "(run.json names it under `versions`)"
            )

    def _damage(self, cause: str) -> RecordError:
        return RecordError(
            f"{self._path} is damaged after {self._batches} batches: {cause}; restore the file from a "
            "copy, or measure again"
        )
