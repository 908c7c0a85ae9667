"""Prompt files: what is read from them, and how they are asked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pytest_inferslo.core.prompts import Dataset, uniform
from pytest_inferslo.core.prompts.text import SALT_WORDS
from pytest_inferslo.datasets import dataset
from pytest_inferslo.errors import ScenarioError

CHAT = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": "x"}],
    },
]
SHAREGPT = [
    {
        "id": "a",
        "conversations": [
            {"from": "human", "value": "One?"},
            {"from": "gpt", "value": "one two three four five"},
            {"from": "human", "value": "Two?"},
            {"from": "gpt", "value": "six"},
        ],
    },
    {
        "id": "b",
        "conversations": [{"from": "gpt", "value": "no question"}, {"from": "human", "value": "late"}],
    },
    {"id": "c", "conversations": [{"from": "human", "value": "alone"}]},
    {"id": "d", "conversations": []},
    {
        "id": "e",
        "conversations": [
            {"from": "system", "value": "Rules."},
            {"from": "user", "value": "Three?"},
            {"from": "chatgpt", "value": "a b c d e f g h i j"},
        ],
    },
]


def file_of(folder: Path, *rows: Any) -> Path:
    file = folder / "prompts.jsonl"
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def texts(prompts: Dataset, count: int, **where: Any) -> list[str]:
    source = prompts.source(0)
    return [source.prompt(index, **where).text for index in range(count)]


def test_jsonl_rows(tmp_path: Path) -> None:
    file = file_of(
        tmp_path,
        {"prompt": "first", "output_tokens": 7},
        "",
        {"text": "second", "max_tokens": 9, "other": 1},
        f'{{"messages": {json.dumps(CHAT)}, "output_tokens": 11, "line separators": "\u2028 \x85"}}',
    )
    prompts = dataset(file, unique=False)
    assert prompts.rows == 3
    assert prompts.unpacked() == [
        ([{"role": "user", "content": "first"}], 7),
        ([{"role": "user", "content": "second"}], 9),
        (CHAT, 11),
    ]
    assert {source.max_tokens for source in map(prompts.source(0).prompt, range(20))} == {9, 11}


@pytest.mark.parametrize(
    ("every_turn", "expected"),
    [
        (
            False,
            [
                ([{"role": "user", "content": "One?"}], 6),
                ([{"role": "system", "content": "Rules."}, {"role": "user", "content": "Three?"}], 13),
            ],
        ),
        (
            True,
            [
                ([{"role": "user", "content": "One?"}], 6),
                (
                    [
                        {"role": "user", "content": "One?"},
                        {"role": "assistant", "content": "one two three four five"},
                        {"role": "user", "content": "Two?"},
                    ],
                    1,
                ),
                ([{"role": "system", "content": "Rules."}, {"role": "user", "content": "Three?"}], 13),
            ],
        ),
    ],
)
def test_sharegpt(tmp_path: Path, every_turn: bool, expected: list[Any]) -> None:
    file = file_of(tmp_path, SHAREGPT)
    assert dataset(file, every_turn=every_turn).unpacked() == expected
    assert dataset(file, "sharegpt", every_turn=every_turn, limit=1).rows == 1


def test_unique_prompts_have_a_salt_before_everything(tmp_path: Path) -> None:
    prompts = dataset(file_of(tmp_path, {"prompt": "hello"}, {"messages": CHAT}), output_tokens=5)
    assert not prompts.reuse
    source = prompts.source(0, "run-1")
    made = [source.prompt(index) for index in range(1_000)]
    assert len({prompt.hash for prompt in made}) == 1_000
    assert not {prompt.hash for prompt in made} & {
        prompts.source(0, "run-2").prompt(i).hash for i in range(1_000)
    }
    for prompt in made[:10]:
        salt, _, rest = prompt.text.partition("\n")
        assert len(salt.split()) == SALT_WORDS
        assert rest in ("hello", "Be brief.\nWhat is this?")
    chat = next(prompt for prompt in made if len(prompt.messages) == 2)
    assert chat.messages[0]["content"].endswith("\nBe brief.")
    assert chat.messages[1] == CHAT[1]


def test_repeating_prompts_come_all_before_any_comes_again(tmp_path: Path) -> None:
    prompts = dataset(
        file_of(tmp_path, *({"prompt": f"p{i}"} for i in range(40))), output_tokens=5, unique=False
    )
    assert prompts.reuse
    found = texts(prompts, 36 * 3)
    assert set(Counter(found).values()) == {3}
    for start in (0, 36, 72):
        assert len(set(found[start : start + 36])) == 36
    assert found[:36] != found[36:72]
    warm_up = set(texts(prompts, 100, warm_up=True))
    assert len(warm_up) == 4
    assert not warm_up & set(found)


def test_lengths_of_answers(tmp_path: Path) -> None:
    file = file_of(tmp_path, {"prompt": "a", "max_tokens": 100}, {"prompt": "b"})
    source = dataset(file, output_tokens=uniform(5, 9)).source(0)
    limits = {source.prompt(index).max_tokens for index in range(200)}
    assert limits == {5, 6, 7, 8, 9}
    assert source.prompt(0, output_tokens=77).max_tokens == 77
    with pytest.raises(ScenarioError, match=r"output_tokens is None: rows of .* do not say it"):
        dataset(file)


def test_a_limit_on_rows(tmp_path: Path) -> None:
    file = file_of(tmp_path, *({"prompt": f"p{i}"} for i in range(40)), "{broken")
    assert dataset(file, output_tokens=5, limit=12).rows == 12


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        ([{"prompt": "a"}, "{"], {}, ["prompts.jsonl:2: not JSON"]),
        (["[1]"], {"format": "jsonl"}, ["prompts.jsonl:1", "not a JSON object"]),
        (
            [{"prompt": "a"}, "", {"question": "a"}],
            {},
            ["prompts.jsonl:3: has question", "prompt, text, messages"],
        ),
        ([{"prompt": "a", "text": "b"}], {}, ["prompts.jsonl:1", "exactly one of"]),
        ([{"prompt": 5}], {}, ["prompts.jsonl:1: prompt is 5"]),
        ([{"messages": [{"role": "user"}]}], {}, ["prompts.jsonl:1: messages must be"]),
        ([{"prompt": "a", "max_tokens": 0}], {}, ["prompts.jsonl:1: max_tokens is 0"]),
        ([""], {}, ["path is", "no prompt that can be used"]),
        (
            ['[{"conversations": [{"from": "x", "value": "y"}]}]'],
            {},
            ["conversation 0", "expected from (human, gpt)"],
        ),
        (["[{}]"], {}, ["conversation 0: has no list 'conversations'"]),
        (["[\n[\n}"], {}, ["prompts.jsonl:3: not JSON"]),
        (["{}"], {"format": "sharegpt"}, ["expected a list of conversations"]),
        ([{"prompt": "a"}], {"format": "json"}, ["format is 'json'", "jsonl"]),
        ([{"prompt": "a"}], {"limit": 0}, ["limit is 0"]),
        ([{"prompt": "a"}], {"output_tokens": 0}, ["output_tokens is 0"]),
        ([{"prompt": "a"}], {"output_tokens": 5, "unique": False}, ["unique is False", "one row"]),
    ],
)
def test_faults_name_file_and_line(
    tmp_path: Path, rows: list[Any], options: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ScenarioError) as refused:
        dataset(file_of(tmp_path, *rows), **options)
    for word in words:
        assert word in str(refused.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"none\.jsonl: cannot be read"):
        dataset(tmp_path / "none.jsonl")
