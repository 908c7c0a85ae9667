"""The simulator's tokenizer and vocabulary. A token is a word, or a 12-character piece of a longer one."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any

_pieces = re.compile(r"\S{1,12}").findall

_TEXT = """
simulated answer from a discrete engine with many small words that mean nothing at all but arrive in order
one after another as a model would send them while its batch of other requests keeps growing and shrinking
under the same scheduler so every reader sees tokens at the pace that the profile of this server describes
until the limit ends it
"""
WORDS = tuple(_TEXT.split())
"""Plain ASCII without quotes: a word needs no escaping in JSON."""

ENCODED = tuple(b" " + word.encode() for word in WORDS)


def tokenize(text: str) -> list[str]:
    """Tokens of a text."""
    return _pieces(text)


def content_text(content: Any) -> str:
    """The text of a message's content: a string, or a list of parts of which the text ones count."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def chat_tokens(messages: Sequence[Any]) -> list[str]:
    """Tokens of a conversation: each message behind a marker of its role, then the marker of the answer.

    The answer of one turn, sent back as an assistant message, yields the same tokens again, so that its
    blocks hit the prefix cache.
    """
    tokens: list[str] = []
    for message in messages:
        tokens.append(f"<|{message.get('role', 'user')}|>")
        tokens += _pieces(content_text(message.get("content")))
    tokens.append("<|assistant|>")
    return tokens


def answer_start(prompt: bytes) -> int:
    """Where in the vocabulary the answer to these bytes begins: the same request gets the same answer."""
    return zlib.crc32(prompt) % len(WORDS)


def answer_words(start: int, count: int) -> list[str]:
    """The tokens of an answer."""
    size = len(WORDS)
    return [WORDS[(start + index) % size] for index in range(count)]


def answer_text(start: int, count: int) -> str:
    """The text of an answer; a leading blank, as from most tokenizers, is cut."""
    return " ".join(answer_words(start, count))
