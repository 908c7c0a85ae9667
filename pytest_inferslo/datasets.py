"""Prompts from files. Reading happens here, once; the scenario then carries what was read."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from pytest_inferslo.core import fields
from pytest_inferslo.core.dataset_formats import FORMATS, Row, parse_jsonl, parse_sharegpt
from pytest_inferslo.core.prompts import Dataset, Lengths, TokenCounts
from pytest_inferslo.core.prompts.lengths import lengths
from pytest_inferslo.core.prompts.words import WORDS
from pytest_inferslo.errors import ScenarioError


def dataset(
    path: str | os.PathLike[str],
    format: str = "auto",
    *,
    output_tokens: int | tuple[int, int] | Lengths | None = None,
    unique: bool = True,
    every_turn: bool = False,
    limit: int = 10_000,
    tokens_per_word: float = 1.3,
) -> Dataset:
    """Prompts of a file: JSON lines (`prompt`, `text` or `messages`) or ShareGPT's JSON.

    `format`: `jsonl`, `sharegpt`, or `auto` (a file that begins with `[` is ShareGPT). `output_tokens`: the
    length of answers; None takes the row's `output_tokens` or `max_tokens`, and for ShareGPT the words of the
    recorded answer x `tokens_per_word`. `unique` puts a salt of four words before each prompt, so that no
    cache has seen it; without it prompts are sent as they stand and come again when all were used, with a
    tenth of them kept for the warm-up.
    `every_turn`: each question of a conversation with what was said before, not the first alone. `limit`: the
    first prompts to use; they travel to the workers in the scenario. A relative `path` starts at the working
    directory. Raises ScenarioError with file and line.
    """
    fields.one_of("format", format, FORMATS)
    fields.whole("limit", limit)
    fields.number("tokens_per_word", tokens_per_word, above=True)
    content = _content(Path(path))
    text = content.decode("utf-8", errors="replace").removeprefix("\ufeff")
    known = format if format != "auto" else ("sharegpt" if text.lstrip().startswith("[") else "jsonl")
    parsed: Iterator[Row] = (
        parse_sharegpt(text, str(path), every_turn=every_turn)
        if known == "sharegpt"
        else parse_jsonl(text.split("\n"), str(path))
    )
    rows = []
    for row in itertools.islice(parsed, limit):
        answered = max(1, round(len(row.answer.split()) * tokens_per_word)) if row.answer else None
        rows.append((row.messages, answered if row.limit is None else row.limit))
    chosen = None if output_tokens is None else lengths("output_tokens", output_tokens)
    return Dataset.of(rows, chosen, file=str(path), sha256=hashlib.sha256(content).hexdigest(), unique=unique)


def tokenizer(path: str | os.PathLike[str]) -> TokenCounts:
    """Measures a tokenizer: the path of a `tokenizer.json`, or of the model's folder that holds it.

    Needs the package `tokenizers`, on this machine alone: workers get the counts. Raises ScenarioError.
    """
    file = Path(path)
    file = file / "tokenizer.json" if file.is_dir() else file
    try:
        from tokenizers import Tokenizer  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ScenarioError(
            f"tokenizer {file}: the package `tokenizers` is not installed; pip install tokenizers"
        ) from None
    _content(file)
    try:
        loaded = Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises bare Exception for every fault of a file
        raise ScenarioError(f"tokenizer {file}: {error}") from None
    opener = WORDS[0]

    def cost(texts: list[str]) -> list[int]:
        return [len(encoded.ids) for encoded in loaded.encode_batch(texts, add_special_tokens=False)]

    alone = cost([opener])[0]
    after = (count - alone for count in cost([f"{opener} {word}" for word in WORDS]))
    return TokenCounts(str(path), tuple(after), tuple(cost(list(WORDS))))


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ScenarioError(f"{file}: cannot be read: {error.strerror}") from None
