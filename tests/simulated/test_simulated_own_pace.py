"""What a gate learns of a simulator that cannot keep its own pace."""

from __future__ import annotations

from pytest_inferslo.backends.simulated.engine import Engine
from pytest_inferslo.backends.simulated.metrics import render_engine
from pytest_inferslo.backends.simulated.pace import Pace
from pytest_inferslo.backends.simulated.profile import Profile
from pytest_inferslo.backends.simulated_pace import SimulatedPace, between, read_pace


class Timer:
    def arm(self, deadline: float) -> None: ...

    def close(self) -> None: ...


def page(lags: list[float], resyncs: int = 0) -> str:
    engine = Engine(Profile("plain"))
    pace = Pace(engine, lambda requests: None, lambda: 0.0, lambda callback: Timer())
    for lag in lags:
        pace.lags.observe(lag)
    pace.resyncs = resyncs
    return render_engine(engine, 'a "model" le="9"', pace)


def paces(**pages: str) -> dict[str, SimulatedPace]:
    return {name: pace for name, text in pages.items() if (pace := read_pace(text)) is not None}


def test_only_what_came_in_between_counts() -> None:
    before = [0.4] * 50
    after = [*before, *[0.0001] * 98, 0.03, 0.03]
    assert between(paces(sim=page(before, 2)), paces(sim=page(after, 3))) == {
        "steps": 100,
        "lag_p99_ns": 50_000_000,
        "resyncs": 1,
    }


def test_the_worst_of_several_counts() -> None:
    quiet = {"a": page([]), "b": page([])}
    seen = between(paces(**quiet), paces(a=page([0.0005]), b=page([25.0])))
    assert seen == {"steps": 1, "lag_p99_ns": 10_000_000_000, "resyncs": 0}


def test_idle_is_not_late() -> None:
    assert between(paces(sim=page([1.5])), paces(sim=page([1.5]))) == {
        "steps": 0,
        "lag_p99_ns": 0,
        "resyncs": 0,
    }


def test_what_could_not_be_read_twice_is_not_known() -> None:
    assert read_pace("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1.0\n") is None
    assert between(paces(), paces()) is None
    assert between(paces(a=page([]), b=page([])), paces(a=page([]))) is None
