"""What a machine was measured to offer, and the scenarios that it refuses."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_inferslo.core.arrivals import Trace, bursts, concurrency, constant, stream
from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.errors import ScenarioError
from pytest_inferslo.loadgen import calibration, envelope
from pytest_inferslo.loadgen.envelope import Envelope

#: 60 % of a core are 10,000 requests/s of one event, or 100,000 events/s.
MACHINE = Envelope("here", 60_000, 6_000, 20e3, 90e3, 40e3)


def scenario(arrivals: Any, tokens: int = 1, **fields: Any) -> Scenario:
    return Scenario(arrivals=arrivals, prompts=synthetic(16, tokens), duration=20, **fields)


@pytest.mark.parametrize(
    ("wanted", "workers"),
    [
        (scenario(constant("9900/s")), 1),
        (scenario(constant("10100/s")), 2),
        (scenario(constant("49000/s")), 5),
        (scenario(constant("4900/s"), tokens=11), 1),
        (scenario(constant("9900/s"), tokens=11), 2),
        (scenario(constant("9900/s"), tokens=11, streaming=False), 1),
        (scenario(bursts("10/s", "30000/s", every="10s", length="2s")), 3),
        (scenario(concurrency(5000), max_in_flight=5000, max_connections=5000), 1),
    ],
)
def test_workers_needed(wanted: Scenario, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "_cpus", lambda: 64)
    assert MACHINE.workers_needed(wanted) == workers
    MACHINE.check(wanted, workers)
    if workers > 1:
        with pytest.raises(
            ScenarioError, match=f"needs {workers} load generator workers; there are {workers - 1}"
        ):
            MACHINE.check(wanted, workers - 1)


def _replayed(tokens: int) -> Scenario:
    rows = [(second * 10**9, 16, tokens) for second in range(20)] * 100
    return Scenario(arrivals=Trace.of(rows), prompts=synthetic(16, 1), duration=19)


@pytest.mark.parametrize(
    ("wanted", "workers"),
    [
        # embeddings have no events: long answers beside them do not make them dear
        ([stream("chat", constant("10/s")), stream("search", constant("5000/s"), api="embeddings")], 1),
        ([stream("chat", constant("400/s")), stream("search", constant("5000/s"), api="embeddings")], 3),
    ],
)
def test_streams_cost_what_they_ask_for(wanted: list[Any], workers: int) -> None:
    assert MACHINE.workers_needed(scenario(wanted, tokens=512)) == workers


@pytest.mark.parametrize(("tokens", "workers"), [(10, 1), (4000, 5)])
def test_a_trace_says_how_long_its_answers_are(tokens: int, workers: int) -> None:
    assert MACHINE.workers_needed(_replayed(tokens)) == workers


def test_workers_without_a_cpu_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "_cpus", lambda: 2)
    MACHINE.check(scenario(constant("49000/s")), 2, 3)
    with pytest.raises(ScenarioError, match=r"there are 4 \(16 asked for on 2 CPUs\)"):
        MACHINE.check(scenario(constant("49000/s")), 16, 2)


def test_the_refusal_names_hosts_where_cpus_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for cpus, said in ((64, "--inferslo-workers 5"), (2, "--inferslo-expect-workers")):
        monkeypatch.setattr(envelope, "_cpus", lambda cpus=cpus: cpus)
        with pytest.raises(ScenarioError, match=said):
            MACHINE.check(scenario(constant("49000/s")), 1)


def test_the_cache_is_of_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERSLO_CACHE", str(tmp_path))
    assert envelope.cached() is None
    mine = replace(MACHINE, fingerprint=envelope.fingerprint())
    envelope.save(mine)
    assert envelope.cached() == mine
    envelope.save(MACHINE)
    assert envelope.cached() is None
    next(tmp_path.glob("*.json")).write_text("{")
    assert envelope.cached() is None


def test_calibrate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INFERSLO_CACHE", str(tmp_path))
    parser = argparse.ArgumentParser()
    calibration.add_arguments(parser)
    assert calibration.run(parser.parse_args(["--show"])) == 4
    assert calibration.run(parser.parse_args(["--seconds", "0.3"])) == 0
    measured = envelope.cached()
    assert measured is not None
    assert 1_000 < measured.request_ns < 5_000_000
    assert 200 < measured.event_ns < 1_000_000
    assert 0 < measured.ttft_p50_ns < 1e9
    assert calibration.ensure() == measured
    assert "requests of one event" in capsys.readouterr().out
