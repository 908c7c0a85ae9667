"""Arrivals from a trace file. Reading happens here, once; the scenario then carries the trace itself."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from pytest_inferslo.core import fields
from pytest_inferslo.core.arrivals import Trace
from pytest_inferslo.core.arrivals.trace import Row
from pytest_inferslo.core.fields import Rate, Seconds
from pytest_inferslo.core.trace_formats import parse_trace
from pytest_inferslo.errors import ScenarioError


def trace(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    start: Seconds = 0.0,
    length: Seconds | None = None,
    time_scale: float = 1.0,
    rate_scale: float = 1.0,
    rate: Rate | None = None,
) -> Trace:
    """Replays a recorded trace, with its token counts per request.

    `format`: `plain`, `mooncake`, `azure`, `burstgpt`, or `auto` (by the columns). `start`, `length`: the
    part of the trace to replay, in the trace's own time. `time_scale=0.5` plays it twice as fast;
    `rate_scale=2` sends twice as many requests in the same time; `rate="50/s"` chooses that scale for a mean
    rate. A relative `path` starts at the working directory. Raises ScenarioError with file and line.
    """
    file = Path(path)
    rows, sha256 = _read(file, format, start, length)
    replay = Trace.of(rows, source=str(path), sha256=sha256, time_scale=time_scale, rate_scale=rate_scale)
    if rate is None:
        return replay
    if rate_scale != 1.0:
        raise fields.refuse("rate", rate, f"accepted: either rate or rate_scale={rate_scale:g}")
    mean = len(replay.times) / (replay.length or 1.0)
    wanted = fields.rate("rate", rate) / mean
    return Trace.of(rows, source=str(path), sha256=sha256, time_scale=time_scale, rate_scale=wanted)


def _read(file: Path, format: str, start: Seconds, length: Seconds | None) -> tuple[list[Row], str]:
    """The rows of the wanted part, and the SHA-256 of what was read for them."""
    first = round(fields.seconds("start", start, zero=True) * 1e9)
    last = None if length is None else first + round(fields.seconds("length", length) * 1e9)
    digest = hashlib.sha256()

    def lines() -> Iterator[str]:
        with file.open("rb") as source:
            for line in source:
                digest.update(line)
                yield line.decode("utf-8", errors="replace")

    rows: list[Row] = []
    zero: int | None = None
    try:
        for row in parse_trace(lines(), str(file), format):
            zero = row[0] if zero is None else zero
            if last is not None and row[0] - zero >= last:
                break
            if row[0] - zero >= first:
                rows.append(row)
    except OSError as error:
        raise ScenarioError(f"{file}: the trace cannot be read: {error.strerror}") from None
    if not rows:
        raise fields.refuse("start", start, f"{file} has no request in this part")
    return rows, digest.hexdigest()
