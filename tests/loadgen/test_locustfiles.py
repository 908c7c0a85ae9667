"""Locust's own users and shapes under a policy: every request event is a sample."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_server import Peer, RawServer, answer_all
from replies import STREAM_HEAD, whole

from pytest_inferslo.core.arrivals import concurrency
from pytest_inferslo.core.samples import ABSENT, Outcome
from pytest_inferslo.errors import LoadError
from pytest_inferslo.loadgen.order import LocustLoad
from pytest_inferslo.locust_order import locust_order

USERS = """
from locust import FastHttpUser, LoadTestShape, constant, task

class Reader(FastHttpUser):
    wait_time = constant(0.02)

    @task
    def ask(self):
        with self.client.post("/v1/chat/completions", json={"messages": []}, catch_response=True) as response:
            response.request_meta["context"].update(ttft=0.05, output_tokens=7)
"""
SHAPE = """
class Step(LoadTestShape):
    def tick(self):
        return (4, 100) if self.get_run_time() < 10 else None
"""


STREAMED = """
from locust import CLIENT, constant, task

class Reader(CLIENT):
    wait_time = constant(0.02)

    @task
    def ask(self):
        with self.client.post("/v1/x", json={}, stream=True, catch_response=True) as response:
            PIECES
"""
PIECES = {
    "HttpUser": "for piece in response.iter_content(10): pass",
    "FastHttpUser": "while response.stream.read(10): pass",
}
PLAIN = """
from locust import HttpUser, constant, task

class Reader(HttpUser):
    wait_time = constant(0.02)

    @task
    def ask(self):
        self.client.post("/v1/x", json={}, MORE)
"""


@pytest.fixture
def ordered(load: Any, tmp_path: Path) -> Callable[..., Any]:
    def order_of(text: str, url: str, drain: float = 5.0, **fields: Any) -> Any:
        path = tmp_path / "load_of_ours.py"
        path.write_text(text)
        order = load.order(url, arrivals=concurrency(1), duration=1.0, drain=drain)
        data = {**order.to_dict(), "locustfile": LocustLoad(str(path), **fields).to_dict()}
        return type(order).from_dict(json.loads(json.dumps(data)))

    return order_of


@pytest.fixture
def offer(load: Any, ordered: Callable[..., Any]) -> Callable[..., Any]:
    def offered(text: str, url: str, **fields: Any) -> Any:
        order = ordered(text, url, **fields)
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
    assert (rows["first"] - rows["sent"] == 50_000).all()
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


@pytest.mark.parametrize("client", PIECES)
def test_a_stream_lasts_until_it_was_read(offer: Callable[..., Any], client: str) -> None:
    def slow(peer: Peer) -> None:
        while peer.request() is not None:
            data = whole({"ok": 1})
            peer.send(data[:-4])
            time.sleep(0.1)
            peer.send(data[-4:])

    with RawServer(slow) as server:
        offered = offer(
            STREAMED.replace("CLIENT", client).replace("PIECES", PIECES[client]), server.url, users=2
        )
    rows = offered.samples
    assert set(offered.outcomes) == {"SUCCESS"}
    assert (rows["last"] - rows["sent"] >= 100_000_000).all(), "Locust's own time stops at the headers"


@pytest.mark.parametrize("client", PIECES)
def test_a_stream_that_breaks_off_is_a_failure(offer: Callable[..., Any], client: str) -> None:
    def breaks(peer: Peer) -> None:
        while peer.request() is not None:
            peer.send(whole({"ok": 1})[:-4])
            time.sleep(0.01)
            peer.reset()

    with RawServer(breaks) as server:
        offered = offer(
            STREAMED.replace("CLIENT", client).replace("PIECES", PIECES[client]), server.url, users=2
        )
    assert len(offered.samples) > 4
    assert "SUCCESS" not in offered.outcomes


@pytest.mark.parametrize(
    "text", [PLAIN, STREAMED.replace("CLIENT", "HttpUser").replace("PIECES", PIECES["HttpUser"])]
)
@pytest.mark.parametrize("sent", [b"", STREAM_HEAD], ids=["silent", "head"])
def test_a_request_without_an_answer_is_unfinished(offer: Callable[..., Any], text: str, sent: bytes) -> None:
    def hangs(peer: Peer) -> None:
        for _ in range(3):
            if peer.request() is not None:
                peer.send(whole({"ok": 1}))
        peer.request()
        peer.send(sent)
        time.sleep(4)

    with RawServer(hangs) as server:
        offered = offer(text.replace("MORE", ""), server.url, users=4, drain=0.2)
    assert offered.outcomes == {"SUCCESS": 12, "UNFINISHED": 4}
    unfinished = offered.samples[offered.samples["outcome"] == Outcome.UNFINISHED]
    assert (unfinished["intended"] < 1_000_000_000).all(), "they count where they began"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("stream=True", "ends at its headers"),
        ("context={'ttft': 'soon'}", "no number: could not convert string to float: 'soon'"),
        ("context={'ttft': float('nan')}", "no number"),
    ],
)
def test_what_cannot_be_measured_is_told(
    load: Any, ordered: Callable[..., Any], more: str, said: str
) -> None:
    with RawServer(answer_all(whole({"ok": 1}))) as server:
        result = load.generator.offer(ordered(PLAIN.replace("MORE", more), server.url))
    assert said in result.errors[0]


def test_the_end_of_a_load_stops_its_users(load: Any, ordered: Callable[..., Any]) -> None:
    with RawServer(answer_all(whole({"ok": 1}))) as server:
        order = ordered(PLAIN.replace("MORE", "context={'output_tokens': None}"), server.url, users=2)
        result = load.generator.offer(
            order, should_stop=lambda: "enough" if len(server.requests) > 5 else None
        )
        sent = len(server.requests)
        time.sleep(0.3)
    assert result.stopped_early == "enough"
    assert result.counts["intended"] <= sent
    assert len(server.requests) <= sent + 2


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


def test_users_of_a_locustfile_know_no_caps(tmp_path: Path) -> None:
    (tmp_path / "l.py").write_text(USERS)
    scenario, asked = locust_order("l.py", near=tmp_path, duration="1s", users=9000)
    assert asked.users == getattr(scenario.arrivals, "users") == 9000  # noqa: B009


def test_no_such_file(load: Any) -> None:
    order = load.order("http://127.0.0.1:1", arrivals=concurrency(1))
    data = {**order.to_dict(), "locustfile": LocustLoad("/no/such/file.py").to_dict()}
    with pytest.raises(LoadError, match="no such file where this worker runs"):
        load.generator.offer(type(order).from_dict(data))
