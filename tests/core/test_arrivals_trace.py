"""Trace files: the formats as they are published, and their replay."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from pytest_inferslo.core.arrivals import Trace
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.errors import ScenarioError
from pytest_inferslo.traces import trace

PLAIN = "timestamp,input_tokens,output_tokens\n10.5,100,10\n11.0,200,20\n12.25,300,30\n"
MOONCAKE = (
    '{"timestamp": 0, "input_length": 6755, "output_length": 500, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 3052, "input_length": 7234, "output_length": 794, "hash_ids": [0, 28]}\n'
    '{"timestamp": 6104, "input_length": 2287, "output_length": 316, "hash_ids": [0, 42]}\n'
)
AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:17:03.9799600,4808,10\n"
    "2023-11-16 18:17:04.0319569,3180,8\n"
    "2023-11-16 18:18:04.0782201,110,27\n"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 00:00:00.009930+00:00,2162,5\n"
    "2024-05-10 00:00:01+00:00,2399,6\n"
    "2024-05-10 02:00:02.000001+02:00,76,15\n"
)
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,ChatGPT,1087,230,1317,Conversation log\n"
    "118,GPT-4,417,0,417,API log\n"
    "119,GPT-4,417,276,693,API log\n"
)
BURSTGPT_3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n"
    "19440161.5,d5983bf9,2,ChatGPT,36,29,65,Conversation log\n"
)


def write(folder: Path, text: str) -> Path:
    file = folder / "trace.txt"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("text", "format", "times_ns", "inputs", "outputs", "dropped"),
    [
        (PLAIN, "plain", [0, 500_000_000, 1_750_000_000], [100, 200, 300], [10, 20, 30], 0),
        (MOONCAKE, "mooncake", [0, 3_052_000_000, 6_104_000_000], [6755, 7234, 2287], [500, 794, 316], 0),
        (AZURE_2023, "azure", [0, 51_996_900, 60_098_260_100], [4808, 3180, 110], [10, 8, 27], 0),
        (AZURE_2024, "azure", [0, 990_070_000, 1_990_071_000], [2162, 2399, 76], [5, 6, 15], 0),
        (BURSTGPT, "burstgpt", [0, 40_000_000_000, 114_000_000_000], [472, 1087, 417], [18, 230, 276], 1),
        (BURSTGPT_3, "burstgpt", [0, 51_500_000_000], [906, 36], [446, 29], 0),
        ("\ufeff" + PLAIN.replace("\n", "\r\n"), "plain", [0, 500_000_000, 1_750_000_000], None, None, 0),
        (
            PLAIN.replace("\n", ",x\n").replace("tokens,x", "tokens,note"),
            "plain",
            None,
            [100, 200, 300],
            None,
            0,
        ),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_formats(
    tmp_path: Path,
    text: str,
    format: str,
    times_ns: list[int] | None,
    inputs: list[int] | None,
    outputs: list[int] | None,
    dropped: int,
    named: bool,
) -> None:
    replay = trace(write(tmp_path, text), format if named else "auto")
    schedule = replay.schedule(1e6, seed=0)
    assert schedule.input_tokens is not None
    assert schedule.output_tokens is not None
    assert times_ns is None or schedule.intended.tolist() == times_ns
    assert inputs is None or schedule.input_tokens.tolist() == inputs
    assert outputs is None or schedule.output_tokens.tolist() == outputs
    assert replay.dropped == dropped
    assert len(replay.sha256) == 64


@pytest.mark.parametrize(
    ("text", "format", "where", "words"),
    [
        ("", "auto", ":", ["empty"]),
        (
            "time,tokens\n1,2\n",
            "auto",
            ":1:",
            ["time, tokens are unknown", "ContextTokens", "Request tokens"],
        ),
        (PLAIN, "azure", ":1:", ["timestamp, input_tokens", "TIMESTAMP,ContextTokens,GeneratedTokens"]),
        (PLAIN + "13,x,5\n", "auto", ":5:", ["input_tokens is 'x'", "whole number"]),
        (PLAIN + "13,-1,5\n", "auto", ":5:", ["input_tokens is '-1'"]),
        (PLAIN + "13,1.5,5\n", "auto", ":5:", ["input_tokens is '1.5'"]),
        (PLAIN + "nan,1,5\n", "auto", ":5:", ["timestamp is 'nan'", "a time"]),
        (PLAIN + "13,1\n", "auto", ":5:", ["2 cells, the header has 3"]),
        (PLAIN + "\n\n13,1\n", "auto", ":7:", ["2 cells"]),
        (AZURE_2023 + "yesterday,1,1\n", "auto", ":5:", ["TIMESTAMP is 'yesterday'"]),
        (MOONCAKE + "{\n", "auto", ":4:", ["not a JSON object"]),
        (MOONCAKE + "[1]\n", "auto", ":4:", ["not a JSON object"]),
        (MOONCAKE + '{"timestamp": 1, "input_length": 5}\n', "auto", ":4:", ["output_length is missing"]),
        (MOONCAKE + '{"timestamp": true, "input_length": 5, "output_length": 5}\n', "auto", ":4:", ["True"]),
        ('{"ts": 1}\n', "auto", ":1:", ["ts are unknown"]),
        (MOONCAKE.replace("42]", "-42]"), "auto", ":3:", ["hash_ids is [0, -42]"]),
        (MOONCAKE.replace("[0, 42]", "7"), "auto", ":3:", ["hash_ids is 7"]),
        (PLAIN, "azur", "", ["format is 'azur'", "did you mean 'azure'"]),
        ("timestamp,input_tokens,output_tokens\n1,0,5\n2,5,0\n", "auto", "", ["none of its 2 rows"]),
    ],
)
def test_faults_name_file_and_line(
    tmp_path: Path, text: str, format: str, where: str, words: list[str]
) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ScenarioError) as refused:
        trace(file, format)
    if where:
        assert f"{file}{where}" in str(refused.value)
    for word in words:
        assert word in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"none\.csv: the trace cannot be read: No such file"):
        trace(tmp_path / "none.csv")


def test_a_part_of_a_trace(tmp_path: Path) -> None:
    text = "timestamp,input_tokens,output_tokens\n" + "".join(f"{i},{i + 1},1\n" for i in range(100, 200))
    file = write(tmp_path, text)
    schedule = trace(file, start="10s", length="5s").schedule(1000, seed=0)
    assert schedule.intended.tolist() == [i * 10**9 for i in range(5)]
    assert schedule.input_tokens.tolist() == [111, 112, 113, 114, 115]  # type: ignore[union-attr]
    with pytest.raises(ScenarioError, match="no request in this part"):
        trace(file, start="1h")


def shared(one: str, two: str) -> int:
    """Words that two prompts have in common from their beginning."""
    pairs = zip(one.split(), two.split(), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def test_prompts_share_the_blocks_of_a_mooncake_trace(tmp_path: Path) -> None:
    rows = [(1100, [0, 1, 2]), (1536, [0, 1, 3]), (600, [0, 9]), (700, [5, 6]), (1100, [0, 1, 2]), (2, [7])]
    text = "".join(
        json.dumps({"timestamp": i, "input_length": n, "output_length": 9, "hash_ids": ids}) + "\n"
        for i, (n, ids) in enumerate(rows)
    )
    replay = trace(write(tmp_path, text))
    made = Scenario(arrivals=replay, prompts=replay.prompts(), seed=3)
    again = Scenario.from_dict(json.loads(json.dumps(made.to_dict())))
    schedule, source = again.schedule(), again.prompt_source("run-1")
    prompts = [
        source.prompt(
            i, input_tokens=int(schedule.input_tokens[i]), output_tokens=int(schedule.output_tokens[i])
        )  # type: ignore[index]
        for i in range(len(schedule))
    ]
    assert [len(prompt.text.split()) for prompt in prompts] == [n for n, _ in rows]
    assert {prompt.max_tokens for prompt in prompts} == {9}
    assert shared(prompts[0].text, prompts[1].text) == 1024
    assert shared(prompts[0].text, prompts[2].text) == 512
    assert shared(prompts[0].text, prompts[3].text) < 4
    assert prompts[0].hash == prompts[4].hash
    assert made.cache == "shared"
    assert again.prompt_source("run-2").prompt(0).text.split()[0:4] != prompts[0].text.split()[0:4]


def test_blocks_go_with_their_trace_alone(tmp_path: Path) -> None:
    replay = trace(write(tmp_path, MOONCAKE))
    with pytest.raises(ScenarioError, match="accepted with that trace's arrivals"):
        Scenario(arrivals=steady(9, 10**9), prompts=replay.prompts())
    with pytest.raises(ScenarioError, match="rate_scale is 2"):
        trace(write(tmp_path, MOONCAKE), rate_scale=2.0).prompts()
    with pytest.raises(ScenarioError, match="no hash_ids"):
        steady(9, 10**9).prompts()


def steady(count: int, gap_ns: int, **scale: float) -> Trace:
    return Trace.of([(i * gap_ns, i + 1, 1) for i in range(count)], source="steady.csv", **scale)  # type: ignore[arg-type]


def test_time_scale_moves_every_request() -> None:
    schedule = steady(100, 10**9, time_scale=0.25).schedule(1000, seed=0)
    assert np.array_equal(schedule.intended, np.arange(100) * 250_000_000)


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0, 3.4])
def test_rate_scale_keeps_the_length_and_multiplies_requests(scale: float) -> None:
    replay = steady(5_000, 10**8, rate_scale=scale)
    schedule = replay.schedule(500, seed=1)
    assert len(schedule) == pytest.approx(5_000 * scale, abs=5 * np.sqrt(5_000))
    assert np.all(np.diff(schedule.intended) >= 0)
    assert schedule.intended[-1] < 500 * 10**9
    assert replay.length == pytest.approx(500)
    if scale >= 2:  # copies spread over the gap, one stays at the recorded time
        late = schedule.intended % 10**8
        assert np.count_nonzero(late == 0) == pytest.approx(5_000, abs=5)
        assert late[late > 0].mean() == pytest.approx(0.5 * 10**8, rel=0.05)
    # a copy has its original's tokens, and lies between it and the next request
    assert schedule.input_tokens is not None
    original = (schedule.input_tokens.astype(np.int64) - 1) * 10**8
    assert np.all((schedule.intended >= original) & (schedule.intended < original + 10**8))


def test_a_wanted_rate(tmp_path: Path) -> None:
    text = "timestamp,input_tokens,output_tokens\n" + "".join(f"{i / 10},5,5\n" for i in range(1000))
    file = write(tmp_path, text)
    assert len(trace(file, rate="50/s").schedule(100, seed=0)) == pytest.approx(5000, abs=1)
    with pytest.raises(ScenarioError, match="either rate or rate_scale"):
        trace(file, rate="50/s", rate_scale=2)


def test_a_trace_must_cover_the_run() -> None:
    replay = steady(10, 10**9)
    replay.check(8, 2)
    with pytest.raises(
        ScenarioError, match=r"steady\.csv covers 10 s, warm-up and window together take 12 s"
    ):
        replay.check(10, 2)


@pytest.mark.parametrize("bad", [{"time_scale": 0.0}, {"rate_scale": -1.0}])
def test_scales_are_above_zero(bad: dict[str, float]) -> None:
    with pytest.raises(ScenarioError, match="above 0"):
        steady(3, 10, **bad)
