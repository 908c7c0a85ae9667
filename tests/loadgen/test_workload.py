"""Prepared requests: each row takes its own, however the rows are split over workers and in whatever order they go."""

from __future__ import annotations

import random

import orjson
import pytest

from pytest_inferslo.core.arrivals import concurrency, constant
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.loadgen import workload
from pytest_inferslo.loadgen.order import LoadOrder
from pytest_inferslo.loadgen.workload import Workload


@pytest.fixture(autouse=True)
def _not_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "_CLOSED_AHEAD_NS", 2_000_000)
    monkeypatch.setattr(workload, "_AHEAD_BYTES", 40_000)


def order(scenario: Scenario) -> LoadOrder:
    endpoints = [Endpoint(f"http://127.0.0.1:{port}", f"m{port}").to_dict() for port in (1, 2)]
    return LoadOrder(scenario.to_dict(), endpoints, [], 7, "run")


def prepared(scenario: Scenario, worker: int, workers: int) -> Workload:
    made = Workload(order(scenario), worker, workers)
    made.prepare()
    return made


def check(made: Workload, scenario: Scenario, row: int) -> None:
    """The request that `row` takes is that of its index, to the endpoint of its place."""
    request, prompt_hash = made.request(row)
    source = scenario.prompt_source("run", 0)
    warm_up = made.intended[row] < scenario.window_ns[0]
    prompt = source.prompt(made.index[row], warm_up=warm_up)
    body = orjson.loads(request.partition(b"\r\n\r\n")[2])
    assert prompt_hash == prompt.hash
    assert body["max_tokens"] == prompt.max_tokens
    assert body["model"] == f"m{made.places[row][1] + 1}"


@pytest.mark.parametrize("warmup", [0, 1])
@pytest.mark.parametrize(("users", "workers"), [(1, 1), (1, 3), (2, 3), (5, 3), (7, 2)])
def test_each_request_of_a_user_is_its_own(users: int, workers: int, warmup: float) -> None:
    """Also with fewer users than workers: one of them has nothing to do, and is ready at once."""
    scenario = Scenario(concurrency(users), synthetic((4, 40), (1, 90)), duration=9, warmup=warmup, seed=7)
    seen = []
    for worker in range(workers):
        made = prepared(scenario, worker, workers)
        turns = {made.index[row]: row for row in range(len(made))}
        for number in range(300 if turns else 0):
            user = random.Random(number).choice(list(turns))
            row = turns[user]
            check(made, scenario, row)
            turns[user] = made.add_row(made.index[row] + users, made.intended[row] + 10_000_000)
            seen.append(made.index[row])
    assert len(set(seen)) == len(seen)
    assert {index % users for index in seen} == set(range(users))


@pytest.mark.parametrize("workers", [1, 3])
def test_each_request_of_an_open_loop_is_its_own(workers: int) -> None:
    """Beyond what is prepared ahead, with more prepared while the load runs."""
    scenario = Scenario(constant("200/s"), synthetic((4, 40), (1, 90)), duration=2, warmup=1, seed=7)
    seen = []
    for worker in range(workers):
        made = prepared(scenario, worker, workers)
        for row in range(len(made)):
            check(made, scenario, row)
            if row % 3:
                made.prepare_one()
            seen.append(made.index[row])
    assert sorted(seen) == list(range(600))
