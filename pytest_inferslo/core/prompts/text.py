"""Text of a wanted number of tokens, quickly: slices of one long random text, cut at words."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import ClassVar

from pytest_inferslo.core import fields, seeds
from pytest_inferslo.core.prompts.words import WORDS

#: Words of the long text; a prompt starts at a random one of them and wraps around.
_LONG = 1 << 14
_BITS = len(WORDS).bit_length() - 1
#: Words of a salt: 512^4 = 68.7 thousand million different ones.
SALT_WORDS = 4
SALTS = 1 << (_BITS * SALT_WORDS)

#: Tokens that a word of the vocabulary costs where no tokenizer was measured. Every one of them is one token
#: for Llama 2, Llama 3.1, Qwen3, Gemma 3, DeepSeek V3 and gpt-oss.
TOKENS_PER_WORD = 1.0


@dataclass(frozen=True)
class TokenCounts:
    """What each word of the vocabulary costs in one tokenizer: after a space, and as `first` of a text.

    Byte-pair and unigram tokenizers split text at spaces first, so counts of words add up to the count of
    their text.
    """

    kind: ClassVar[str] = "token_counts"
    name: str
    counts: tuple[int, ...]
    first: tuple[int, ...]

    def __post_init__(self) -> None:
        for field, counts in (("counts", self.counts), ("first", self.first)):
            if len(counts) != len(WORDS) or min(counts) < 1:
                raise fields.refuse(field, counts[:8], f"accepted: {len(WORDS)} whole numbers from 1")


class Text:
    """Words by seed. `words(start, tokens)` costs two slices, however long it is."""

    def __init__(self, seed: int, counts: tuple[float, ...]) -> None:
        random = seeds.generator(seed, 1)
        picked = random.integers(0, len(WORDS), _LONG).tolist()
        words = [WORDS[i] for i in picked]
        self._text = " ".join(words) + " "
        self._offsets = [0, *accumulate(len(word) + 1 for word in words)]
        self._tokens = [0.0, *accumulate(counts[i] for i in picked)]
        cheapest = min(range(len(WORDS)), key=lambda i: counts[i])
        self._filler, self._filler_tokens = WORDS[cheapest], counts[cheapest]

    def words(self, start: int, tokens: float) -> str:
        """Whole words from word `start` on that cost `tokens`, filled up with the cheapest word."""
        start %= _LONG
        before = self._tokens[start]
        rounds, rest = divmod(before + tokens, self._tokens[-1])
        stop = bisect_right(self._tokens, rest + 1e-9) - 1
        if rounds == 0:
            text = self._text[self._offsets[start] : self._offsets[stop]]
        else:
            text = (
                self._text[self._offsets[start] :]
                + self._text * (int(rounds) - 1)
                + self._text[: self._offsets[stop]]
            )
        missing = round((rest - self._tokens[stop]) / self._filler_tokens)
        return (text + f"{self._filler} " * missing)[:-1]


@lru_cache(maxsize=8)
def text_of(seed: int, counts: tuple[float, ...]) -> Text:
    return Text(seed, counts)


class Salts:
    """A different text for every index below `SALTS`: odd factors modulo a power of two are bijections."""

    def __init__(self, key: int, counts: tuple[float, ...], first: tuple[float, ...]) -> None:
        self._odd = key | 1
        self._shift = seeds.mixed(key, 0)
        self._counts, self._first = counts, first

    def at(self, index: int, *, opens: bool = True) -> tuple[str, float]:
        """The salt of `index` and its cost, where it `opens` the text. Neighbours differ in word one."""
        value = (index * self._odd + self._shift) % SALTS
        mask, counts = len(WORDS) - 1, self._counts
        a, b, c, d = value & mask, value >> _BITS & mask, value >> 2 * _BITS & mask, value >> 3 * _BITS
        return f"{WORDS[a]} {WORDS[b]} {WORDS[c]} {WORDS[d]}", (self._first if opens else counts)[a] + counts[
            b
        ] + counts[c] + counts[d]
