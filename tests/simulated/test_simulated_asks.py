"""What a request asks for: its tokens, and how long its answer becomes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from pytest_inferslo.backends.simulated.asks import Ask, Limits, chat_ask, completion_ask
from pytest_inferslo.backends.simulated.endings import Ending, ending
from pytest_inferslo.backends.simulated.tokens import (
    WORDS,
    answer_text,
    answer_words,
    chat_tokens,
    tokenize,
)

LIMITS = Limits(max_model_len=1000, chat_output_tokens=128)


def ask(**fields: Any) -> Ask:
    return completion_ask({"model": "m", "prompt": "one two three", **fields}, None, LIMITS)


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("a b  c\n", 3), ("x" * 12, 1), ("x" * 13, 2), ("x" * 5000, 417), ("häuser über", 2)],
)
def test_token_is_a_word_or_a_piece_of_a_long_one(text: str, count: int) -> None:
    assert len(tokenize(text)) == count


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("a b", ["<|user|>", "a", "b", "<|assistant|>"]),
        (
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            ["<|user|>", "a", "b", "<|assistant|>"],
        ),
        (None, ["<|user|>", "<|assistant|>"]),
    ],
)
def test_chat_tokens_mark_each_message(content: object, tokens: list[str]) -> None:
    assert chat_tokens([{"role": "user", "content": content}]) == tokens


def test_answer_sent_back_as_a_message_is_the_same_tokens() -> None:
    first = chat_tokens([{"role": "user", "content": "a"}])
    spoken = {"role": "assistant", "content": answer_text(7, 100)}
    second = chat_tokens([{"role": "user", "content": "a"}, spoken, {"role": "user", "content": "b"}])
    assert second[: len(first) + 100] == first + answer_words(7, 100)


def test_words_need_no_escaping_and_are_tokens() -> None:
    assert all(word.isascii() and word.isalpha() and tokenize(word) == [word] for word in WORDS)


def test_same_prompt_gets_the_same_answer() -> None:
    assert ask().answer_start == ask().answer_start
    assert len({ask(prompt=f"prompt {number}").answer_start for number in range(50)}) > 10


@pytest.mark.parametrize(
    ("body", "tokens", "limited"),
    [
        ({"max_tokens": 5}, 5, True),
        ({"max_completion_tokens": 7, "max_tokens": 5}, 7, True),
        ({}, 128, False),
        ({"messages": [{"role": "user", "content": "w " * 950}]}, 48, False),  # what the context leaves
    ],
)
def test_chat_limit(body: dict[str, Any], tokens: int, limited: bool) -> None:
    made = chat_ask({"model": "m", "messages": [{"role": "user", "content": "a"}], **body}, None, LIMITS)
    assert (made.output_tokens, made.limited) == (tokens, limited)


START = ask().answer_start
THIRD = answer_words(START, 3)[2]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"max_tokens": 9}, Ending(9, "length")),
        ({}, Ending(16, "stop")),
        ({"max_tokens": 9, "stop": THIRD}, Ending(3, "stop", THIRD)),
        ({"max_tokens": 9, "stop": ["nowhere", THIRD], "ignore_eos": True}, Ending(3, "stop", THIRD)),
        ({"max_tokens": 2, "stop": [THIRD]}, Ending(2, "length")),
        ({"max_tokens": 9, "stop": [""]}, Ending(9, "length")),
        ({"max_tokens": 9, "stop": [THIRD], "min_tokens": 9}, Ending(9, "length")),
    ],
)
def test_ending_without_end_of_sequence(fields: dict[str, Any], expected: Ending) -> None:
    assert ending(ask(**fields), 0.0, Random(1)) == expected


def test_end_of_sequence_is_geometric_and_obeys_the_request() -> None:
    random = Random(5)
    drawn = [ending(ask(max_tokens=900), 40.0, random) for _ in range(4000)]
    assert sum(end.tokens for end in drawn) / 4000 == pytest.approx(40, rel=0.1)
    assert {end.reason for end in drawn} == {"stop"}
    cut = [ending(ask(max_tokens=20, min_tokens=10), 40.0, random) for _ in range(500)]
    assert min(end.tokens for end in cut) == 10
    assert {(end.tokens == 20, end.reason) for end in cut} >= {(True, "length"), (False, "stop")}
    kept = [ending(ask(max_tokens=900, ignore_eos=True), 40.0, random) for _ in range(50)]
    assert {end.tokens for end in kept} == {900}
