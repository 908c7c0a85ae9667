"""The simulated server over HTTP: what clients, load generators and metric scrapers see."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

_QUICK = {"decode_ms": [[1, 1]], "frontend_ms": 0.05, "prefill_ms": [[1, 1]], "max_model_len": 4096}


class Server:
    """A simulator in a child process."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        profile = directory / "quick.json"
        profile.write_text(json.dumps(_QUICK))
        command = [sys.executable, "-m", "pytest_inferslo.backends.simulated", "--port", "0"]
        command += ["--profile", str(profile), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.lines: list[str] = []
        while not (found := re.search(r"http://\S+:(\d+)$", line := self.process.stdout.readline().strip())):
            assert line, f"the simulator went away: {self.process.wait()}"
            self.lines.append(line)
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = requests.Session()
        self.http.trust_env = False

    def get(self, path: str) -> requests.Response:
        return self.http.get(self.url + path, timeout=20)

    def post(self, path: str, body: Any, **options: Any) -> requests.Response:
        return self.http.post(self.url + path, json=body, timeout=20, **options)

    def events(self, path: str, body: Any) -> list[Any]:
        """The data of a stream's events; [DONE] stays a text."""
        with self.post(path, body | {"stream": True}, stream=True) as answer:
            assert answer.status_code == 200, answer.text
            data = answer.content.decode()
        lines = [line.removeprefix("data: ") for line in data.splitlines() if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]

    def metrics(self) -> dict[str, float]:
        """Samples by name, the label sets of one name added up."""
        values: dict[str, float] = {}
        for line in self.get("/metrics").text.splitlines():
            if not line.startswith("#"):
                name, value = line.split("{")[0].split(" ")[0], float(line.rsplit(" ", 1)[1])
                values[name] = values.get(name, 0.0) + value
        return values

    def close(self) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("sim"), "--model", "m", "alias", "--lora-modules", "red=/red")
    yield running
    running.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Any]:
    """Starts servers of a test's own."""
    started: list[Server] = []

    def start(*arguments: str) -> Server:
        started.append(Server(tmp_path, *arguments))
        return started[-1]

    yield start
    for running in started:
        running.close()


CHAT = {"model": "m", "messages": [{"role": "user", "content": "one two three"}], "max_tokens": 5}
TEXT = {"model": "m", "prompt": "one two three", "max_tokens": 5}


# -- streams and bodies ----------------------------------------------------------------------------


def test_chat_stream_is_vllms(server: Server) -> None:
    events = server.events("/v1/chat/completions", CHAT | {"stream_options": {"include_usage": True}})
    role, *deltas, usage, done = events
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert set(role) == {"id", "object", "created", "model", "choices", "prompt_token_ids", "prompt_text"}
    assert [event["object"] for event in deltas] == ["chat.completion.chunk"] * 5
    assert all(event["choices"][0]["delta"]["content"] for event in deltas)
    assert [event["choices"][0]["finish_reason"] for event in deltas] == [None] * 4 + ["length"]
    assert deltas[0]["choices"][0].keys() == {"index", "delta", "logprobs", "finish_reason", "token_ids"}
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 5, "total_tokens": 10, "completion_tokens": 5}
    assert done == "[DONE]"
    assert len({event["id"] for event in events[:-1]}) == 1


def test_completion_stream_counts_continuously(server: Server) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    *deltas, usage, done = server.events("/v1/completions", TEXT | {"stream_options": options})
    assert [event["usage"]["completion_tokens"] for event in deltas] == [1, 2, 3, 4, 5]
    assert usage["usage"]["total_tokens"] == 8
    assert done == "[DONE]"


@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)])
def test_stream_and_body_say_the_same(server: Server, path: str, body: dict[str, Any]) -> None:
    choice = server.post(path, body).json()["choices"][0]
    whole = choice["message"]["content"] if "message" in choice else choice["text"]
    pieces = [event["choices"][0] for event in server.events(path, body)[:-1]]
    assert whole == "".join(
        piece.get("text") or piece.get("delta", {}).get("content", "") for piece in pieces
    )
    assert choice["finish_reason"] == "length"


@pytest.mark.parametrize("word", ["with", "engine"])
def test_stop_string_cuts_stream_and_body_alike(server: Server, word: str) -> None:
    ask = TEXT | {"max_tokens": 100, "stop": [word]}
    choice = server.post("/v1/completions", ask).json()["choices"][0]
    pieces = [event["choices"][0] for event in server.events("/v1/completions", ask)[:-1]]
    assert choice["text"] == "".join(piece["text"] for piece in pieces)
    assert word not in choice["text"]
    assert choice["stop_reason"] == pieces[-1]["stop_reason"] == word
    assert choice["finish_reason"] == pieces[-1]["finish_reason"] == "stop"


def test_usage_is_absent_unless_asked_for(server: Server) -> None:
    assert not any("usage" in event for event in server.events("/v1/completions", TEXT)[:-1])


@pytest.mark.parametrize(
    ("extra", "tokens", "reason"),
    [
        ({"max_tokens": 1}, 1, "length"),
        ({"max_tokens": 40, "ignore_eos": True}, 40, "length"),
        ({"max_tokens": None}, 16, "stop"),
        ({"max_tokens": 200, "stop": ["simulated"]}, None, "stop"),
    ],
)
def test_length_of_the_answer(server: Server, extra: dict[str, Any], tokens: int | None, reason: str) -> None:
    answer = server.post("/v1/completions", TEXT | extra).json()
    assert answer["choices"][0]["finish_reason"] == reason
    if tokens is not None:
        assert answer["usage"]["completion_tokens"] == tokens
    else:
        assert answer["choices"][0]["stop_reason"] == "simulated"
        assert "simulated" not in answer["choices"][0]["text"]
        assert answer["usage"]["completion_tokens"] < 200


def test_responses_stream_of_typed_numbered_events(server: Server) -> None:
    body = {"model": "m", "input": "one two", "max_output_tokens": 3}
    events = server.events("/v1/responses", body)
    kinds = [event["type"] for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[4:7] == ["response.output_text.delta"] * 3
    assert kinds[-1] == "response.completed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    final = events[-1]["response"]
    assert final["output"][0]["content"][0]["text"] == text
    assert final["usage"]["output_tokens"] == 3
    whole = server.post("/v1/responses", body).json()
    assert whole["output"][0]["content"][0]["text"] == text


def test_embeddings_have_unit_length_and_repeat(server: Server) -> None:
    answer = server.post("/v1/embeddings", {"model": "m", "input": ["a b", "c"], "dimensions": 8}).json()
    first, second = (entry["embedding"] for entry in answer["data"])
    assert sum(value * value for value in first) == pytest.approx(1.0)
    assert first != second
    assert answer["usage"]["prompt_tokens"] == 3
    again = server.post("/v1/embeddings", {"model": "m", "input": "a b", "dimensions": 8}).json()
    assert again["data"][0]["embedding"] == first


def test_triton_generate_extension_and_infer(server: Server) -> None:
    ask = {"text_input": "hello", "max_tokens": 3, "stream": True}
    base = "/v2/models/ensemble"
    with server.post(f"{base}/generate_stream", ask, stream=True) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line]
    assert [sorted(event) for event in events] == [["model_name", "model_version", "text_output"]] * 3
    text = "".join(event["text_output"] for event in events)
    assert server.post(f"{base}/generate", ask).json()["text_output"] == text
    inputs = [
        {"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": ["hello"]},
        {"name": "max_tokens", "shape": [1, 1], "datatype": "INT32", "data": [[3]]},
    ]
    assert server.post(f"{base}/infer", {"inputs": inputs}).json()["outputs"][0]["data"] == [text]
    assert [server.get(path).status_code for path in ("/v2/health/ready", f"{base}/ready")] == [200, 200]
    assert server.post(f"{base}/generate", {"text_input": ""}).json().keys() == {"error"}


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "param", "message"),
    [
        ("/v1/chat/completions", CHAT | {"model": "nope"}, 404, "NotFoundError", "model",
         "The model `nope` does not exist."),
        ("/v1/completions", TEXT | {"max_tokens": -1}, 400, "BadRequestError", "max_tokens",
         "max_tokens must be at least 1, got -1. (parameter=max_tokens, value=-1)"),
        ("/v1/completions", TEXT | {"temperature": 9}, 400, "BadRequestError", "temperature",
         "temperature must be in [0, 2], got 9.0. (parameter=temperature, value=9.0)"),
        ("/v1/completions", TEXT | {"prompt": [1] * 5000, "max_tokens": 4}, 400, "BadRequestError",
         "input_tokens",
         "This model's maximum context length is 4096 tokens. However, you requested 4 output "
         "tokens and your prompt contains 5000 input tokens, for a total of 5004 tokens. Please "
         "reduce the length of the input prompt or the number of requested output tokens. "
         "(parameter=input_tokens, value=5000)"),
        ("/v1/chat/completions", {"model": "m"}, 400, "Bad Request", "body.messages",
         "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required', "
         "'input': {'model': 'm'}}"),
        ("/v1/completions", {"model": "m"}, 400, "Bad Request", "body.prompt", None),
        ("/v1/completions", TEXT | {"max_tokens": "five"}, 400, "Bad Request", "body.max_tokens", None),
        ("/v1/completions", TEXT | {"model": ["m"]}, 404, "NotFoundError", "model", None),
        ("/v1/completions", TEXT | {"stop": 5}, 400, "Bad Request", "body.stop", None),
        ("/v1/completions", TEXT | {"stream_options": "a"}, 400, "Bad Request", "body.stream_options", None),
        ("/v1/completions", TEXT | {"n": 2}, 400, "BadRequestError", "n", None),
        ("/v1/chat/completions", CHAT | {"messages": "hi"}, 400, "Bad Request", "body.messages", None),
        ("/v1/embeddings", {"model": "m"}, 400, "Bad Request", "body.input", None),
        ("/v1/completions", [1], 400, "Bad Request", "body", None),
    ],
)  # fmt: skip
def test_errors_are_vllms(
    server: Server, path: str, body: Any, status: int, kind: str, param: str, message: str | None
) -> None:
    answer = server.post(path, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"], error["code"]) == (status, kind, param, status)
    if message is not None:
        assert error["message"] == message


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/models/m/infer", {"inputs": 3}),
        ("/v2/models/m/infer", {"inputs": [None]}),
        ("/v1/load_lora_adapter", {"lora_name": ["a"], "lora_path": "/a"}),
        ("/v1/unload_lora_adapter", {"lora_name": ["a"]}),
        ("/tokenize", {"messages": [["a"]]}),
        ("/v1/embeddings", {"input": [None]}),
        ("/v1/responses", {"input": [1]}),
        ("/simulated/faults", {"faults": 3}),
    ],
)
def test_values_of_a_wrong_type_are_refused(server: Server, path: str, body: dict[str, Any]) -> None:
    assert server.post(path, body).status_code == 400


def test_bad_json_unknown_path_and_wrong_method(server: Server) -> None:
    answer = server.http.post(f"{server.url}/v1/completions", data=b'{"model": ', timeout=20)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "Bad Request", "body.10")
    assert "json_invalid" in error["message"]
    assert (server.get("/nope").status_code, server.get("/nope").json()) == (404, {"detail": "Not Found"})
    wrong = server.get("/v1/completions")
    assert (wrong.status_code, wrong.json()) == (405, {"detail": "Method Not Allowed"})


# -- about the server ------------------------------------------------------------------------------


def test_it_says_simulated_wherever_it_speaks_of_itself(server: Server) -> None:
    version = server.get("/version").json()
    assert version["simulated"] is True
    assert version["version"].endswith("+simulated")
    models = server.get("/v1/models").json()["data"]
    assert {card["owned_by"] for card in models} == {"simulated"}
    assert [(card["id"], card["parent"]) for card in models] == [("m", None), ("alias", None), ("red", "m")]
    assert server.post("/v1/completions", TEXT).json()["system_fingerprint"] == "simulated"
    assert server.get("/health").status_code == 200


def test_metrics_have_vllms_names_and_types(server: Server) -> None:
    text = server.get("/metrics").text
    wanted = (Path(__file__).parent / "vllm_metric_names.txt").read_text().split("\n")
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    modelled = [line.split() for line in wanted if line and "estimated_" not in line]
    assert {name: types.get(name) for name, _kind in modelled} == dict(modelled)
    assert 'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"}' in text
    assert 'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"}' in text


def test_metrics_count_what_was_served(server: Server) -> None:
    before = server.metrics()
    text = "unseen words of thirty two tokens " * 6
    for _ in range(2):
        server.post("/v1/completions", {"model": "m", "prompt": text, "max_tokens": 7})
    after = server.metrics()
    grown = {name: after[name] - before[name] for name in after if name in before}
    assert grown["vllm:prompt_tokens_total"] == 72
    assert grown["vllm:generation_tokens_total"] == 14
    assert grown["vllm:prefix_cache_queries_total"] == 72
    assert grown["vllm:prefix_cache_hits_total"] == 32
    assert grown["vllm:request_success_total"] == 2
    assert grown["vllm:time_to_first_token_seconds_count"] == 2
    assert grown["vllm:inter_token_latency_seconds_count"] == 12
    assert after["vllm:num_requests_running"] == after["vllm:num_requests_waiting"] == 0
    assert grown["vllm:inter_token_latency_seconds_sum"] == pytest.approx(0.012)


def test_adapters_are_loaded_used_and_unloaded(server: Server) -> None:
    add = {"lora_name": "blue", "lora_path": "/blue"}
    assert server.post("/v1/completions", TEXT | {"model": "blue"}).status_code == 404
    loaded = server.post("/v1/load_lora_adapter", add)
    assert (loaded.status_code, loaded.text) == (200, "Success: LoRA adapter 'blue' added successfully.")
    assert server.post("/v1/load_lora_adapter", add).status_code == 400
    assert server.post("/v1/load_lora_adapter", {"lora_name": "x"}).status_code == 400
    assert server.post("/v1/completions", TEXT | {"model": "blue"}).json()["model"] == "blue"
    assert 'max_lora="8"' in server.get("/metrics").text
    assert server.post("/v1/unload_lora_adapter", {"lora_name": "blue"}).status_code == 200
    assert server.post("/v1/unload_lora_adapter", {"lora_name": "blue"}).status_code == 404
    assert server.post("/v1/completions", TEXT | {"model": "blue"}).status_code == 404


def test_prefix_cache_is_reset(server: Server) -> None:
    body = {"model": "m", "prompt": "some prompt of its own " * 10, "max_tokens": 1}

    def hits() -> float:
        before = server.metrics()["vllm:prefix_cache_hits_total"]
        server.post("/v1/completions", body)
        return server.metrics()["vllm:prefix_cache_hits_total"] - before

    assert (hits(), hits()) == (0, 48)
    assert server.post("/reset_prefix_cache", {}).status_code == 200
    assert hits() == 0


def test_client_that_leaves_frees_its_place(server: Server) -> None:
    before = server.metrics()["vllm:request_success_total"]
    with server.post("/v1/completions", TEXT | {"max_tokens": 3000, "stream": True}, stream=True) as answer:
        pieces = answer.iter_content(10)  # held: its end would close the connection
        next(pieces)
        assert server.metrics()["vllm:num_requests_running"] == 1
    deadline = time.monotonic() + 10
    while server.metrics()["vllm:num_requests_running"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert server.metrics()["vllm:request_success_total"] == before + 1


# -- faults ----------------------------------------------------------------------------------------


@pytest.fixture
def faulty(server: Server) -> Iterator[Any]:
    def install(*faults: dict[str, Any]) -> None:
        assert server.post("/simulated/faults", {"faults": list(faults)}).status_code == 204

    yield install
    server.http.delete(f"{server.url}/simulated/faults", timeout=20)


def test_refusals(server: Server, faulty: Any) -> None:
    faulty({"kind": "error", "status": 503})
    refused = server.post("/v1/completions", TEXT)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, 503)
    faulty({"kind": "overload", "limit": 0})
    overloaded = server.post("/v1/completions", TEXT)
    assert (overloaded.status_code, overloaded.headers["retry-after"]) == (429, "1")
    faulty({"kind": "unhealthy"})
    assert server.get("/health").status_code == 503
    assert server.post("/simulated/faults", {"faults": [{"kind": "eror"}]}).status_code == 400


def test_broken_streams(server: Server, faulty: Any) -> None:
    faulty({"kind": "error_event", "after_tokens": 2})
    events = server.events("/v1/completions", TEXT)
    assert [("error" in event, event == "[DONE]") for event in events] == [
        (False, False),
        (False, False),
        (True, False),
        (False, True),
    ]
    assert server.post("/v1/completions", TEXT).status_code == 500
    faulty({"kind": "empty"})
    texts = [event["choices"][0]["text"] for event in server.events("/v1/completions", TEXT)[:-1]]
    assert set(texts) == {""}
    for reset in (False, True):
        faulty({"kind": "truncate", "after_tokens": 2, "reset": reset})
        with pytest.raises(requests.exceptions.RequestException):
            server.events("/v1/completions", TEXT)


def test_hang_leaves_health_alone(server: Server, faulty: Any) -> None:
    faulty({"kind": "hang"})
    with pytest.raises(requests.exceptions.ReadTimeout):
        server.http.post(f"{server.url}/v1/completions", json=TEXT, timeout=0.3)
    assert server.get("/health").status_code == 200


def test_stall_slow_and_leak(server: Server, faulty: Any) -> None:
    def steps() -> float:
        before = server.metrics()["vllm:inter_token_latency_seconds_sum"]
        server.post("/v1/completions", TEXT | {"max_tokens": 11})
        return server.metrics()["vllm:inter_token_latency_seconds_sum"] - before

    faulty({"kind": "slow", "factor": 5})
    time.sleep(0.01)
    assert steps() == pytest.approx(0.05)
    resident = server.metrics()["process_resident_memory_bytes"]
    faulty({"kind": "leak", "bytes": "20MB"})
    assert steps() == pytest.approx(0.01)
    assert server.metrics()["process_resident_memory_bytes"] > resident + 15e6
    faulty({"kind": "stall", "length": "300ms"})
    started = time.monotonic()
    steps()
    assert time.monotonic() - started > 0.25


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("{kind: crash, at: 0.1, exit_code: 3}", 3),
        ("{kind: crash, at: 0.1, signal: 9}", -signal.SIGKILL),
        ("{kind: engine_death, at: 0.1}", 0),
    ],
)
def test_death_by_script(own_server: Any, tmp_path: Path, fault: str, code: int) -> None:
    script = tmp_path / "faults.yaml"
    script.write_text(f"faults:\n  - {fault}\n")
    running = own_server("--faults", str(script))
    if "engine" in fault:
        time.sleep(0.3)
        assert running.get("/health").status_code == 503
        assert running.post("/v1/completions", TEXT | {"model": "simulated"}).status_code == 500
    assert running.process.wait(10) == code


def test_slow_start_refuses_connections_until_it_listens(own_server: Any, tmp_path: Path) -> None:
    script = tmp_path / "faults.yaml"
    script.write_text("faults:\n  - {kind: start, at: 400ms}\n")
    started = time.monotonic()
    running = own_server("--faults", str(script))
    assert time.monotonic() - started >= 0.4
    assert "starts to listen in 0.4 s" in running.lines[0]


# -- the process -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_open_streams_with_abort(own_server: Any, number: int) -> None:
    running = own_server("--model", "m")
    body = TEXT | {"max_tokens": 4000}
    with ThreadPoolExecutor(4) as pool:
        streams = [
            pool.submit(
                requests.post, f"{running.url}/v1/completions", json=body | {"stream": stream}, timeout=40
            )
            for stream in (True, True, False)
        ]
        deadline = time.monotonic() + 15
        while running.metrics()["vllm:num_requests_running"] < 3:
            assert time.monotonic() < deadline, [each.exception() for each in streams if each.done()]
            time.sleep(0.05)  # the clients share this process
        running.process.send_signal(number)
        answers = [stream.result() for stream in streams]
    for answer in answers[:2]:
        *events, done = [line[6:] for line in answer.text.splitlines() if line]
        assert done == "[DONE]"
        assert json.loads(events[-1])["choices"][0]["finish_reason"] == "abort"
    assert answers[2].json()["choices"][0]["finish_reason"] == "abort"
    assert running.process.wait(10) == 0


def test_stream_interval_joins_tokens_in_one_event(own_server: Any) -> None:
    running = own_server("--stream-interval", "4")
    ask = {"prompt": "one two three", "max_tokens": 12, "stream_options": {"include_usage": True}}
    *deltas, usage, _done = running.events("/v1/completions", ask)
    texts = [event["choices"][0]["text"] for event in deltas]
    assert [len(text.split()) for text in texts] == [1, 4, 4, 3]
    assert "".join(texts) == running.post("/v1/completions", ask).json()["choices"][0]["text"]
    assert usage["usage"]["completion_tokens"] == 12


def test_api_key_guards_v1_alone(own_server: Any) -> None:
    running = own_server("--api-key", "sesame")
    assert (running.get("/health").status_code, running.get("/metrics").status_code) == (200, 200)
    refused = running.get("/v1/models")
    assert (refused.status_code, refused.json()) == (401, {"error": "Unauthorized"})
    running.http.headers["Authorization"] = "Bearer sesame"
    assert running.get("/v1/models").status_code == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "nope"], "unknown simulator profile 'nope'"),
        (["--faults", "/nowhere.yaml"], "fault script /nowhere.yaml"),
        (["--lora-modules", "red"], "NAME=PATH"),
        (["--max-num-seqs", "0"], "max_num_seqs is 0"),
    ],
)
def test_bad_arguments_are_refused_with_4(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "pytest_inferslo.backends.simulated", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 4
    assert message in done.stderr


def test_taken_port_is_refused_with_its_number() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        command = [sys.executable, "-m", "pytest_inferslo.backends.simulated", "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 4
    assert f"port {port}" in done.stderr


def test_start_needs_no_heavy_imports() -> None:
    code = (
        "import sys, pytest_inferslo.backends.simulated.cli, pytest_inferslo.backends.simulated.server as s\n"
        "from pytest_inferslo.backends.simulated import routes_control, routes_openai, routes_triton\n"
        "print([m for m in ('numpy', 'requests', 'ruamel', 'locust', 'pytest') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "[]"
