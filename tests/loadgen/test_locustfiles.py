"""Locust's own users and shapes under a policy: every request event is a sample."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_server import Peer, RawServer, answer_all
from replies import whole

from pytest_inferslo.core.arrivals import concurrency
from pytest_inferslo.core.samples import ABSENT
from pytest_inferslo.errors import LoadError
from pytest_inferslo.loadgen.order import LocustLoad

USERS = """
from locust import FastHttpUser, LoadTestShape, constant, task

class Reader(FastHttpUser):
    wait_time = constant(0.02)

    @task
    def ask(self):
        with self.client.post("/v1/chat/completions", json={"messages": []}, catch_response=True) as response:
            response.request_meta["context"].update(ttft=0.5, output_tokens=7)
"""
SHAPE = """
class Step(LoadTestShape):
    def tick(self):
        return (4, 100) if self.get_run_time() < 10 else None
"""


@pytest.fixture
def offer(load: Any, tmp_path: Path) -> Callable[..., Any]:
    def offered(text: str, url: str, **fields: Any) -> Any:
        path = tmp_path / "load_of_ours.py"
        path.write_text(text)
        order = load.order(url, arrivals=concurrency(1), duration=1.0)
        data = {**order.to_dict(), "locustfile": LocustLoad(str(path), **fields).to_dict()}
        order = type(order).from_dict(json.loads(json.dumps(data)))
        return load.read(order, load.generator.offer(order))

    return offered


def test_users_become_samples(offer: Callable[..., Any]) -> None:
    with RawServer(answer_all(whole({"ok": 1}))) as server:
        offered = offer(USERS, server.url, users=3)
    rows = offered.samples
    assert set(offered.outcomes) == {"SUCCESS"}
    assert 20 < len(rows) <= len(server.requests)
    assert set(rows["worker"].tolist()) == {0, 1}
    assert (rows["intended"] == rows["sent"]).all(), "closed loop: latency starts at the send"
    assert (rows["first"] - rows["sent"] == 500_000).all()
    assert (rows["last"] >= rows["sent"]).all()
    assert (rows["output_tokens"] == 7).all()
    assert (rows["prompt_tokens"] == ABSENT).all()
    assert np.ptp(rows["intended"]) > 5e8


def test_failures_are_failures(offer: Callable[..., Any]) -> None:
    def refuses(peer: Peer) -> None:
        while peer.request() is not None:
            peer.send(whole({"error": "busy"}, "503 Service Unavailable"))

    with RawServer(refuses) as server:
        offered = offer(USERS, server.url, users=2)
    assert set(offered.outcomes) == {"HTTP_SERVER_ERROR"}
    assert "503" in offered.result.outcomes["HTTP_SERVER_ERROR"]["example"]


def test_shapes_are_followed(offer: Callable[..., Any]) -> None:
    with RawServer(answer_all(whole({"ok": 1}))) as server:
        offered = offer(USERS + SHAPE, server.url, shape=True)
    assert set(offered.outcomes) == {"SUCCESS"}
    assert set(offered.samples["worker"].tolist()) == {0, 1}
    assert 2 <= server.connections <= 6


@pytest.mark.parametrize(
    ("text", "fields", "said"),
    [
        ("x = 1", {}, "no User class"),
        ("1 / 0", {}, "ZeroDivisionError"),
        (USERS.replace("LoadTestShape, ", ""), {"shape": True}, "no LoadTestShape class"),
    ],
)
def test_files_that_are_no_load(
    offer: Callable[..., Any], text: str, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(LoadError, match=said):
        offer(text, "http://127.0.0.1:1", **fields)


def test_no_such_file(load: Any) -> None:
    order = load.order("http://127.0.0.1:1", arrivals=concurrency(1))
    data = {**order.to_dict(), "locustfile": LocustLoad("/no/such/file.py").to_dict()}
    with pytest.raises(LoadError, match="no such file where this worker runs"):
        load.generator.offer(type(order).from_dict(data))
