"""Prompts that are not as long as asked for, by the server's count, are noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_inferslo.core.arrivals import Trace, concurrency, constant, stream
from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.samples import GAP_DTYPE, SAMPLE_DTYPE, Outcome, SampleBatch
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.prompt_lengths import length_notes
from pytest_inferslo.storage.samples import SampleWriter

TRACE = Trace.of([(second * 10**9, 100 * (second + 1), 5) for second in range(10)])


def notes(
    directory: Path, scenario: Scenario, per_token: float, template: int = 0, **columns: Any
) -> list[str]:
    """What is noted where the server counts `per_token` tokens for each one asked for, and `template` more."""
    schedule = scenario.schedule()
    rows = np.zeros(len(schedule), SAMPLE_DTYPE)
    rows["index"], rows["intended"], rows["stream"] = schedule.index, schedule.intended, schedule.stream
    rows["outcome"] = Outcome.SUCCESS
    for row in rows:
        given = schedule.input_tokens
        source = scenario.prompt_source(stream=int(row["stream"]))
        asked = source.prompt(
            int(row["index"]), input_tokens=None if given is None else int(given[row["index"]])
        )
        row["prompt_tokens"] = round(asked.input_tokens * per_token) + template
    for name, value in columns.items():
        rows[name] = value
    writer = SampleWriter(directory)
    writer.append(SampleBatch(rows, np.zeros(0, GAP_DTYPE)))
    writer.close()
    return length_notes(scenario, directory)


def scenario(arrivals: Any = None, prompts: Any = None) -> Scenario:
    return Scenario(arrivals or constant("20/s"), prompts or synthetic((200, 400)), duration=9)


@pytest.mark.parametrize("arrivals", [None, concurrency(9), TRACE])
def test_as_long_as_asked_for(tmp_path: Path, arrivals: Any) -> None:
    assert notes(tmp_path, scenario(arrivals), 1.0, template=30) == []


@pytest.mark.parametrize(("per_token", "said"), [(2.0, "tokens_per_word=2.0"), (0.5, "tokens_per_word=0.50")])
def test_another_tokenizer(tmp_path: Path, per_token: float, said: str) -> None:
    (note,) = notes(tmp_path, scenario(), per_token)
    assert said in note
    assert "by the server's count where 3" in note


def test_a_trace_is_compared_with_its_own_lengths(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, scenario(TRACE), 2.0)
    assert "prompts have 1,000 tokens by the server's count where 500 were asked for" in note


def test_each_stream_by_itself(tmp_path: Path) -> None:
    both = scenario([stream("a", constant("9/s"), prompts=synthetic(8)), stream("b", constant("9/s"))])
    (note,) = notes(tmp_path, both, 3.0)
    assert note.startswith("stream b: ")


@pytest.mark.parametrize("columns", [{"outcome": Outcome.RESET}, {"prompt_tokens": -1}])
def test_nothing_was_counted(tmp_path: Path, columns: dict[str, Any]) -> None:
    assert notes(tmp_path, scenario(), 2.0, **columns) == []
