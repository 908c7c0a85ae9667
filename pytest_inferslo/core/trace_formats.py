"""Recorded traces of requests, read line by line.

    format    where it comes from                   one row
    plain     anyone (CSV)                          timestamp,input_tokens,output_tokens (seconds)
    mooncake  Mooncake, FAST '25 (JSON lines)       timestamp (ms), input_length, output_length, hash_ids
    azure     Azure LLM inference, 2023 and 2024    TIMESTAMP,ContextTokens,GeneratedTokens (date and time)
    burstgpt  BurstGPT (CSV)                        Timestamp,...,Request tokens,Response tokens,... (seconds)

Times count from the first request. Further columns are allowed and ignored. A fault names file and line.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pytest_inferslo.core import fields
from pytest_inferslo.core.arrivals.trace import Row
from pytest_inferslo.errors import ScenarioError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Format:
    """The columns of a format, and how its time becomes ns. A file that has the columns is of the format."""

    time: str
    input: str
    output: str
    to_ns: Callable[[Any], int]

    @property
    def columns(self) -> tuple[str, str, str]:
        return self.time, self.input, self.output


def _scaled(factor: int) -> Callable[[Any], int]:
    def to_ns(value: Any) -> int:
        number = float(value)
        if isinstance(value, bool) or not math.isfinite(number):
            raise ValueError(value)
        return round(number * factor)

    return to_ns


def _date_to_ns(value: Any) -> int:
    """`2023-11-16 18:17:03.9799600`, in UTC where it has no offset; its steps of 100 ns survive."""
    text = str(value).strip()
    when = datetime.fromisoformat(text)
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    whole = when.replace(microsecond=0) - _EPOCH
    fraction = text.partition(".")[2]
    digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
    return (whole.days * 86400 + whole.seconds) * 10**9 + int(digits[:9].ljust(9, "0"))


FORMATS: dict[str, Format] = {
    "plain": Format("timestamp", "input_tokens", "output_tokens", _scaled(10**9)),
    "mooncake": Format("timestamp", "input_length", "output_length", _scaled(10**6)),
    "azure": Format("TIMESTAMP", "ContextTokens", "GeneratedTokens", _date_to_ns),
    "burstgpt": Format("Timestamp", "Request tokens", "Response tokens", _scaled(10**9)),
}


def parse_trace(lines: Iterable[str], file: str, format: str = "auto") -> Iterator[Row]:
    """The rows of a trace. `format` is one of FORMATS, or `auto`: by the columns. Raises ScenarioError."""
    fields.one_of("format", format, ("auto", *FORMATS))
    numbered = ((n, line) for n, line in enumerate(lines, 1) if line.strip())
    first = next(numbered, None)
    if first is None:
        raise ScenarioError(f"{file}: the trace is empty; expected rows of {_accepted()}")
    line, text = first
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("{"):
        yield from _json_rows(line, text, numbered, file, format)
    else:
        yield from _csv_rows(line, text, numbered, file, format)


def _json_rows(
    line: int, text: str, rest: Iterator[tuple[int, str]], file: str, format: str
) -> Iterator[Row]:
    chosen: Format | None = None
    while True:
        try:
            record = json.loads(text)
        except ValueError as error:
            raise ScenarioError(f"{file}:{line}: not a JSON object: {error}") from None
        if not isinstance(record, dict):
            raise ScenarioError(f"{file}:{line}: {text.strip()[:60]!r} is not a JSON object")
        chosen = chosen or _recognised(tuple(record), file, line, format)
        missing = [column for column in chosen.columns if column not in record]
        if missing:
            raise ScenarioError(f"{file}:{line}: {', '.join(missing)} is missing in this row")
        row = _row(chosen, [record[column] for column in chosen.columns], file, line)
        yield (*row, _blocks(record, file, line)) if "hash_ids" in record else row
        try:
            line, text = next(rest)
        except StopIteration:
            return


def _csv_rows(line: int, text: str, rest: Iterator[tuple[int, str]], file: str, format: str) -> Iterator[Row]:
    header = [name.strip() for name in next(csv.reader([text]))]
    chosen = _recognised(tuple(header), file, line, format)
    places = [header.index(column) for column in chosen.columns]
    for line, text in rest:
        cells = next(csv.reader([text]))
        if len(cells) != len(header):
            raise ScenarioError(f"{file}:{line}: {len(cells)} cells, the header has {len(header)}")
        yield _row(chosen, [cells[place] for place in places], file, line)


def _recognised(columns: tuple[str, ...], file: str, line: int, format: str) -> Format:
    candidates = FORMATS if format == "auto" else {format: FORMATS[format]}
    for known in candidates.values():
        if set(known.columns) <= set(columns):
            return known
    wanted = _accepted() if format == "auto" else f"{format} ({','.join(FORMATS[format].columns)})"
    raise ScenarioError(f"{file}:{line}: the columns {', '.join(columns)} are unknown; expected {wanted}")


def _blocks(record: dict[str, Any], file: str, line: int) -> tuple[int, ...]:
    found = record["hash_ids"]
    good = isinstance(found, list) and all(type(block) is int and 0 <= block < 2**36 for block in found)
    if not good:
        raise ScenarioError(f"{file}:{line}: hash_ids is {str(found)[:60]}, expected a list of whole numbers")
    return tuple(found)


def _row(format: Format, cells: list[Any], file: str, line: int) -> tuple[int, int, int]:
    readers: tuple[Callable[[Any], int], ...] = (format.to_ns, _tokens, _tokens)
    values = []
    for column, cell, read in zip(format.columns, cells, readers, strict=True):
        try:
            values.append(read(cell))
        except (TypeError, ValueError):
            kind = "a time" if read is format.to_ns else "a whole number of tokens from 0"
            raise ScenarioError(f"{file}:{line}: {column} is {cell!r}, which is not {kind}") from None
    return values[0], values[1], values[2]


def _tokens(cell: Any) -> int:
    number = float(cell)
    if isinstance(cell, bool) or not number.is_integer() or not 0 <= number < 2**31:
        raise ValueError(cell)
    return int(number)


def _accepted() -> str:
    return "; ".join(f"{name} ({','.join(format.columns)})" for name, format in FORMATS.items())
