"""Prompts of a file, which travel with the scenario."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pytest_inferslo.core import fields, seeds
from pytest_inferslo.core.prompts.lengths import KINDS as LENGTHS
from pytest_inferslo.core.prompts.lengths import Lengths
from pytest_inferslo.core.prompts.source import Prompt, flat, hash_of
from pytest_inferslo.core.prompts.text import Salts
from pytest_inferslo.core.prompts.words import WORDS

#: Without unique salts, one row in ten serves the warm-up and no measured request.
_WARM_UP_SHARE = 10
_ONES = (1.0,) * len(WORDS)


#: Chat messages, and the tokens of the answer where the file says them.
Row = tuple[list[dict[str, Any]], int | None]


@dataclass(frozen=True)
class Dataset:
    """See `dataset`. `content` is the rows, JSON compressed: [messages, output tokens or null] each."""

    kind: ClassVar[str] = "dataset"
    file: str
    sha256: str
    rows: int
    content: bytes
    output_tokens: Lengths | None
    unique: bool = True

    def __post_init__(self) -> None:
        fields.flag("unique", self.unique)
        fields.instance(
            "output_tokens", self.output_tokens, (*LENGTHS, type(None)), "a length or a distribution"
        )
        if not self.unique and self.rows < 2:
            raise fields.refuse(
                "unique", self.unique, "one row cannot serve the warm-up and the window apart"
            )

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        output_tokens: Lengths | None,
        *,
        file: str,
        sha256: str,
        unique: bool,
    ) -> Dataset:
        """Raises ScenarioError when there is no row, or nothing says how long its answer may be."""
        if not rows:
            raise fields.refuse("path", file, "the file has no prompt that can be used")
        if output_tokens is None and any(limit is None for _, limit in rows):
            raise fields.refuse(
                "output_tokens", None, f"rows of {file} do not say it; accepted: 128, (16, 64), ..."
            )
        content = zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), 6)
        return cls(file, sha256, len(rows), content, output_tokens, unique)

    @property
    def reuse(self) -> bool:
        return not self.unique

    def unpacked(self) -> list[Row]:
        return [(messages, limit) for messages, limit in json.loads(zlib.decompress(self.content))]

    def source(self, seed: int, run: str = "") -> DatasetSource:
        return DatasetSource(self, seed, run)


class DatasetSource:
    """Prompts of one run (see `PromptSource`): every row once, in random order, before any comes again."""

    def __init__(self, dataset: Dataset, seed: int, run: str) -> None:
        rows = dataset.unpacked()
        apart = 0 if dataset.unique else max(1, len(rows) // _WARM_UP_SHARE)
        self._measured, self._warm_up = rows[apart:], rows[:apart] or rows
        self._lengths, self._unique = dataset.output_tokens, dataset.unique
        self._order, self._out = seeds.key(seed, "rows"), seeds.key(seed, "output tokens")
        self._salts = Salts(seeds.key(seed, f"salt/{run}"), _ONES, _ONES)

    def prompt(
        self,
        index: int,
        *,
        warm_up: bool = False,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> Prompt:
        rows = self._warm_up if warm_up else self._measured
        place = self._place(index, len(rows))
        messages, limit = rows[place]
        if self._unique:
            messages = [_salted(messages[0], self._salts.at(index)[0]), *messages[1:]]
        if output_tokens is not None:
            limit = output_tokens
        elif self._lengths is not None:
            limit = self._lengths.at(seeds.uniform(self._out, index))
        text = flat(messages)
        return Prompt(messages, text, (text,), limit or 1, 0, hash_of(json.dumps(messages)), index, 0)

    def _place(self, index: int, count: int) -> int:
        """A permutation of the rows for each pass over them: x -> (a x + b) mod count, a prime to count."""
        turn, x = divmod(index, count)
        a = seeds.mixed(self._order, 2 * turn) % count or 1
        while math.gcd(a, count) != 1:
            a += 1
        return (a * x + seeds.mixed(self._order, 2 * turn + 1)) % count


def _salted(message: dict[str, Any], salt: str) -> dict[str, Any]:
    """The message with the salt on a line of its own before it: no cached beginning fits."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": f"{salt}\n{content}"}
    return {**message, "content": [{"type": "text", "text": salt}, *content]}
