"""Prompts made of common words, by length: unique, with a shared prefix, or as conversations."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from pytest_inferslo.core import fields, seeds
from pytest_inferslo.core.prompts.lengths import KINDS as LENGTHS
from pytest_inferslo.core.prompts.lengths import Lengths, lengths
from pytest_inferslo.core.prompts.source import Prompt, flat, hash_of
from pytest_inferslo.core.prompts.text import SALT_WORDS, SALTS, TOKENS_PER_WORD, Salts, TokenCounts, text_of
from pytest_inferslo.core.prompts.words import WORDS

#: Different prompts of a scenario that repeats them (`unique=False`).
_POOL = 1024


@dataclass(frozen=True)
class Synthetic:
    """See `synthetic`."""

    kind: ClassVar[str] = "synthetic"
    input_tokens: Lengths
    output_tokens: Lengths
    unique: bool = True
    pool: int = _POOL
    shared_prefix: float = 0.0
    prefixes: int = 1
    turns: int = 1
    sessions: int = 1
    batch: int = 1
    tokens_per_word: float = TOKENS_PER_WORD
    tokenizer: TokenCounts | None = None

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens"):
            fields.instance(name, getattr(self, name), LENGTHS, "a length or a distribution of lengths")
        fields.flag("unique", self.unique)
        for name in ("pool", "prefixes", "turns", "sessions", "batch"):
            fields.whole(name, getattr(self, name))
        fields.number("shared_prefix", self.shared_prefix, most=1.0)
        fields.number("tokens_per_word", self.tokens_per_word, above=True, most=64)
        fields.instance(
            "tokenizer", self.tokenizer, (TokenCounts, type(None)), "tokenizer('…/tokenizer.json')"
        )
        if self.turns > 1 and self.batch > 1:
            raise fields.refuse(
                "batch", self.batch, "a conversation has one input; accepted: 1 with turns > 1"
            )
        self._check_salt()

    def _check_salt(self) -> None:
        salt = math.ceil(SALT_WORDS * max(self.counts))
        shortest = self.input_tokens.least * (1 - self.shared_prefix)
        if self.unique and shortest < salt:
            raise fields.refuse(
                "input_tokens",
                self.input_tokens,
                f"a unique prompt needs {salt} tokens of its own, the shortest one has {shortest:g}; make"
                " prompts longer, shared_prefix smaller, or set unique=False",
            )

    @property
    def counts(self) -> tuple[float, ...]:
        """Tokens of each word of the vocabulary."""
        return self.tokenizer.counts if self.tokenizer else (self.tokens_per_word,) * len(WORDS)

    @property
    def first(self) -> tuple[float, ...]:
        """The same for a word that opens a text."""
        return self.tokenizer.first if self.tokenizer else self.counts

    @property
    def reuse(self) -> bool:
        return not self.unique or self.shared_prefix > 0 or self.turns > 1

    def source(self, seed: int, run: str = "") -> SyntheticSource:
        return SyntheticSource(self, seed, run)


def synthetic(
    input_tokens: int | tuple[int, int] | Lengths = 128,
    output_tokens: int | tuple[int, int] | Lengths = 16,
    *,
    unique: bool = True,
    pool: int | None = None,
    shared_prefix: float = 0.0,
    prefixes: int | None = None,
    turns: int = 1,
    sessions: int | None = None,
    batch: int = 1,
    tokens_per_word: float = TOKENS_PER_WORD,
    tokenizer: TokenCounts | None = None,
) -> Synthetic:
    """Prompts of common English words.

    input_tokens, output_tokens: a number, a pair (uniform), or `uniform`, `normal`, `lognormal`, `zipf`
    unique: each prompt begins with a salt of its own, so that no cache has seen it; without it `pool`
        different prompts repeat in random order
    shared_prefix: the share of each prompt, 0 to 1, that is the beginning of one of `prefixes` common
        texts; the rest stays unique
    turns: requests of a conversation, of which `sessions` go on side by side; turn k carries all earlier
        questions and answers, and `input_tokens` is the length of each question
    batch: texts of an embeddings request
    tokenizer: `tokenizer("…/tokenizer.json")` makes lengths exact; without one a word counts
        `tokens_per_word`. The tokens of a chat template come on top.

    `pool` (1,024 by itself), `prefixes` (1) and `sessions` (64) belong to what needs them, and are refused elsewhere.

    Raises ScenarioError.
    """
    for name, value, needed, needs in (
        ("pool", pool, not unique, "unique=False"),
        ("prefixes", prefixes, shared_prefix != 0, "a shared_prefix"),
        ("sessions", sessions, turns != 1, "turns over 1"),
    ):
        if value is not None and not needed:
            raise fields.refuse(name, value, f"it has no effect without {needs}; leave it out")
    return Synthetic(
        lengths("input_tokens", input_tokens),
        lengths("output_tokens", output_tokens),
        unique,
        _POOL if pool is None else pool,
        shared_prefix,
        1 if prefixes is None else prefixes,
        turns,
        (64 if sessions is None else sessions) if turns > 1 else 1,
        batch,
        tokens_per_word,
        tokenizer,
    )


class SyntheticSource:
    """Prompts of one run. See `PromptSource`."""

    def __init__(self, prompts: Synthetic, seed: int, run: str) -> None:
        self._prompts = prompts
        self._in, self._out, self._start, self._choice = (
            seeds.key(seed, purpose) for purpose in ("input tokens", "output tokens", "words", "repeats")
        )
        counts = tuple(float(count) for count in prompts.counts)
        self._text = text_of(seed, counts)
        self._salts = Salts(seeds.key(seed, f"salt/{run}"), counts, prompts.first)
        self._prefix_salts = Salts(seeds.key(seed, f"prefix/{run}"), counts, prompts.first)

    def prompt(
        self,
        index: int,
        *,
        warm_up: bool = False,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> Prompt:
        prompts = self._prompts
        if not prompts.unique:
            index = self._repeated(index, warm_up)
        if prompts.turns > 1:
            return self._turn(index, input_tokens, output_tokens)
        asked = (
            prompts.input_tokens.at(seeds.uniform(self._in, index)) if input_tokens is None else input_tokens
        )
        limit = (
            prompts.output_tokens.at(seeds.uniform(self._out, index))
            if output_tokens is None
            else output_tokens
        )
        text = self._body(index * prompts.batch, asked)
        messages = [{"role": "user", "content": text}]
        if prompts.batch == 1:
            return Prompt(messages, text, (text,), limit, asked, hash_of(text), index, 0)
        inputs = (text, *(self._body(index * prompts.batch + i, asked) for i in range(1, prompts.batch)))
        return Prompt(
            messages, text, inputs, limit, asked * prompts.batch, hash_of("\n".join(inputs)), index, 0
        )

    def _repeated(self, index: int, warm_up: bool) -> int:
        """Which of the pool; the warm-up has a pool of its own."""
        pool = self._prompts.pool
        return seeds.mixed(self._choice, index) % pool + (pool if warm_up else 0)

    def _body(self, number: int, tokens: int) -> str:
        """The common prefix, the salt, then words: `tokens` together."""
        shared = int(tokens * self._prompts.shared_prefix)
        salt, cost = self._salts.at(number, opens=not shared)
        start = seeds.mixed(self._start, number)
        own = tokens - shared - cost
        if own >= 1:
            salt = f"{salt} {self._text.words(start, own)}"
        elif not self._prompts.unique:
            salt = _first_words(salt, tokens - shared)
        return f"{self._prefix(number, shared)} {salt}".rstrip() if shared else salt

    def _prefix(self, number: int, tokens: int) -> str:
        which = seeds.mixed(self._choice, number) % self._prompts.prefixes
        salt, cost = self._prefix_salts.at(which)
        start = seeds.mixed(self._start, SALTS + which)
        if tokens < cost + 1:
            return _first_words(salt, tokens)
        return f"{salt} {self._text.words(start, tokens - cost)}"

    def _turn(self, index: int, input_tokens: int | None, output_tokens: int | None) -> Prompt:
        """Conversations interleave: a session's next turn comes `sessions` requests after its last one."""
        prompts = self._prompts
        block, place = divmod(index, prompts.turns * prompts.sessions)
        turn, lane = divmod(place, prompts.sessions)
        session = block * prompts.sessions + lane
        messages: list[dict[str, Any]] = []
        asked = 0
        for step in range(turn + 1):
            number = session * prompts.turns + step
            question = prompts.input_tokens.at(seeds.uniform(self._in, number))
            answer = prompts.output_tokens.at(seeds.uniform(self._out, number))
            if step == turn:
                question = question if input_tokens is None else input_tokens
                answer = answer if output_tokens is None else output_tokens
            messages.append({"role": "user", "content": self._body(number, question)})
            asked += question
            if step < turn:
                said = self._text.words(seeds.mixed(self._start, number) >> 20, answer)
                messages.append({"role": "assistant", "content": said})
                asked += answer
        text = flat(messages)
        return Prompt(messages, text, (text,), answer, asked, hash_of(json.dumps(messages)), session, turn)


def _first_words(salt: str, count: int) -> str:
    return " ".join(salt.split()[:count])
