"""The engine against servers that do what servers do: through a real master and two workers, over real
sockets.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from raw_server import ANSWER, Peer, RawServer, answer_all
from replies import STREAM_HEAD, chunk, delta, event, whole

from pytest_inferslo.core.adapters import adapters
from pytest_inferslo.core.arrivals import concurrency, constant, poisson, stream, streams
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.scenario import Timeouts
from pytest_inferslo.errors import LoadError
from pytest_inferslo.loadgen.build import engine_build

HALF = STREAM_HEAD + chunk(event(delta("a")))


def test_a_plain_load(load: Any) -> None:
    with RawServer(answer_all()) as server:
        offered = load(server.url)
    assert offered.outcomes == {"SUCCESS": 20}
    rows = offered.samples
    assert rows["intended"].tolist() == [k * 20_000_000 for k in range(20)]
    assert set(rows["worker"].tolist()) == {0, 1}
    assert (rows["sent"] >= rows["intended"]).all()
    assert (
        (rows["sent"] <= rows["first"]) & (rows["first"] <= rows["last"]) & (rows["last"] <= rows["end"])
    ).all()
    assert (rows["output_tokens"] == 2).all()
    assert len(set(rows["prompt_hash"].tolist())) == 20
    assert len(server.requests) == 20
    line, headers, body = server.requests[0]
    assert line == "POST /v1/chat/completions HTTP/1.1"
    assert (headers["host"], headers["accept-encoding"]) == (f"127.0.0.1:{server.port}", "identity")
    assert (body["model"], body["stream"], body["max_tokens"]) == ("m", True, 4)


def test_the_record_says_how_the_engine_runs(load: Any) -> None:
    """`make test-compiled` names the build that it means to test."""
    with RawServer(answer_all()) as server:
        offered = load(server.url)
    expected = os.environ.get("INFERSLO_TEST_ENGINE") or engine_build()
    assert [worker["engine"] for worker in offered.result.workers] == [expected] * 2


def stays_silent(peer: Peer) -> None:
    peer.request()
    time.sleep(8)


def stalls(peer: Peer) -> None:
    peer.request()
    peer.send(HALF)
    time.sleep(8)


def trickles(peer: Peer) -> None:
    peer.request()
    peer.send(STREAM_HEAD)
    for _ in range(60):
        peer.send(chunk(event(delta("a"))))
        time.sleep(0.05)


def resets(peer: Peer) -> None:
    peer.request()
    peer.send(HALF)
    time.sleep(0.02)
    peer.reset()


def cuts(peer: Peer) -> None:
    peer.request()
    peer.send(HALF)


def hangs_up(peer: Peer) -> None:
    peer.request()


@pytest.mark.parametrize(
    ("play", "outcome", "timeouts"),
    [
        (stays_silent, "TIMEOUT_FIRST_OUTPUT", {"first_output": 0.4}),
        (stalls, "TIMEOUT_STALL", {"stall": 0.3}),
        (trickles, "TIMEOUT_TOTAL", {"total": 0.6}),
        (resets, "RESET", {}),
        (cuts, "TRUNCATED", {}),
        (hangs_up, "TRUNCATED", {}),
        (answer_all(whole({"error": "no"}, "500 Internal Server Error")), "HTTP_SERVER_ERROR", {}),
    ],
)
def test_case_5_each_failure_has_its_own_name(
    load: Any, play: Any, outcome: str, timeouts: dict[str, float]
) -> None:
    with RawServer(play) as server:
        offered = load(server.url, timeouts=Timeouts(**timeouts))
    assert offered.outcomes == {outcome: 20}
    assert offered.result.outcomes[outcome]["count"] == 20
    assert offered.result.outcomes[outcome]["example"]
    assert len(server.requests) == 20, "never tried again"


def test_nobody_listens(load: Any) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    assert load(f"http://127.0.0.1:{port}").outcomes == {"CONNECT_REFUSED": 20}


def test_no_such_host(load: Any) -> None:
    assert load("http://no-such-host.invalid:80").outcomes == {"CONNECT_ERROR": 20}


def test_a_host_that_does_not_answer(load: Any) -> None:
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as listener:
        waiting = []
        for _ in range(4):
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(listener.getsockname())
        port = listener.getsockname()[1]
        offered = load(f"http://127.0.0.1:{port}", timeouts=Timeouts(connect=0.3))
        for sock in waiting:
            sock.close()
    assert offered.outcomes == {"CONNECT_TIMEOUT": 20}


def test_case_9_unfinished_at_the_end_of_the_drain(load: Any) -> None:
    with RawServer(stalls) as server:
        offered = load(server.url, drain=1.0)
    assert offered.outcomes == {"UNFINISHED": 20}
    assert offered.result.counts["unfinished"] == 20


def test_case_10_a_failure_stays_one(load: Any) -> None:
    def every_other(peer: Peer) -> None:
        while peer.request() is not None:
            bad = len(server.requests) % 2
            peer.send(whole({"error": "busy"}, "503 Service Unavailable") if bad else ANSWER)

    with RawServer(every_other) as server:
        offered = load(server.url)
    assert len(server.requests) == 20
    assert offered.outcomes == {"HTTP_SERVER_ERROR": 10, "SUCCESS": 10}


def test_caps_mean_never_sent(load: Any) -> None:
    def slow(peer: Peer) -> None:
        while peer.request() is not None:
            time.sleep(0.5)
            peer.send(ANSWER)

    for caps in ({"max_in_flight": 2}, {"max_connections": 2}):
        with RawServer(slow) as server:
            offered = load(server.url, **caps)
        assert offered.outcomes["NEVER_SENT"] == 20 - offered.outcomes["SUCCESS"] > 10
        never = offered.samples[offered.samples["outcome"] == 2]
        assert (never["sent"] == -1).all()
        assert len(server.requests) == offered.outcomes["SUCCESS"]


def closes_by_header(peer: Peer) -> None:
    peer.request()
    peer.send(ANSWER.replace(b"Content-Type", b"Connection: close\r\nContent-Type", 1))


def closes_silently(peer: Peer) -> None:
    peer.request()
    peer.send(ANSWER)
    time.sleep(0.005)


@pytest.mark.parametrize("play", [closes_by_header, closes_silently])
def test_connections_that_the_server_closes_are_replaced(load: Any, play: Any) -> None:
    with RawServer(play) as server:
        offered = load(server.url)
    assert offered.outcomes == {"SUCCESS": 20}
    assert server.connections >= 20


def test_bytes_on_an_idle_connection_are_counted_not_answers(load: Any) -> None:
    def talkative(peer: Peer) -> None:
        while peer.request() is not None:
            peer.send(ANSWER)
            time.sleep(0.005)
            peer.send(ANSWER)

    with RawServer(talkative) as server:
        offered = load(server.url)  # the last two may come when the load is over
    assert offered.outcomes == {"SUCCESS": 20}
    assert sum(worker["unsolicited"] for worker in offered.result.workers) >= 16


def test_a_keep_alive_that_ends_as_the_request_leaves(load: Any) -> None:
    """Nothing of it was answered: sent again, once, on a new connection, and its time runs on."""

    def gives_up_idle(peer: Peer) -> None:
        peer.request()
        peer.send(ANSWER)
        if peer.request() is not None:  # swallowed: closed without a byte
            server.requests.pop()

    with RawServer(gives_up_idle) as server:
        offered = load(server.url, arrivals=constant("1/s"), duration=3.5, max_connections=2)
    replaced = sum(worker["replaced_connections"] for worker in offered.result.workers)
    # on a crowded machine a close may come too late to count as a race
    assert (offered.outcomes["SUCCESS"], replaced) in ((4, 2), (3, 1))


def test_tls(load: Any, certificate: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with RawServer(answer_all(), tls=context) as server:
        url = f"https://localhost:{server.port}"
        trusted = load(Endpoint(url, "m", ca_file=str(certificate)))
        unverified = load(Endpoint(url.replace("localhost", "127.0.0.1"), "m", verify_tls=False))
        refused = load(Endpoint(url, "m"))
    assert trusted.outcomes == unverified.outcomes == {"SUCCESS": 20}
    assert refused.outcomes == {"TLS_ERROR": 20}
    assert "certificate" in refused.result.outcomes["TLS_ERROR"]["example"].lower()


def _says_goodbye(peer: Peer) -> None:
    """As asyncio's servers do: close_notify, and the socket stays open until the client has closed too."""
    peer.request()
    peer.send(ANSWER)
    peer.sock.settimeout(3)
    cast(ssl.SSLSocket, peer.sock).unwrap()


def _breaks_tls_when_idle(peer: Peer) -> None:
    peer.request()
    peer.send(ANSWER)
    time.sleep(0.005)
    socket.socket.send(peer.sock, b"no record of TLS")
    peer.sock.settimeout(3)
    peer.sock.recv(1)


@pytest.mark.parametrize(("play", "unsolicited"), [(_says_goodbye, False), (_breaks_tls_when_idle, True)])
def test_tls_that_ends_on_an_idle_connection(
    load: Any, certificate: Path, play: Callable[[Peer], None], unsolicited: bool
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with RawServer(play, tls=context) as server:
        endpoint = Endpoint(f"https://localhost:{server.port}", "m", ca_file=str(certificate))
        offered = load(endpoint, arrivals=constant("20/s"), duration=0.5)
    assert offered.outcomes == {"SUCCESS": 10}
    assert any(worker["unsolicited"] for worker in offered.result.workers) is unsolicited


def test_plain_http_where_tls_is_expected(load: Any) -> None:
    with RawServer(lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        assert load(server.url.replace("http", "https")).outcomes == {"TLS_ERROR": 20}


def test_ipv6(load: Any) -> None:
    with RawServer(answer_all(), host="::1") as server:
        assert load(server.url).outcomes == {"SUCCESS": 20}
    assert server.requests[0][1]["host"] == f"[::1]:{server.port}"


def test_a_name_with_a_dead_address_first(load: Any) -> None:
    """`localhost` may resolve to ::1 first: the address that answers is kept."""
    with RawServer(answer_all()) as server:
        assert load(f"http://localhost:{server.port}").outcomes["SUCCESS"] >= 18


def test_keys_headers_and_prefix(load: Any) -> None:
    with RawServer(answer_all()) as server:
        endpoint = Endpoint(
            f"{server.url}/team/a/", "m", headers={"X-Team": "a"}, api_key_env="INFERSLO_TEST_KEY"
        )
        load(endpoint, extra_body={"temperature": 0})
    line, headers, body = server.requests[0]
    assert line.split()[1] == "/team/a/v1/chat/completions"
    assert (headers["authorization"], headers["x-team"], body["temperature"]) == ("Bearer sesame", "a", 0)


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        (Endpoint("http://127.0.0.1:1", "m", api_key_env="NO_SUCH_KEY"), "NO_SUCH_KEY"),
        (Endpoint("http://127.0.0.1:1", "m", headers={"X": "a\r\nY: b"}), "no header that can be sent"),
        (Endpoint("http://127.0.0.1:1", "m", headers={"Host": "x"}), "the load engine's own"),
        (Endpoint("ftp://127.0.0.1:1", "m"), "no http:// or https:// address"),
    ],
)
def test_orders_that_no_worker_can_take(load: Any, endpoint: Endpoint, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        load(endpoint)


def test_endpoints_by_weight(load: Any) -> None:
    with RawServer(answer_all()) as one, RawServer(answer_all()) as two:
        urls = [Endpoint(one.url, "m", "one", weight=3.0), Endpoint(two.url, "m", "two")]
        offered = load(*urls, arrivals=constant("400/s"), duration=0.5)
        named = load(*urls, endpoints={"two": 1.0})
    assert offered.outcomes == {"SUCCESS": 200}
    sent_to_one = int((offered.samples["endpoint"] == 0).sum())
    assert sent_to_one == len(one.requests)
    assert 0.6 < sent_to_one / 200 < 0.9
    assert (named.samples["endpoint"] == 1).all()


@pytest.mark.parametrize("header", [None, "X-Adapter"])
def test_adapters_by_model_or_header(load: Any, header: str | None) -> None:
    chosen = adapters(["x", "y"], {"x": 0.25, "y": 0.75}, header=header, base=0.2)
    with RawServer(answer_all()) as server:
        offered = load(
            server.url, names=("y", "x"), adapters=chosen, arrivals=constant("400/s"), duration=0.5
        )
    names = [h.get("x-adapter", "m") if header else b["model"] for _, h, b in server.requests]
    recorded = [{0: "y", 1: "x", -1: "m"}[place] for place in offered.samples["adapter"].tolist()]
    assert sorted(names) == sorted(recorded)
    assert set(names) == {"x", "y", "m"}
    assert names.count("y") > names.count("x") > 5
    assert all(body["model"] == "m" for _, _, body in server.requests) == bool(header)


def test_closed_loop(load: Any) -> None:
    now, most = [0], [0]
    lock = threading.Lock()

    def counting(peer: Peer) -> None:
        while peer.request() is not None:
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            time.sleep(0.03)
            with lock:
                now[0] -= 1
            peer.send(ANSWER)

    with RawServer(counting) as server:
        offered = load(server.url, arrivals=concurrency(4, think=0.01), duration=0.6)
    assert set(offered.outcomes) == {"SUCCESS"}
    assert 2 <= most[0] <= 4
    rows = offered.samples
    assert 20 < len(rows) == len(server.requests) <= 64
    for user in range(4):
        mine = rows[rows["index"] % 4 == user]
        assert mine["index"].tolist() == [user + 4 * turn for turn in range(len(mine))]
        thought = mine["intended"][1:] - mine["end"][:-1]
        assert (thought == 10_000_000).all()


def test_a_worker_without_a_user_is_idle(load: Any) -> None:
    """Its load has ended before it began: its CPU time over those microseconds would be that of a busy one."""
    with RawServer(answer_all(ANSWER)) as server:
        offered = load(server.url, arrivals=concurrency(1), duration=0.3)
    assert set(offered.outcomes) == {"SUCCESS"}
    issued = {worker["index"]: worker["issued"] for worker in offered.result.workers}
    assert issued == {0: len(offered.samples), 1: 0}
    assert all(worker["cpu_share"] < 0.5 for worker in offered.result.workers if not worker["issued"])


def test_closed_loop_goes_on_after_failures(load: Any) -> None:
    with RawServer(hangs_up) as server:
        offered = load(server.url, arrivals=concurrency(2, think=0.02), duration=0.4)
    assert set(offered.outcomes) == {"TRUNCATED"}
    assert len(offered.samples) > 10


def test_streams_of_different_apis_share_connections(load: Any) -> None:
    def both(peer: Peer) -> None:
        while (body := peer.request()) is not None:
            peer.send(ANSWER if "messages" in body else whole({"data": [{"embedding": [1.0]}]}))

    arrivals = streams(
        stream("chat", constant("50/s")),
        stream("embed", constant("25/s"), api="embeddings", prompts=synthetic(8)),
    )
    with RawServer(both) as server:
        offered = load(server.url, arrivals=arrivals)
    assert offered.outcomes == {"SUCCESS": 30}
    assert offered.samples["stream"].tolist().count(1) == 10
    assert sum("embeddings" in line for line, _, _ in server.requests) == 10


def test_the_load_does_not_depend_on_the_workers(load: Any) -> None:
    """Same seed, same requests, whoever sends them."""
    with RawServer(answer_all()) as server:
        first, again = load(server.url), load(server.url)
    assert first.samples["intended"].tolist() == again.samples["intended"].tolist()
    assert set(first.samples["prompt_hash"].tolist()).isdisjoint(again.samples["prompt_hash"].tolist())


def test_the_order_has_the_seed(load: Any) -> None:
    """Repeats have seeds of their own: of a Poisson load each is another number of requests."""
    with RawServer(answer_all()) as server:
        counts = []
        for seed in (1, 2, 3):
            order = replace(load.order(server.url, arrivals=poisson("200/s")), seed=seed)
            counts.append(len(load.read(order, load.generator.offer(order)).samples))
    assert len(set(counts)) > 1


def test_a_fault_of_the_engine_ends_the_load_and_is_told(load: Any) -> None:
    """Here: a prompt that cannot be made; every request is on record all the same."""
    with RawServer(answer_all()) as server:
        order = load.order(server.url, extra_body={"model": "x"}, duration=2)
        order.scenario["extra_body"] = {"big": 2**70}
        with pytest.raises(LoadError, match="Integer exceeds 64-bit range"):
            load.generator.offer(order)
        assert load(server.url).outcomes == {"SUCCESS": 20}


def test_a_closed_loop_outlives_connections_that_fail_before_it_begins(load: Any) -> None:
    """One of two endpoints is down: connections are opened ahead of the load, and those fail."""
    with RawServer(answer_all()) as server:
        offered = load(server.url, "http://127.0.0.1:9", arrivals=concurrency(4, think=0.02), duration=0.5)
    assert set(offered.outcomes) == {"SUCCESS", "CONNECT_REFUSED"}
    assert min(offered.outcomes.values()) > 5


def test_users_whose_requests_fail_at_once_leave_time_for_the_others(load: Any) -> None:
    """A name that does not resolve fails without a wait: its users ask again after a pause."""
    with RawServer(answer_all()) as server:
        offered = load(server.url, "http://no.such.name.invalid:9", arrivals=concurrency(4), duration=0.6)
    assert set(offered.outcomes) == {"SUCCESS", "CONNECT_ERROR"}
    assert offered.outcomes["CONNECT_ERROR"] <= 4 * 60 + 4
    assert offered.outcomes["SUCCESS"] > 60


def test_a_request_that_was_answered_before_it_was_sent_whole_ends_its_connection(load: Any) -> None:
    """The rest of it must not be lost, nor the next request be mixed with it."""
    heads: list[bytes] = []

    def answers_early(peer: Peer) -> None:
        while head := peer.head():
            heads.append(head.split(b" ", 1)[0])
            peer.send(ANSWER)
            time.sleep(0.8)
            peer.skip(int(head.lower().partition(b"content-length: ")[2].split()[0]))

    with RawServer(answers_early) as server:
        offered = load(
            server.url, arrivals=constant("4/s"), duration=1.0, extra_body={"pad": "x" * 20_000_000}
        )
    assert offered.outcomes == {"SUCCESS": 4}
    assert heads == [b"POST"] * 4
