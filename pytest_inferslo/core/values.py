"""What each per-request metric is worth for the requests of a block: docs/metrics.md as arithmetic.

A metric's `Values` cover all successful rows of the block. A value may be undefined by the metric's
definition (`absent`: a one-token answer has no time per token) or untold (`unknown`: the server sent no
token counts).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.histogram import LAYOUT, Ints
from pytest_inferslo.core.metrics import METRICS
from pytest_inferslo.core.samples import Rows

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Values:
    """`values` (ns or counts) of all rows, meaningless where `known` is False; `known` None means everywhere.

    Where it is not known, `absent` tells what is undefined by definition; the rest is untold. None means
    nothing.
    """

    values: npt.NDArray[Any]
    known: Mask | None = None
    absent: Mask | None = None

    @cached_property
    def buckets(self) -> Ints:
        return LAYOUT.bucket_of(self.values)


#: Some of the rows: None means all of them, and costs nothing.
Choice = Mask | None


def both(one: Choice, other: Choice) -> Choice:
    """The rows that are in both choices."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def chosen(array: npt.NDArray[Any], choice: Choice) -> npt.NDArray[Any]:
    return array if choice is None else array[choice]


class Columns:
    """Contiguous columns of some rows, each made when it is first asked for, and the metrics over them."""

    def __init__(self, parts: Sequence[Rows], unstreamed: tuple[int, ...] = ()) -> None:
        """`unstreamed` are the numbers of the streams whose answers come in one piece."""
        self._parts = parts
        self._unstreamed = unstreamed
        self._size = sum(map(len, parts))
        self._parent: Columns | None = None
        self._rows_of_parent: Ints | None = None
        self._columns: dict[str, Ints] = {}
        self._values: dict[str, Values] = {}

    def where(self, mask: Choice) -> Columns:
        """The rows of the mask; itself where that is all of them."""
        if mask is None or mask.all():
            return self
        subset = Columns((), self._unstreamed)
        subset._parent, subset._rows_of_parent = self, np.flatnonzero(mask)
        subset._size = len(subset._rows_of_parent)
        return subset

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> Ints:
        """A column as int64."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = self._made(name)
        return column

    def _made(self, name: str) -> Ints:
        if self._parent is not None:
            return self._parent[name][self._rows_of_parent]
        if not self._parts:
            return np.empty(0, np.int64)
        return np.concatenate([part[name] for part in self._parts], dtype=np.int64)

    def metric(self, name: str) -> Values:
        values = self._values.get(name)
        if values is None:
            values = _FORMULAS[name](self)
            if METRICS[name].streaming and self._unstreamed:
                values = self._only_streamed(values)
            self._values[name] = values
        return values

    def _only_streamed(self, values: Values) -> Values:
        streamed = ~np.isin(self["stream"], self._unstreamed)
        known = streamed if values.known is None else values.known & streamed
        absent = ~streamed if values.absent is None else values.absent | ~streamed
        return Values(values.values, _unless_all(known), absent)


def _between(end: str, start: str) -> Callable[[Columns], Values]:
    def formula(rows: Columns) -> Values:
        known = rows[end] >= 0
        if start != "intended":
            known &= rows[start] >= 0
        return Values(rows[end] - rows[start], _unless_all(known))

    return formula


def _counted(column: str) -> Callable[[Columns], Values]:
    return lambda rows: Values(rows[column], _unless_all(rows[column] >= 0))


def _max_stall(rows: Columns) -> Values:
    known = (rows["max_stall"] >= 0) & (rows["chunks"] >= 2)
    return Values(rows["max_stall"], _unless_all(known), ~known)


def _tpot(rows: Columns) -> Values:
    """(last - first) / (n - 1). One event alone says nothing about the time between its tokens: absent, not 0.

    Events that all came in one read hide it too, but they bound it: no token can have waited longer than the whole
    answer since its send. (last - sent) / (n - 1) is taken there, so that bunching never makes a value better.
    """
    tokens, gaps = rows["output_tokens"], rows["output_tokens"] - 1
    absent = ((tokens >= 0) & (tokens < 2)) | ((tokens >= 0) & (rows["chunks"] < 2))
    known = (tokens >= 2) & ~absent & (rows["first"] >= 0) & (rows["last"] >= 0)
    begin = np.where(rows["first"] == rows["last"], rows["sent"], rows["first"])
    return Values((rows["last"] - begin) / np.maximum(gaps, 1), _unless_all(known), absent)


def _normalized(rows: Columns) -> Values:
    tokens = rows["output_tokens"]
    known = (tokens > 0) & (rows["last"] >= 0)
    e2e = rows["last"] - rows["intended"]
    return Values(e2e / np.maximum(tokens, 1), _unless_all(known), tokens == 0)


def _unless_all(known: Mask) -> Mask | None:
    return None if known.all() else known


_FORMULAS: dict[str, Callable[[Columns], Values]] = {
    "ttft": _between("first", "intended"),
    "service_ttft": _between("first", "sent"),
    "ttfo": _between("first_content", "intended"),
    "e2e": _between("last", "intended"),
    "service_e2e": _between("last", "sent"),
    "send_lag": _between("sent", "intended"),
    "tpot": _tpot,
    "max_stall": _max_stall,
    "normalized": _normalized,
    "output_tokens": _counted("output_tokens"),
    "prompt_tokens": _counted("prompt_tokens"),
}
