"""Prompt files: JSON lines with `prompt`, `text` or `messages`, and ShareGPT's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pytest_inferslo.core import fields
from pytest_inferslo.errors import ScenarioError

FORMATS = ("auto", "jsonl", "sharegpt")

#: Who speaks in ShareGPT, as a chat role.
_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
}
_ROLES |= {"bing": "assistant", "bard": "assistant", "system": "system"}


@dataclass(frozen=True)
class Row:
    """One question: chat messages, the last one the user's; the recorded reply, and how long it may be."""

    messages: list[dict[str, Any]]
    answer: str = ""
    limit: int | None = None


def parse_jsonl(lines: Iterable[str], file: str) -> Iterator[Row]:
    """One row a line: `prompt` or `text` or `messages`; `output_tokens` or `max_tokens` where known."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{file}:{number}"
        try:
            record = json.loads(line.removeprefix("\ufeff"))
        except ValueError as error:
            raise ScenarioError(f"{where}: not JSON: {error}") from None
        if not isinstance(record, dict):
            raise ScenarioError(f"{where}: {line.strip()[:60]!r} is not a JSON object")
        yield Row(_messages(record, where), limit=_limit(record, where))


def _messages(record: dict[str, Any], where: str) -> list[dict[str, Any]]:
    present = [name for name in ("prompt", "text", "messages") if record.get(name)]
    if len(present) != 1:
        seen = ", ".join(record) or "nothing"
        raise ScenarioError(f"{where}: has {seen}; expected exactly one of prompt, text, messages")
    value = record[present[0]]
    if present[0] != "messages":
        if not isinstance(value, str):
            raise ScenarioError(f"{where}: {present[0]} is {value!r}; expected a text")
        return [{"role": "user", "content": value}]
    good = isinstance(value, list) and all(
        isinstance(message, dict) and isinstance(message.get("role"), str) and message.get("content")
        for message in value
    )
    if not good:
        raise ScenarioError(f"{where}: messages must be a list of objects with role and content")
    return list(value)


def _limit(record: dict[str, Any], where: str) -> int | None:
    for name in ("output_tokens", "max_tokens"):
        if record.get(name) is not None:
            return fields.whole(f"{where}: {name}", record[name])
    return None


def parse_sharegpt(text: str, file: str, *, every_turn: bool) -> Iterator[Row]:
    """ShareGPT: a list of conversations of `{"from": "human", "value": ...}`.

    The first question of each, or with `every_turn` each question with what was said before. Conversations
    that do not begin with a question and its answer are left out, as benchmarks on this file do.
    """
    try:
        conversations = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise ScenarioError(f"{file}:{line}: not JSON: {error}") from None
    if not isinstance(conversations, list):
        raise ScenarioError(f"{file}: expected a list of conversations")
    for place, conversation in enumerate(conversations):
        said = _said(conversation, f"{file}: conversation {place}")
        for i in range(len(said) - 1):
            if said[i]["role"] == "user" and said[i + 1]["role"] == "assistant":
                yield Row(said[: i + 1], answer=said[i + 1]["content"])
            elif said[i]["role"] == "assistant" and i == 0:
                break
            if not every_turn and said[i]["role"] == "user":
                break


def _said(conversation: Any, where: str) -> list[dict[str, Any]]:
    turns = (
        conversation.get("conversations", conversation.get("conversation"))
        if isinstance(conversation, dict)
        else None
    )
    if not isinstance(turns, list):
        raise ScenarioError(f"{where}: has no list 'conversations'")
    said = []
    for turn in turns:
        speaker, value = (turn.get("from"), turn.get("value")) if isinstance(turn, dict) else (None, None)
        if speaker not in _ROLES or not isinstance(value, str):
            raise ScenarioError(f"{where}: {turn!r:.80} is no turn; expected from (human, gpt) and value")
        if value.strip():
            said.append({"role": _ROLES[speaker], "content": value})
    return said
