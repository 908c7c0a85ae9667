"""Scenarios: what they accept, what they refuse, and their way through JSON."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_inferslo.core.adapters import adapters
from pytest_inferslo.core.arrivals import (
    Trace,
    bursts,
    concurrency,
    constant,
    gamma,
    phase,
    phases,
    poisson,
    ramp,
    sine,
    spike,
    steps,
    stream,
    streams,
)
from pytest_inferslo.core.prompts import TokenCounts, lognormal, normal, synthetic, uniform, zipf
from pytest_inferslo.core.prompts.words import WORDS
from pytest_inferslo.core.scenario import Scenario, Timeouts
from pytest_inferslo.datasets import dataset
from pytest_inferslo.errors import ScenarioError

PROMPTS = synthetic((64, 512), (16, 128))
TRACE = Trace.of([(i * 10**9, 50 + i, 5 + i) for i in range(30)], source="t.csv", rate_scale=1.5)
COUNTS = TokenCounts("model", (2,) * len(WORDS), (3,) * len(WORDS))


def scenario(**changed: Any) -> Scenario:
    return Scenario(**{"arrivals": constant("10/s"), "prompts": PROMPTS, "duration": "10s", **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"arrivals": poisson("180/s"), "duration": "1h30m", "warmup": 10, "drain": "1m"},
        {"arrivals": gamma(100, 0.25), "seed": 2**63 - 1, "repeats": 3, "stop_when_certain": True},
        {"arrivals": bursts("20/s", "200/s", "10s", "2s", process="gamma", shape=0.1)},
        {"arrivals": ramp(0.1, 0.7)},
        {"arrivals": steps(["1/s", "2/s"], "5s", process="poisson")},
        {"arrivals": spike("150/s", "3500/s", "2s", "1s", edge="0.1s")},
        {"arrivals": sine(1 / 3, 2 / 3, "7s")},
        {"arrivals": TRACE, "duration": None, "warmup": "3s"},
        {"arrivals": concurrency(150, "1.5s", thinking="exponential", ramp="2s")},
        {"arrivals": phases(phase("a", poisson(3), "4s"), phase("b", spike(1, 9, "1s", "1s")))},
        {"arrivals": [stream("a", constant(3)), stream("b", TRACE, prompts=synthetic(64), api="embeddings")]},
        {
            "arrivals": streams(
                stream("a", constant(3), adapters=adapters(["x", "y"], "zipf"), endpoints={"e": 1})
            )
        },
        {"prompts": synthetic(normal(50, 9, low=9), lognormal(80, 1.1), shared_prefix=0.25, prefixes=3)},
        {"prompts": synthetic(zipf(9, 99, 1.3), uniform(3, 9), turns=3, sessions=7)},
        {"prompts": synthetic(200, tokenizer=COUNTS), "adapters": adapters(["x"], header="x-lora", base=0.5)},
        {"prompts": synthetic(200, unique=False, pool=3), "cache": "shared"},
        {"api": "embeddings", "streaming": False, "endpoints": {"stable": 0.95, "candidate": 0.05}},
        {"timeouts": Timeouts(connect="1s", first_output=2.5, stall="1m", total="1h")},
        {
            "extra_body": {
                "temperature": 0.7,
                "stop": ["a", "b"],
                "kind": "x",
                "nested": {"kind": "y", "n": [1, [2]]},
            }
        },
        {"max_in_flight": 1, "max_connections": 9},
    ],
)
def test_json_and_back_is_the_same_scenario(changed: dict[str, Any]) -> None:
    original = scenario(**changed)
    again = Scenario.from_dict(json.loads(json.dumps(original.to_dict(), allow_nan=False)))
    assert again == original
    assert again.to_dict() == original.to_dict()
    first, second = original.schedule(), again.schedule()
    assert np.array_equal(first.intended, second.intended)
    assert np.array_equal(first.stream, second.stream)
    assert original.prompt_source("r").prompt(7) == again.prompt_source("r").prompt(7)


def test_a_dataset_travels_without_its_file(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    original = scenario(prompts=dataset(file, output_tokens=5))
    text = json.dumps(original.to_dict())
    file.unlink()
    again = Scenario.from_dict(json.loads(text))
    assert [again.prompt_source().prompt(i) for i in range(9)] == [
        original.prompt_source().prompt(i) for i in range(9)
    ]


def test_a_record_holds_hashes_in_place_of_contents() -> None:
    long = Trace.of([(i * 10**7 + i % 7, 50 + i % 911, 5 + i % 97) for i in range(5_000)], source="long.csv")
    original = scenario(arrivals=long, extra_body={"kind": "bytes"})
    described = json.dumps(original.describe())
    assert len(described) < 2_000 < len(json.dumps(original.to_dict()))
    assert original.describe()["arrivals"]["source"] == "long.csv"
    assert len(original.describe()["arrivals"]["offsets"]["sha256"]) == 64
    assert original.describe()["duration"] == 10


def test_times_become_seconds() -> None:
    made = scenario(duration="5m", warmup="1500ms", drain=7)
    assert (made.duration, made.warmup, made.drain) == (300.0, 1.5, 7.0)
    assert (made.window_seconds, made.warmup_seconds, made.drain_seconds) == (300.0, 1.5, 7.0)
    assert made.window_ns == (1_500_000_000, 301_500_000_000)
    assert Timeouts().in_seconds() == (5.0, 60.0, 30.0, 300.0)


def test_the_window_holds_exactly_what_was_asked() -> None:
    made = scenario(arrivals=constant("50/s"), warmup="10s", duration="60s")
    schedule = made.schedule()
    low, high = made.window_ns
    assert len(schedule) == 3500
    assert np.count_nonzero((schedule.intended >= low) & (schedule.intended < high)) == 3000
    assert schedule.end == high


def test_phases_come_after_the_warm_up_and_cover_the_window() -> None:
    made = scenario(arrivals=spike(1, 9, "2s", "3s"), warmup="4s")
    assert [tuple(phase) for phase in made.phases()] == [
        ("warm-up", 0, 4 * 10**9),
        ("base", 4 * 10**9, 6 * 10**9),
        ("spike", 6 * 10**9, 9 * 10**9),
        ("recovery", 9 * 10**9, 14 * 10**9),
    ]
    assert [tuple(phase) for phase in scenario().phases()] == [("measured", 0, 10 * 10**9)]


@pytest.mark.parametrize("third", [1 / 3, 0.1, 7.7])
def test_phases_meet_without_gaps(third: float) -> None:
    found = scenario(arrivals=bursts(1, 9, 3 * third, third), warmup=third, duration=100 * third).phases()
    for before, after in itertools.pairwise(found):
        assert before.end_ns == after.start_ns
    assert (found[0].start_ns, found[-1].end_ns) == (
        0,
        scenario(warmup=third, duration=100 * third).window_ns[1],
    )


def test_durations_that_arrivals_know() -> None:
    known = phases(phase("a", constant(1), "4s"), phase("b", constant(1), "5s"))
    assert scenario(arrivals=known, duration=None, warmup="3s").duration == 9
    assert scenario(arrivals=TRACE, duration=None, warmup="3s").duration == pytest.approx(27)


@pytest.mark.parametrize(
    ("changed", "seconds", "duration", "warmup"),
    [({}, 2, 2, 0.2), ({}, 10, 10, 1), ({}, 60, 10, 1), ({"arrivals": spike(5, 50, "4s", "2s")}, 1, 1, 0.1)],
)
def test_shortened(changed: dict[str, Any], seconds: float, duration: float, warmup: float) -> None:
    short = scenario(warmup="1s", **changed).shortened(seconds)
    assert (short.duration, short.warmup) == (duration, pytest.approx(warmup))
    assert [p.name for p in short.phases()] == [p.name for p in scenario(warmup="1s", **changed).phases()]


def test_a_shortened_spike_keeps_its_rates() -> None:
    short = scenario(arrivals=spike(100, 1000, "4s", "2s")).shortened(1)
    assert short.arrivals == spike(100, 1000, "0.4s", "0.2s")
    assert len(short.schedule()) == 80 + 200


@pytest.mark.parametrize(
    ("changed", "streaming"),
    [
        ({}, True),
        ({"api": "embeddings"}, False),
        ({"api": "generate"}, False),
        ({"api": "generate_stream"}, True),
        ({"streaming": False}, False),
    ],
)
def test_streaming_where_the_api_can(changed: dict[str, Any], streaming: bool) -> None:
    assert scenario(**changed).streaming is streaming


def test_streams_take_over_what_they_do_not_say() -> None:
    other = synthetic(64)
    made = scenario(
        arrivals=[
            stream("chat", constant(1)),
            stream("search", constant(1), prompts=other, api="embeddings", endpoints={"b": 1}),
            stream("whole", constant(1), streaming=False),
        ],
        adapters=adapters(["x"]),
        endpoints={"a": 1},
    )
    chat, search, whole = made.streams
    assert (chat.prompts, chat.api, chat.streaming, chat.endpoints) == (PROMPTS, "chat", True, {"a": 1})
    assert (search.prompts, search.api, search.streaming, search.endpoints) == (
        other,
        "embeddings",
        False,
        {"b": 1},
    )
    assert (whole.api, whole.streaming) == ("chat", False)
    assert chat.adapters == search.adapters == adapters(["x"])
    assert made.prompt_source("r", 1).prompt(5) == other.source(0, "r").prompt(5)


def test_one_stream_is_the_scenario_itself() -> None:
    made = scenario()
    assert [(s.name, s.arrivals, s.prompts, s.api) for s in made.streams] == [
        ("all", made.arrivals, PROMPTS, "chat")
    ]


@pytest.mark.parametrize(
    ("changed", "cache"),
    [
        ({}, "unique"),
        ({"prompts": synthetic(64, shared_prefix=0.5)}, "shared"),
        ({"cache": "shared"}, "shared"),
        (
            {
                "arrivals": [
                    stream("a", constant(1)),
                    stream("b", constant(1), prompts=synthetic(64, turns=2)),
                ]
            },
            "shared",
        ),
    ],
)
def test_cache_is_what_the_prompts_declare(changed: dict[str, Any], cache: str) -> None:
    assert scenario(**changed).cache == cache


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"duration": 0}, ["duration is 0", "longer than zero", "'10s'"]),
        ({"duration": "0s"}, ["duration is '0s'"]),
        ({"duration": -1}, ["duration is -1", "not negative"]),
        ({"duration": "10"}, ["duration is '10'", "unit"]),
        ({"duration": "10/s"}, ["duration is '10/s'"]),
        ({"duration": None}, ["duration is None", "'60s'"]),
        ({"duration": float("inf")}, ["duration is inf"]),
        ({"warmup": "-1s"}, ["warmup is '-1s'", "sign"]),
        ({"drain": "soon"}, ["drain is 'soon'"]),
        ({"arrivals": 50}, ["arrivals is 50", "constant()"]),
        ({"arrivals": []}, ["streams is", "one or more"]),
        ({"arrivals": "50/s"}, ["arrivals is '50/s'", "constant()"]),
        ({"arrivals": spike(1, 9, "9s", "9s")}, ["at is 18", "window lasts 10 s"]),
        ({"arrivals": TRACE, "duration": "40s"}, ["duration is 40", "t.csv covers 30 s"]),
        ({"arrivals": TRACE, "duration": None, "warmup": "30s"}, ["duration is 0"]),
        ({"prompts": "hello"}, ["prompts is 'hello'", "synthetic()"]),
        ({"api": "chats"}, ["api is 'chats'", "did you mean 'chat'"]),
        ({"api": "embeddings", "streaming": True}, ["streaming is True", "does not stream"]),
        ({"streaming": "yes"}, ["streaming is 'yes'"]),
        ({"timeouts": 5}, ["timeouts is 5", "Timeouts("]),
        ({"max_in_flight": 0}, ["max_in_flight is 0"]),
        ({"max_connections": 1.5}, ["max_connections is 1.5"]),
        ({"adapters": ["a"]}, ["adapters is ['a']", "adapters(['a', 'b'])"]),
        ({"endpoints": {}}, ["endpoints is {}"]),
        ({"endpoints": {"a": 0}}, ["endpoints is (0,)", "above zero"]),
        ({"endpoints": ["a"]}, ["endpoints is ['a']", "weights by endpoint's name"]),
        ({"cache": "warm"}, ["cache is 'warm'", "unique, shared"]),
        ({"cache": "unique", "prompts": synthetic(64, turns=2)}, ["cache is 'unique'", "repeat on purpose"]),
        ({"extra_body": {"a": float("nan")}}, ["extra_body is", "JSON"]),
        ({"extra_body": {"a": object()}}, ["extra_body is", "JSON"]),
        ({"prompts": synthetic(batch=2)}, ["prompts is 'batch over 1'", "api='embeddings' alone"]),
        ({"extra_body": [1]}, ["extra_body is [1]", "dictionary"]),
        ({"extra_body": {"stream": False}}, ["extra_body is", "'stream' is set by the scenario itself"]),
        (
            {"extra_body": {"model": "x"}, "adapters": adapters(["a"])},
            ["extra_body is", "'model' is set by the scenario itself"],
        ),
        (
            {"arrivals": concurrency(2), "stop_when_certain": True},
            ["stop_when_certain is True", "a closed loop does not know what is still to come"],
        ),
        (
            {"arrivals": concurrency(9), "max_in_flight": 8},
            ["max_in_flight is 8", "9 users", "accepted: 9 or more"],
        ),
        ({"arrivals": concurrency(5000), "max_in_flight": 5000}, ["max_connections is 4096", "5000 users"]),
        ({"seed": -1}, ["seed is -1"]),
        ({"seed": 1.0}, ["seed is 1.0"]),
        ({"repeats": 0}, ["repeats is 0"]),
        ({"stop_when_certain": 1}, ["stop_when_certain is 1", "True or False"]),
        (
            {"arrivals": [stream("a", constant(1), api="x"), stream("b", constant(1))]},
            ["stream 'a': api is 'x'", "chat"],
        ),
        (
            {
                "arrivals": [
                    stream("a", constant(1), api="embeddings", streaming=True),
                    stream("b", constant(1)),
                ]
            },
            ["stream 'a': streaming is True"],
        ),
    ],
)
def test_refusals_name_field_value_and_what_is_accepted(changed: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ScenarioError) as refused:
        scenario(**changed)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize("name", ["connect", "first_output", "stall", "total"])
def test_time_outs_are_above_zero(name: str) -> None:
    with pytest.raises(ScenarioError, match=rf"timeouts\.{name} is '0s'"):
        Timeouts(**{name: "0s"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.update(colour="red"), ["colour", "unknown fields"]),
        (lambda data: data["arrivals"].update(kind="tides"), ["kind 'tides'", "another version"]),
        (lambda data: data["prompts"].update(colour="red"), ["Synthetic", "colour", "another version"]),
    ],
)
def test_a_saved_scenario_of_another_version_is_refused(change, words: list[str]) -> None:  # type: ignore[no-untyped-def]
    data = scenario().to_dict()
    change(data)
    with pytest.raises(ScenarioError) as refused:
        Scenario.from_dict(data)
    for word in words:
        assert word in str(refused.value)


def test_another_process_makes_the_same_load() -> None:
    """Hash randomisation, the order of imports and the platform's clock have no part in it."""
    made = scenario(arrivals=poisson("50/s"), adapters=adapters(["x", "y", "z"], "zipf"))
    program = (
        "import json, sys\n"
        "from pytest_inferslo.core.scenario import Scenario\n"
        "s = Scenario.from_dict(json.load(sys.stdin)); t = s.schedule(); p = s.prompt_source('r')\n"
        "print(json.dumps([t.intended.tolist(), s.adapters.choose(s.seed, t.index).tolist(),"
        " [p.prompt(int(i)).hash for i in t.index]]))"
    )
    asked = json.dumps(made.to_dict())
    done = subprocess.run(
        [sys.executable, "-c", program], input=asked, text=True, capture_output=True, check=True
    )
    schedule, source = made.schedule(), made.prompt_source("r")
    assert made.adapters is not None
    assert json.loads(done.stdout) == [
        schedule.intended.tolist(),
        made.adapters.choose(made.seed, schedule.index).tolist(),
        [source.prompt(int(index)).hash for index in schedule.index],
    ]
