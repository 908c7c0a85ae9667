"""Prompts that share what a trace's prompts shared: equal hash ids are equal blocks of text."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pytest_inferslo.core import fields, seeds
from pytest_inferslo.core.prompts.source import Prompt, hash_of
from pytest_inferslo.core.prompts.text import TOKENS_PER_WORD, Salts, TokenCounts, text_of
from pytest_inferslo.core.prompts.words import WORDS

#: Tokens of a block in the Mooncake traces; the last block of a prompt is what is left of its length.
BLOCK_TOKENS = 512


@dataclass(frozen=True)
class BlockPrompts:
    """Made by `Trace.prompts()`: `block_ids` (int64) row after row, `block_counts` (int32) per row, packed."""

    kind: ClassVar[str] = "blocks"
    block_ids: bytes
    block_counts: bytes
    tokens_per_word: float = TOKENS_PER_WORD
    tokenizer: TokenCounts | None = None

    def __post_init__(self) -> None:
        fields.number("tokens_per_word", self.tokens_per_word, above=True, most=64)
        fields.instance(
            "tokenizer", self.tokenizer, (TokenCounts, type(None)), "tokenizer('…/tokenizer.json')"
        )

    @property
    def reuse(self) -> bool:
        return True

    def source(self, seed: int, run: str = "") -> BlockSource:
        return BlockSource(self, seed, run)


class BlockSource:
    """Prompts of one run (see `PromptSource`): request k has the blocks of the trace's row k.

    What the trace repeats repeats here, in the warm-up too.
    """

    def __init__(self, prompts: BlockPrompts, seed: int, run: str) -> None:
        counts = np.frombuffer(zlib.decompress(prompts.block_counts), "<i4")
        self._ends = np.cumsum(counts)
        self._ids = np.frombuffer(zlib.decompress(prompts.block_ids), "<i8")
        costs: tuple[float, ...] = (prompts.tokens_per_word,) * len(WORDS)
        first = costs
        if prompts.tokenizer is not None:
            costs = tuple(float(count) for count in prompts.tokenizer.counts)
            first = prompts.tokenizer.first
        self._start = seeds.key(seed, "words")
        self._text = text_of(seed, costs)
        self._salts = Salts(seeds.key(seed, f"block/{run}"), costs, first)

    def prompt(
        self,
        index: int,
        *,
        warm_up: bool = False,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> Prompt:
        row = index % len(self._ends)
        blocks = self._ids[self._ends[row - 1] if row else 0 : self._ends[row]].tolist()
        asked = BLOCK_TOKENS * len(blocks) if input_tokens is None else input_tokens
        parts: list[str] = []
        for place, block in enumerate(blocks):
            last = place == len(blocks) - 1
            room = asked - BLOCK_TOKENS * place if last else min(BLOCK_TOKENS, asked - BLOCK_TOKENS * place)
            if room <= 0:
                break
            parts.append(self._block(block, room, opens=place == 0))
        text = " ".join(parts)
        messages = [{"role": "user", "content": text}]
        return Prompt(messages, text, (text,), output_tokens or 1, asked, hash_of(text), index, 0)

    def _block(self, block: int, tokens: int, *, opens: bool) -> str:
        salt, cost = self._salts.at(block, opens=opens)
        if tokens < cost + 1:
            return " ".join(salt.split()[:tokens])
        return f"{salt} {self._text.words(seeds.mixed(self._start, block), tokens - cost)}"
