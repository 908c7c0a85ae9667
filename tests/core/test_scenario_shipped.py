"""The scenarios that ship, and every example of docs/write-a-scenario.md."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_inferslo.core.scenario import Scenario

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "scenarios").glob("test_*.py"))
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/write-a-scenario.md").read_text(), re.DOTALL)


@pytest.fixture(autouse=True)
def markers(pytestconfig: pytest.Config) -> None:
    """scenarios/conftest.py registers it for its folder alone."""
    pytestconfig.addinivalue_line("markers", "heavy: see scenarios/conftest.py")


def scenarios_of(file: Path) -> dict[str, tuple[Scenario, bool]]:
    """What each test of a file offers, and whether the test is heavy."""
    found: dict[str, tuple[Scenario, bool]] = {}
    for name, test in runpy.run_path(str(file)).items():
        marks = [mark.name for mark in getattr(test, "pytestmark", [])]
        code = getattr(test, "__code__", None)
        if name.startswith("test_") and code and code.co_varnames[: code.co_argcount] == ("offer_load",):
            offered: list[Scenario] = []
            offer: Callable[..., Any] = offered.append
            test(offer_load=offer)
            found[name] = (offered[0], "heavy" in marks)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_shipped_scenarios(file: Path) -> None:
    for scenario, heavy in scenarios_of(file).values():
        assert Scenario.from_dict(scenario.to_dict()) == scenario
        assert scenario.shortened(2).window_seconds == 2
        if not heavy:
            assert scenario.warmup_seconds + scenario.window_seconds <= 30


@pytest.mark.parametrize(("name", "requests"), [("sustained", 1008), ("poisson", 1008), ("bursty", 1098)])
def test_the_first_scenarios_have_enough_requests(name: str, requests: int) -> None:
    """838 are enough for a p99 at 99 % confidence with two requests over its limit."""
    scenario, heavy = scenarios_of(ROOT / "scenarios" / f"test_{name}.py")[f"test_{name}"]
    start, end = scenario.window_ns
    intended = scenario.schedule().intended
    counted = np.count_nonzero((intended >= start) & (intended < end))
    assert not heavy
    assert counted == pytest.approx(requests, abs=60 if name == "poisson" else 0)
    assert counted > 838


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_of_the_docs_run(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(
        f"2024-05-10 0{i // 3600}:{i // 60 % 60:02}:{i % 60:02},{i + 9},9\n" for i in range(2 * 3600)
    )
    Path("azure-code.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    row = '{"timestamp": %d, "input_length": 900, "output_length": 9, "hash_ids": [0, %d]}\n'
    Path("conversation_trace.jsonl").write_text(
        "".join(row % (second * 1000, second) for second in range(700))
    )
    Path("questions.jsonl").write_text('{"prompt": "Why?"}\n')
    talk = '{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}'
    Path("ShareGPT_V3_unfiltered_cleaned_split.json").write_text(f"[{talk}, {talk}]")
    if "models/mine" in example:
        write_tokenizer(tmp_path / "models/mine")
    exec(compile(example, "docs/write-a-scenario.md", "exec"), {"__name__": "docs"})


def write_tokenizer(folder: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    folder.mkdir(parents=True)
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        ["a b"], tokenizers.trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False)
    )
    made.save(str(folder / "tokenizer.json"))


def test_the_docs_have_their_examples() -> None:
    assert len(EXAMPLES) >= 7
