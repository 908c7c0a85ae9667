"""Servers that run already: by URL, with keys, prefixes and TLS; nothing is started and nothing stopped."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from faulty import FAKE_SERVERS

from pytest_inferslo.backends import BackendOptions, RunningServer, resolve, start
from pytest_inferslo.backends.completions import complete
from pytest_inferslo.backends.probe import Probe
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.errors import BackendConfigError, BackendDiedError, BackendStartError

sys.path.insert(0, str(FAKE_SERVERS))
from answers import FakeServer, completion_pages, listing

MODELS = {"GET /v1/models": lambda _: (200, listing({"id": "a"}))}


@pytest.fixture
def server_at() -> Iterator[Callable[..., FakeServer]]:
    running: list[FakeServer] = []

    def serve(pages: dict[str, Any], prefix: str = "") -> FakeServer:
        prefixed = {key.replace(" ", f" {prefix}", 1): page for key, page in pages.items()}
        server = FakeServer(0, prefixed)
        running.append(server)
        server.serve_in_background()
        return server

    yield serve
    for server in running:
        server.shutdown()
        server.server_close()


def attach(
    server: FakeServer, options: BackendOptions, prefix: str = "", scheme: str = "http"
) -> RunningServer:
    spec = f"{scheme}://127.0.0.1:{server.server_address[1]}{prefix}"
    running = start(resolve(spec, options), options)
    assert isinstance(running, RunningServer)
    return running


def test_a_url_takes_the_only_model(server_at: Callable[..., FakeServer], options: BackendOptions) -> None:
    adapter = {"id": "adapter", "parent": "a"}
    pages = completion_pages("a") | {"GET /v1/models": lambda _: (200, listing(adapter, {"id": "a"}))}
    with attach(server_at(pages), options) as server:
        assert server.endpoints[0].model == "a"
        assert server.adapters == ["adapter"]
        assert (server.pid, server.log_path, server.metrics_url, server.version) == (None, None, None, None)
        assert server.record["kind"] == "attached"
        server.check()
        assert server.reset_between_scenarios() is False


@pytest.mark.parametrize(("version", "simulated"), [("0.1.0+simulated", True), ("0.26.0", False)])
def test_a_simulator_that_runs_already_is_known_by_its_version(
    server_at: Callable[..., FakeServer], options: BackendOptions, version: str, simulated: bool
) -> None:
    pages = completion_pages("a") | MODELS | {"GET /version": lambda _: (200, {"version": version})}
    running = attach(server_at(pages), options)
    assert (running.simulated, running.record["simulated"]) == (simulated, simulated)


def test_a_path_prefix_and_v1_in_the_url(
    server_at: Callable[..., FakeServer], options: BackendOptions
) -> None:
    server = server_at(completion_pages("a") | MODELS, "/team/x")
    running = attach(server, options, "/team/x/v1")
    assert running.endpoints[0].url.endswith("/team/x")
    assert running.endpoints[0].model == "a"


def test_one_of_several_models_must_be_chosen(
    server_at: Callable[..., FakeServer], options: BackendOptions
) -> None:
    pages = completion_pages("b") | {"GET /v1/models": lambda _: (200, listing({"id": "a"}, {"id": "b"}))}
    server = server_at(pages)
    with pytest.raises(BackendStartError, match="serves a, b: choose one with --model"):
        attach(server, options)
    with pytest.raises(BackendStartError, match="lists a, b, not c"):
        attach(server, replace(options, model="c"))
    assert attach(server, replace(options, model="b")).endpoints[0].model == "b"


def test_a_server_without_a_listing_is_asked_by_the_given_name(
    server_at: Callable[..., FakeServer], options: BackendOptions
) -> None:
    server = server_at(completion_pages("a"))
    assert attach(server, replace(options, model="a")).endpoints[0].model == "a"
    with pytest.raises(BackendStartError, match=r"does not exist"):
        attach(server, replace(options, model="other"))


@pytest.mark.parametrize("offered", ["/v1/completions", "/v1/embeddings"])
def test_a_model_that_does_not_chat(
    server_at: Callable[..., FakeServer], options: BackendOptions, offered: str
) -> None:
    embeddings = {"POST /v1/embeddings": lambda _: (200, {"data": [{"embedding": [0.5]}]})}
    page = (completion_pages("a") | embeddings)[f"POST {offered}"]
    server = attach(server_at({f"POST {offered}": page} | MODELS), options)
    assert server.record["proved_by"] == offered


def test_as_which_model_a_server_answers(
    server_at: Callable[..., FakeServer], options: BackendOptions
) -> None:
    """One that takes any name and answers with its own; what it lists is not asked again."""
    asked = []

    def chat(body: Any) -> tuple[int, Any]:
        asked.append(body["model"])
        return 200, {"model": "base-2026", "choices": [{"message": {"content": "Hi"}}]}

    listed = listing({"id": "base"}, {"id": "listed", "parent": "base"})
    pages = {"GET /v1/models": lambda _: (200, listed), "POST /v1/chat/completions": chat}
    with attach(server_at(pages), options) as server:
        assert server.answers(["listed", "other"]) == [
            {"endpoint": "default", "asked": "base", "answered": "base-2026"},
            {"endpoint": "default", "asked": "other", "answered": "base-2026"},
        ]
    assert asked == ["base", "other"]


def test_an_honest_server_answers_as_what_it_was_asked_for(
    server_at: Callable[..., FakeServer], options: BackendOptions
) -> None:
    with attach(server_at(completion_pages("a") | MODELS), options) as server:
        assert server.answers(["unknown"]) == [
            {"endpoint": "default", "asked": "a", "answered": "a"},
            {"endpoint": "default", "asked": "unknown", "answered": None},
        ]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"choices": []}, id="no choice"),
        pytest.param({"error": {"message": "out of memory"}, "choices": [{}]}, id="an error"),
        pytest.param("welcome to nginx", id="another server"),
    ],
)
def test_200_is_no_completion_yet(
    server_at: Callable[..., FakeServer], options: BackendOptions, body: Any
) -> None:
    pages = {
        f"POST /v1/{way}": lambda _: (200, body) for way in ("chat/completions", "completions", "embeddings")
    }
    with pytest.raises(BackendStartError, match="first completion"):
        attach(server_at(pages | MODELS), replace(options, start_timeout_s=1.0))


@pytest.mark.parametrize(
    ("kind", "dims", "batch", "sent"),
    [
        ("FP32", ["-1", "4"], 0, {"shape": [1, 4], "datatype": "FP32", "data": [0, 0, 0, 0]}),
        ("INT64", ["2"], 8, {"shape": [1, 2], "datatype": "INT64", "data": [0, 0]}),
        ("STRING", ["1"], 0, {"shape": [1], "datatype": "BYTES", "data": [""]}),
        ("BOOL", ["1"], 0, {"shape": [1], "datatype": "BOOL", "data": [False]}),
    ],
)
def test_a_triton_model_of_tensors_is_asked_with_zeros(
    server_at: Callable[..., FakeServer], kind: str, dims: list[str], batch: int, sent: dict[str, Any]
) -> None:
    inputs = [
        {"name": "x", "data_type": f"TYPE_{kind}", "dims": dims},
        {"name": "y", "data_type": "TYPE_FP32", "dims": ["1"], "optional": True},
    ]
    asked: list[Any] = []

    def infer(body: Any) -> tuple[int, Any]:
        asked.append(body)
        return 200, {"outputs": [{"name": "z"}]}

    pages = {
        "GET /v2/models/m/config": lambda _: (200, {"max_batch_size": batch, "input": inputs}),
        "POST /v2/models/m/infer": infer,
    }
    port = server_at(pages).server_address[1]
    probe = Probe(Endpoint(f"http://127.0.0.1:{port}", "m", api="triton"))
    assert complete(probe, "m", 5.0).way == "/v2/models/m/infer"
    assert asked == [{"inputs": [{"name": "x", **sent}]}]


def test_nobody_there(options: BackendOptions) -> None:
    from pytest_inferslo.backends.ports import free_port

    with pytest.raises(BackendStartError, match="connection refused; is the server running there"):
        start(resolve(f"http://127.0.0.1:{free_port()}", options), options)


def test_the_key_is_sent_and_never_shown(
    server_at: Callable[..., FakeServer], options: BackendOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    class Keyed(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            seen.append(self.headers.get("Authorization"))
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            allowed = seen[-1] == "Bearer s3cret"
            answer = (
                b'{"data":[{"id":"a"}],"choices":[{"text":"Hi"}]}' if allowed else b"unauthorized" + body[:0]
            )
            self.send_response(200 if allowed else 401)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = _answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Keyed)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("MY_KEY", "s3cret")
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        with pytest.raises(BackendStartError, match="HTTP 401: unauthorized"):
            start(resolve(url, options), options)
        keyed = replace(options, api_key_env="MY_KEY")
        running = start(resolve(url, keyed), keyed)
        assert running.endpoints[0].api_key_env == "MY_KEY"
        assert "s3cret" not in repr(running.record)
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("makes its certificate with openssl")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *(
                openssl,
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=127.0.0.1",
            ),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def test_tls(
    server_at: Callable[..., FakeServer], options: BackendOptions, certificate: tuple[Path, Path]
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = FakeServer(0, completion_pages("a") | MODELS)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_in_background()
    try:
        with pytest.raises(BackendStartError, match="TLS failed"):
            attach(server, options, scheme="https")
        trusted = attach(server, replace(options, ca_file=str(certificate[0])), scheme="https")
        assert trusted.endpoints[0].ca_file == str(certificate[0])
        assert (
            attach(server, replace(options, verify_tls=False), scheme="https").endpoints[0].verify_tls
            is False
        )
    finally:
        server.shutdown()
        server.server_close()


def test_the_pid_of_a_server_elsewhere_is_watched_and_left_alone(
    server_at: Callable[..., FakeServer], options: BackendOptions, survivors: Any
) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    server = attach(server_at(completion_pages("a") | MODELS), replace(options, server_pid=child.pid))
    assert (server.pid, server.pids) == (child.pid, [child.pid])
    server.check()
    server.stop()
    assert child.poll() is None
    child.kill()
    child.wait()
    with pytest.raises(BackendDiedError, match=rf"process {child.pid} \(--server-pid\) is gone"):
        server.check()
    with pytest.raises(BackendConfigError, match="there is no such process"):
        attach(server_at({}), replace(options, server_pid=child.pid))
