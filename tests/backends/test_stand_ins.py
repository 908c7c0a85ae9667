"""Adapters of engines that this machine cannot run, against stand-ins with the engines' documented surface."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty import FAKE_SERVERS, dies, wait_for

from pytest_inferslo.backends import BackendOptions, RunningServer, resolve, start
from pytest_inferslo.errors import BackendConfigError, BackendError, BackendStartError

Launch = Callable[..., RunningServer]


@pytest.fixture
def launch(options: BackendOptions, survivors: Callable[[], list[str]]) -> Iterator[Launch]:
    running: list[RunningServer] = []

    def launch_stand_in(backend: str, script: str, **changes: Any) -> RunningServer:
        wanted = replace(options, command=(sys.executable, str(FAKE_SERVERS / script)), **changes)
        server = start(resolve(backend, wanted), wanted)
        assert isinstance(server, RunningServer)
        running.append(server)
        return server

    yield launch_stand_in
    for server in running:
        server.stop()
    assert wait_for(lambda: not survivors())


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    folder = tmp_path / "llama-8b"
    folder.mkdir()
    return str(folder)


def test_trtllm_with_ranks_and_llm_api_options(
    launch: Launch, checkpoint: str, tmp_path: Path, survivors: Callable[[], list[str]]
) -> None:
    file = tmp_path / "llm.yaml"
    file.write_text("return_perf_metrics: true\nkv_cache_config:\n  enable_block_reuse: false\n")
    args = ["--tp_size", "2", "--backend", "pytorch", f"--extra_llm_api_options={file}"]
    server = launch("trtllm", "trtllm_serve.py", model=checkpoint, args=args)
    assert server.version == "1.2.0"
    assert server.endpoints[0].model == "llama-8b"
    assert server.metrics_url is not None
    assert server.metrics_url.endswith("/prometheus/metrics")
    assert sum("rank" in line.split()[-1] for line in survivors()) >= 2
    server.stop()
    assert survivors() == []
    assert server.stop_report is not None
    assert len(server.stop_report.killed) == 2  # the ranks, which ignore SIGTERM


def test_trtllm_without_perf_metrics_has_no_prometheus_page(launch: Launch, checkpoint: str) -> None:
    assert launch("trtllm", "trtllm_serve.py", model=checkpoint).metrics_url is None


def test_trtllm_that_loses_a_rank_is_dead(launch: Launch, checkpoint: str) -> None:
    server = launch("trtllm", "trtllm_serve.py", model=checkpoint, args=["--tp_size=2"])
    log = Path(server.log_path or "").read_text()
    ranks = re.search(r"ranks \[(\d+), (\d+)\]", log)
    assert ranks is not None
    os.kill(int(ranks[1]), signal.SIGKILL)
    assert f"process {ranks[1]} is gone and its health page says HTTP 503: LLM is unavailable" in dies(server)


def test_trtllm_refuses_what_it_does_not_know(launch: Launch, checkpoint: str) -> None:
    with pytest.raises(BackendStartError, match="unrecognized arguments: --max_num_seqs=4"):
        launch("trtllm", "trtllm_serve.py", model=checkpoint, args=["--max-num-seqs=4"])


@pytest.mark.parametrize(
    "options_of", [{}, {"model": "m", "lora": {"a": "/a"}}, {"model": "m", "args": ["--port=1"]}]
)
def test_trtllm_options_that_cannot_be(launch: Launch, options_of: dict[str, Any]) -> None:
    with pytest.raises(BackendConfigError):
        launch("trtllm", "trtllm_serve.py", **options_of)


def test_sglang_with_adapters_at_run_time(launch: Launch) -> None:
    server = launch(
        "sglang", "sglang_server.py", model="m", lora={"alpha": "/a"}, lora_runtime=True, args=["--tp=2"]
    )
    assert server.version == "0.5.0"
    assert server.adapters == ["alpha"]
    assert server.metrics_url is not None
    assert server.reset_between_scenarios() is True
    assert server.load_adapter("beta", "/b") < 5.0
    assert server.adapters == ["alpha", "beta"]
    server.unload_adapter("beta")
    assert server.adapters == ["alpha"]
    with pytest.raises(BackendError, match="cannot unload adapter 'beta': HTTP 400"):
        server.unload_adapter("beta")


@pytest.mark.parametrize(("args", "model"), [([], "tiny.gguf"), (["--alias", "chat"], "chat")])
def test_llamacpp_is_asked_by_the_name_that_it_lists(
    launch: Launch, tmp_path: Path, args: list[str], model: str
) -> None:
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF")
    server = launch("llamacpp", "llama_server.py", model=str(file), args=args)
    assert server.endpoints[0].model == model
    assert server.metrics_url is not None
    assert server.reset_between_scenarios() is False
