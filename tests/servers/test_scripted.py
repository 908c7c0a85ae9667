"""The scripted server does what its script says, byte by byte, and logs what it did."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_inferslo.cli import main
from pytest_inferslo.servers.scripted import ScriptedServer, scripted
from pytest_inferslo.servers.scripted_cli import load_script

MS = 1_000_000


@contextmanager
def playing(tmp_path: Path, steps: str, top: str = "") -> Iterator[ScriptedServer]:
    path = tmp_path / "script.yaml"
    path.write_text(f"{top}\nanswers:\n  - steps: {steps}\n" if "answers:" not in steps else steps)
    with scripted(load_script(path)) as server:
        yield server


def ask(server: ScriptedServer, body: object = None, path: str = "/v1/chat/completions") -> bytes:
    """Everything that comes until the peer closes or 0.5 s pass in silence."""
    data = json.dumps({"stream": True} if body is None else body).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(
            b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(data), data)
        )
        connection.settimeout(0.5)
        seen = b""
        try:
            while piece := connection.recv(65536):
                seen += piece
                if seen.endswith(b"0\r\n\r\n") or whole(seen):
                    break
        except TimeoutError:
            seen += b"<silence>"
        except ConnectionResetError:
            seen += b"<reset>"
        else:
            seen += b"" if piece else b"<closed>"
        return seen


def whole(seen: bytes) -> bool:
    head, found, body = seen.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return bool(found and length and len(body) == int(length[1]))


def body_of(seen: bytes) -> bytes:
    return seen.split(b"\r\n\r\n", 1)[1]


@pytest.mark.parametrize(
    ("steps", "seen"),
    [
        ('[head: 200, chunk: "ab", end]', b"2\r\nab\r\n0\r\n\r\n"),
        ('[{head: {length: 3}}, chunk: "ab", close]', b"ab<closed>"),
        ("[{head: {length: until close}}, {chunk: abc}, close]", b"abc<closed>"),
        ("[{head: 200}, {chunk: abc}, {wait: 20ms}, reset]", b"3\r\nabc\r\n<reset>"),
        ("[{head: 200}, {chunk: abc}, hang]", b"3\r\nabc\r\n<silence>"),
        ("[hang]", b"<silence>"),
        ("[close]", b"<closed>"),
        ('[{head: 200}, {hex: "e2 82"}, {hex: ac}, end]', b"2\r\n\xe2\x82\r\n1\r\n\xac\r\n0\r\n\r\n"),
        ("[{head: 200}, {event: {a: [1, 2.5, null, true]}}, end]",
         b'23\r\ndata: {"a":[1,2.5,null,true]}\n\n\r\n0\r\n\r\n'.replace(b"23", b"1f")),
        ("[{head: 200}, {repeat: {times: 3, steps: [{chunk: x}]}}, end]", b"1\r\nx\r\n" * 3 + b"0\r\n\r\n"),
    ],
)  # fmt: skip
def test_exactly_these_bytes(tmp_path: Path, steps: str, seen: bytes) -> None:
    with playing(tmp_path, steps) as server:
        answered = ask(server)
    assert (answered if answered.startswith(b"<") else body_of(answered)) == seen


def test_raw_bytes_need_no_head(tmp_path: Path) -> None:
    with playing(tmp_path, r'[{send: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}]') as server:
        assert ask(server) == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("api", ["chat", "completions", "responses", "generate_stream"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_good_answer_in_every_api(tmp_path: Path, api: str, stream: bool) -> None:
    top = f"api: {api}\nmodel: m"
    with playing(tmp_path, "[{answer: {tokens: 3, first: 5ms, every: 2ms, reasoning: 1}}]", top) as server:
        seen = ask(server, {"stream": stream, "max_tokens": 99})
    assert seen.startswith(b"HTTP/1.1 200 ")
    assert b"<" not in seen[-9:]
    assert b"w0" in seen
    assert b"w2" in seen
    assert len(server.log[0].outputs) == (3 if stream else 1)
    assert (b"text/event-stream" in seen) == stream
    if stream and api in ("chat", "completions"):
        assert seen.count(b"[DONE]") == 1
        assert b'"completion_tokens":3' in seen


def test_tokens_are_as_many_as_were_asked_for(tmp_path: Path) -> None:
    with playing(tmp_path, "[{answer: {per_event: 4}}]") as server:
        ask(server, {"stream": True, "max_tokens": 10})
    assert server.log[0].tokens == 10
    assert len(server.log[0].outputs) == 3


RULES = """
uncounted: 1
answers:
  - {when: first 2, steps: [{reply: 503}]}
  - {when: every 2nd, steps: [{reply: {status: 429, headers: {retry-after: "1"}}}]}
  - {path: /v1/embeddings, steps: [{reply: {json: {data: []}}}]}
  - {when: after 5, steps: [{reply: 204}]}
"""


def test_the_first_answer_that_fits_is_played(tmp_path: Path) -> None:
    with playing(tmp_path, RULES) as server:
        paths = ["/v1/chat/completions"] * 5 + ["/v1/embeddings", "/v1/chat/completions"]
        codes = [int(ask(server, path=path)[9:12]) for path in paths]
        # uncounted, 1, 2, 3 (no answer fits), 4, 5 by its path, 6
        assert codes == [200, 503, 503, 501, 429, 200, 429]
        assert [played.number for played in server.log] == [0, 1, 2, 4, 5, 6]
        assert [played.line for played in server.log] == [0, 4, 4, 5, 6, 5]


def test_retries_of_one_body_are_told_from_new_ones(tmp_path: Path) -> None:
    text = "answers:\n  - {when: try 1, steps: [{reply: 503}]}\n  - {when: try 2, steps: [{reply: 200}]}\n"
    with playing(tmp_path, text) as server:
        codes = [ask(server, {"prompt": prompt})[9:12] for prompt in ("a", "a", "b", "b")]
    assert codes == [b"503", b"200", b"503", b"200"]


def test_bytes_are_cut_where_the_script_says(tmp_path: Path) -> None:
    steps = "[{head: 200}, {split: {at: [4, 9], pause: 30ms, steps: [{token: Hi}]}}, end]"
    with playing(tmp_path, steps) as server:
        begin = time.monotonic_ns()
        seen = ask(server)
        assert time.monotonic_ns() - begin >= 60 * MS
    assert body_of(seen).startswith(b"a1\r\ndata: {")
    assert len(server.log[0].outputs) == 1
    assert server.log[0].outputs[0] - server.log[0].received >= 60 * MS


def test_the_log_has_the_times_of_what_was_done(tmp_path: Path) -> None:
    steps = "[{head: 200}, {wait: 30ms}, {token: a}, {wait: 20ms}, {token: b}, {wait: 10ms}, done, end]"
    with playing(tmp_path, steps) as server:
        ask(server)
        played = server.log[0]
    first, last = (t - played.received for t in played.outputs)
    assert first >= 30 * MS
    assert last >= 50 * MS
    assert played.first_byte is not None
    assert played.first_byte < played.outputs[0]
    assert played.ended is not None
    assert played.ended - played.received >= 60 * MS
    assert played.how == "complete"


@pytest.mark.parametrize(
    ("steps", "how"),
    [("[close]", "closed"), ("[reset]", "reset"), ("[hang]", "hung"), ("[wait: 2s]", "peer left")],
)
def test_the_log_says_how_it_ended(tmp_path: Path, steps: str, how: str) -> None:
    with playing(tmp_path, steps) as server:
        ask(server)
        deadline = time.monotonic() + 5
        while server.log[0].ended is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.log[0].how == how


def test_the_seed_decides_the_drawn_times(tmp_path: Path) -> None:
    def waits(seed: int) -> list[int]:
        steps = "[{answer: {tokens: 2, every: {uniform: {low: 1ms, high: 80ms}}}}]"
        with playing(tmp_path, steps, f"seed: {seed}") as server:
            for _ in range(2):
                ask(server)
            return [round((p.outputs[1] - p.outputs[0]) / MS / 10) for p in server.log]

    assert waits(3) != waits(4)


def test_probes_are_answered_beside_the_script(tmp_path: Path) -> None:
    with playing(tmp_path, "[hang]", "model: tiny") as server:
        for path, code, text in (
            ("/health", b"200", b""),
            ("/v2/models/tiny/ready", b"200", b""),
            ("/v1/models", b"200", b'"id":"tiny"'),
            ("/metrics", b"404", b""),
        ):
            with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
                connection.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path.encode())
                seen = b"".join(iter(lambda c=connection: c.recv(4096), b""))  # type: ignore[misc]
            assert seen[9:12] == code
            assert text in seen
        assert server.log == []


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with playing(tmp_path, "[hang]") as server:
        with pytest.raises(OSError, match="in use"), scripted(server.script, port=server.port):
            pass


def test_the_command_serves_logs_and_stops(tmp_path: Path) -> None:
    script, log = tmp_path / "one.yaml", tmp_path / "log.jsonl"
    script.write_text("script: one\nanswers:\n  - steps: [{answer: {tokens: 2}}]\n")
    command = [sys.executable, "-m", "pytest_inferslo.cli", "script-server", str(script), "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            port = int(re.fullmatch(r"serving one on http://127\.0\.0\.1:(\d+)\n", line)[1])  # type: ignore[index]
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
                assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()
    played = json.loads(log.read_text())
    assert (played["number"], played["how"], played["tokens"]) == (1, "complete", 2)
    assert played["received"] <= played["outputs"][0] <= played["ended"]


def test_the_command_names_a_mistake_and_starts_nothing(tmp_path: Path) -> None:
    script = tmp_path / "bad.yaml"
    script.write_text("answers:\n  - steps: [wiat]\n")
    command = [sys.executable, "-m", "pytest_inferslo.cli", "script-server", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 4
    assert "bad.yaml:2:" in done.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["script-server", "s.yaml"], "cannot serve on 127.0.0.1"),
        (["simulate"], "cannot listen on 127.0.0.1"),
    ],
    ids=["script-server", "simulate"],
)
def test_a_port_that_cannot_be_had_is_told(
    command: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("answers:\n- steps: [hang]\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port in (99999, taken.getsockname()[1]):
            assert main([*command, "--port", str(port)]) == 4
            assert f"{says} port {port}: " in capsys.readouterr().err
