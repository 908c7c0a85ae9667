"""Synthetic prompts: lengths, uniqueness, prefixes, conversations; and token counts of a real tokenizer."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from pathlib import Path

import pytest

from pytest_inferslo.core.prompts import Prompt, Prompts, TokenCounts, lognormal, synthetic, uniform
from pytest_inferslo.core.prompts.text import SALT_WORDS, SALTS, Salts
from pytest_inferslo.core.prompts.words import WORDS
from pytest_inferslo.datasets import tokenizer
from pytest_inferslo.errors import ScenarioError

ONES = (1.0,) * len(WORDS)


def made(prompts: Prompts, count: int, *, seed: int = 0, run: str = "") -> list[Prompt]:
    source = prompts.source(seed, run)
    return [source.prompt(index) for index in range(count)]


@pytest.mark.parametrize("tokens", [4, 5, 17, 128, 2_000, 40_000])
def test_one_word_is_one_token_without_a_tokenizer(tokens: int) -> None:
    for prompt in made(synthetic(tokens, 24), 20):
        assert len(prompt.text.split()) == tokens == prompt.input_tokens
        assert prompt.max_tokens == 24
        assert prompt.messages == [{"role": "user", "content": prompt.text}]
        assert prompt.inputs == (prompt.text,)
        assert prompt.text == " ".join(prompt.text.split())


def test_a_calibrated_share_of_words() -> None:
    lengths = [len(prompt.text.split()) for prompt in made(synthetic(1300, tokens_per_word=1.3), 20)]
    assert lengths == pytest.approx([1000] * 20, abs=1)


def test_lengths_are_drawn_within_their_bounds() -> None:
    prompts = made(synthetic((64, 512), lognormal(30, 1.0, low=8, high=100)), 3_000)
    assert {len(p.text.split()) == p.input_tokens for p in prompts} == {True}
    inputs, outputs = [p.input_tokens for p in prompts], [p.max_tokens for p in prompts]
    assert (min(inputs), max(inputs)) == (64, 512)
    assert sum(inputs) / 3_000 == pytest.approx(288, rel=0.05)
    assert min(outputs) >= 8
    assert max(outputs) <= 100
    assert sorted(outputs)[1500] == pytest.approx(30, rel=0.15)


def test_a_prompt_is_a_function_of_seed_and_index_alone() -> None:
    prompts = synthetic((32, 96), (8, 16), turns=3, sessions=5, shared_prefix=0.2)
    in_order = made(prompts, 60)
    source = prompts.source(0)
    assert [source.prompt(index) for index in reversed(range(60))] == in_order[::-1]
    assert made(prompts, 60, seed=1) != in_order


def test_hashes_are_the_same_in_every_process() -> None:
    assert made(synthetic(8), 1)[0].hash == 4303318214897267999


@pytest.mark.parametrize(
    "prompts",
    [
        synthetic(4, unique=True),
        synthetic(uniform(8, 40)),
        synthetic(64, shared_prefix=0.9),
        synthetic(64, shared_prefix=0.5, prefixes=7),
        synthetic(32, turns=4, sessions=8),
        synthetic(16, batch=4),
    ],
)
def test_unique_prompts_do_not_repeat(prompts: Prompts) -> None:
    found = made(prompts, 4_000)
    assert len({prompt.hash for prompt in found}) == 4_000
    assert len({prompt.text for prompt in found}) == 4_000
    inputs = [text for prompt in found for text in prompt.inputs]
    assert len(set(inputs)) == len(inputs)


@pytest.mark.parametrize("key", [0, 1, 12345, 2**64 - 1])
def test_salts_are_a_bijection(key: int) -> None:
    """All salts of a block, of its neighbours in the far end, and of the ends differ."""
    salts = Salts(key, ONES, ONES)
    places = [*range(5_000), *range(SALTS - 5_000, SALTS)]
    texts = [salts.at(place)[0] for place in places]
    assert len(set(texts)) == len(texts)
    assert all(len(text.split()) == SALT_WORDS for text in texts)
    firsts = [text.split()[0] for text in texts[:5_000]]
    assert all(a != b for a, b in itertools.pairwise(firsts))


def test_two_runs_share_no_prompt_but_every_length() -> None:
    prompts = synthetic((32, 96), (8, 16))
    one, two = made(prompts, 2_000, run="run-1"), made(prompts, 2_000, run="run-2")
    assert not {p.hash for p in one} & {p.hash for p in two}
    assert [(p.input_tokens, p.max_tokens) for p in one] == [(p.input_tokens, p.max_tokens) for p in two]
    prefixed = synthetic(64, shared_prefix=0.5)
    assert (
        made(prefixed, 1, run="run-1")[0].text.split()[:4]
        != made(prefixed, 1, run="run-2")[0].text.split()[:4]
    )


@pytest.mark.parametrize(("pool", "tokens"), [(1, 16), (5, 16), (64, 16), (8, 2), (3, 1)])
def test_repeated_prompts_keep_the_warm_up_apart(pool: int, tokens: int) -> None:
    source = synthetic(tokens, unique=False, pool=pool).source(0)
    measured = Counter(source.prompt(index).hash for index in range(1_000))
    warm_up = {source.prompt(index, warm_up=True).hash for index in range(1_000)}
    assert len(measured) == pool
    assert not warm_up & set(measured)
    assert {len(source.prompt(index).text.split()) for index in range(50)} == {tokens}


@pytest.mark.parametrize(("share", "prefixes"), [(0.25, 1), (0.5, 1), (0.5, 3), (0.9, 1)])
def test_prompts_share_the_declared_part(share: float, prefixes: int) -> None:
    found = made(synthetic(80, shared_prefix=share, prefixes=prefixes), 300)
    shared = int(80 * share)
    heads = {tuple(prompt.text.split()[:shared]) for prompt in found}
    assert len(heads) == prefixes
    assert len({prompt.text.split()[shared] for prompt in found}) > 100
    assert {len(prompt.text.split()) for prompt in found} == {80}


def test_a_shared_prefix_of_different_lengths_is_one_text() -> None:
    found = made(synthetic((40, 400), shared_prefix=0.5), 100)
    longest = max(found, key=lambda prompt: prompt.input_tokens).text.split()
    for prompt in found:
        shared = int(prompt.input_tokens * 0.5)
        # the cut may fill up with the cheapest word, so the last one is free
        assert prompt.text.split()[: shared - 1] == longest[: shared - 1]


def test_turns_of_a_conversation_carry_what_was_said() -> None:
    turns, sessions = 3, 4
    found = made(synthetic(20, 10, turns=turns, sessions=sessions), 24)
    assert [prompt.turn for prompt in found] == ([0] * 4 + [1] * 4 + [2] * 4) * 2
    assert [prompt.session for prompt in found] == [0, 1, 2, 3] * 3 + [4, 5, 6, 7] * 3
    by_session = [[p for p in found if p.session == session] for session in range(8)]
    for conversation in by_session:
        for earlier, later in itertools.pairwise(conversation):
            assert later.messages[: len(earlier.messages)] == earlier.messages
        roles = [message["role"] for message in conversation[-1].messages]
        assert roles == ["user", "assistant", "user", "assistant", "user"]
        assert [p.input_tokens for p in conversation] == [20, 50, 80]
        assert [len(p.text.split()) for p in conversation] == [20, 50, 80]


def test_embeddings_have_several_inputs() -> None:
    prompt = made(synthetic(12, batch=3), 2)[1]
    assert len(prompt.inputs) == 3
    assert [len(text.split()) for text in prompt.inputs] == [12, 12, 12]
    assert prompt.input_tokens == 36


def test_a_trace_replaces_the_drawn_lengths() -> None:
    source = synthetic(20, 10).source(0)
    prompt = source.prompt(3, input_tokens=77, output_tokens=5)
    assert (len(prompt.text.split()), prompt.input_tokens, prompt.max_tokens) == (77, 77, 5)
    assert source.prompt(3, output_tokens=5).text == source.prompt(3).text


@pytest.mark.parametrize(
    ("prompts", "reuse"),
    [
        (synthetic(64), False),
        (synthetic(64, unique=False), True),
        (synthetic(64, shared_prefix=0.1), True),
        (synthetic(64, turns=2), True),
        (synthetic(64, batch=2), False),
    ],
)
def test_reuse_is_declared(prompts: Prompts, reuse: bool) -> None:
    assert prompts.reuse is reuse


def trained(folder: Path) -> Path:
    """A byte-pair tokenizer whose vocabulary is too small for one token a word."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        special_tokens=["<s>"],
    )
    made.train_from_iterator([" ".join(WORDS)], trainer)
    made.post_processor = tokenizers.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    made.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("tokens", [30, 31, 128, 999])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_lengths_are_exact_with_a_tokenizer(tmp_path: Path, tokens: int, share: float) -> None:
    counts = tokenizer(trained(tmp_path))
    assert max(counts.counts) > 1
    loaded = pytest.importorskip("tokenizers").Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for prompt in made(synthetic(tokens, tokenizer=counts, shared_prefix=share, unique=share == 0), 50):
        found = len(loaded.encode(prompt.text, add_special_tokens=False).ids)
        assert found == pytest.approx(tokens, abs=0 if share == 0 or tokens > 100 else 2)


def test_the_file_or_its_folder(tmp_path: Path) -> None:
    folder = trained(tmp_path)
    by_folder, by_file = tokenizer(folder), tokenizer(folder / "tokenizer.json")
    assert by_folder.counts == by_file.counts
    assert by_file.name == os.fspath(folder / "tokenizer.json")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: synthetic(0), ["input_tokens is 0", "whole number from 1"]),
        (lambda: synthetic("128"), ["input_tokens is '128'", "(64, 512)"]),
        (lambda: synthetic((5, 2)), ["low is 5", "high=2"]),
        (lambda: synthetic((1, 2, 3)), ["input_tokens is (1, 2, 3)"]),
        (lambda: synthetic(128, 0), ["output_tokens is 0"]),
        (lambda: synthetic(3), ["input_tokens", "needs 4 tokens of its own", "unique=False"]),
        (lambda: synthetic(20, shared_prefix=0.9), ["needs 4 tokens", "shortest one has 2"]),
        (lambda: synthetic(20, shared_prefix=1.5), ["shared_prefix is 1.5", "from 0 to 1"]),
        (lambda: synthetic(20, pool=0), ["pool is 0"]),
        (lambda: synthetic(20, turns=2, batch=2), ["batch is 2", "one input"]),
        (lambda: synthetic(20, unique="yes"), ["unique is 'yes'", "True or False"]),
        (lambda: synthetic(20, tokens_per_word=0), ["tokens_per_word is 0"]),
        (lambda: synthetic(20, tokenizer="gpt"), ["tokenizer is 'gpt'", "tokenizer.json"]),
        (lambda: TokenCounts("x", (1, 2), (1, 2)), ["counts is (1, 2)", "512"]),
    ],
)
def test_refusals(make, words: list[str]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ScenarioError) as refused:
        make()
    for word in words:
        assert word in str(refused.value)


def test_a_tokenizer_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    file = tmp_path / "tokenizer.json"
    with pytest.raises(ScenarioError, match=r"tokenizer\.json: cannot be read: No such file"):
        tokenizer(file)
    file.write_text("{}")
    with pytest.raises(ScenarioError, match=r"tokenizer .*tokenizer\.json: "):
        tokenizer(tmp_path)


def test_the_vocabulary() -> None:
    assert len(WORDS) == len(set(WORDS)) == 512
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [({"pool": 9}, "unique=False"), ({"prefixes": 2}, "a shared_prefix"), ({"sessions": 8}, "turns over 1")],
)
def test_what_would_have_no_effect_is_refused(arguments: dict[str, int], word: str) -> None:
    with pytest.raises(ScenarioError, match=f"no effect without {word}"):
        synthetic(**arguments)  # type: ignore[arg-type]
