"""vLLM on a CPU, started, asked, killed in each way and stopped through the adapter."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from deaths import death_of

from pytest_inferslo.backends import BackendOptions, RunningServer, StartProgress, resolve, start
from pytest_inferslo.backends.supervisor import Process, descendants, name_of, read_process
from pytest_inferslo.errors import BackendError

pytestmark = pytest.mark.engines

FLAGS = ["--load-format=dummy", "--dtype=bfloat16", "--max-model-len=1024", "--enforce-eager"]
AllGone = Callable[[list[Process]], bool]


def flags_of(vllm_python: str, tiny_model: Path) -> dict[str, Any]:
    return {
        "model": str(tiny_model),
        "python": vllm_python,
        "args": FLAGS,
        "env": {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"},
        "start_timeout_s": 240.0,
    }


@pytest.fixture
def options(vllm_python: str, tiny_model: Path, tmp_path: Path) -> BackendOptions:
    return BackendOptions(log_path=tmp_path / "server.log", **flags_of(vllm_python, tiny_model))


def launched(options: BackendOptions, steps: set[str] | None = None) -> RunningServer:
    def note(progress: StartProgress) -> None:
        if steps is not None:
            steps.add(progress.step)

    server = start(resolve("vllm", options), options, note)
    assert isinstance(server, RunningServer)
    return server


def family_of(server: RunningServer) -> list[Process]:
    leader = read_process(server.pid or 0)
    assert leader is not None
    return descendants(leader.parent)


def test_a_life_with_adapters(options: BackendOptions, tiny_model: Path, all_gone: AllGone) -> None:
    steps: set[str] = set()
    beside = tiny_model.parent
    changes = {"lora": {"alpha": str(beside / "alpha")}, "lora_runtime": True}
    with launched(BackendOptions(**(vars(options) | changes)), steps) as server:
        family = family_of(server)
        assert any("EngineCore" in name_of(each.pid) for each in family)
        assert {
            f"waiting for its {w}" for w in ("health page", "list of models", "first completion")
        } <= steps
        assert server.version is not None
        assert server.record["proved_by"] == "/v1/chat/completions"
        assert server.metrics_url is not None
        assert "vllm:" in requests.get(server.metrics_url, timeout=10).text
        assert server.adapters == ["alpha"]
        server.load_adapter("beta", str(beside / "beta"))
        with pytest.raises(BackendError, match="cannot load adapter 'beta': HTTP 400"):
            server.load_adapter("beta", str(beside / "beta"))
        body = {"model": "beta", "prompt": "def", "max_tokens": 4}
        answer = requests.post(f"{server.endpoints[0].url}/v1/completions", json=body, timeout=60)
        assert answer.json()["usage"]["completion_tokens"] >= 1
        server.unload_adapter("beta")
        assert server.reset_between_scenarios() is True
        server.check()
    assert all_gone(family)
    assert server.stop_report is not None
    assert server.stop_report.seconds < 10.0


@pytest.mark.parametrize("victim", ["EngineCore", "server"])
def test_a_kill_in_mid_run(options: BackendOptions, all_gone: AllGone, victim: str) -> None:
    server = launched(options)
    family = family_of(server)
    engine = next(each.pid for each in family if "EngineCore" in name_of(each.pid))
    os.kill(engine if victim == "EngineCore" else server.pid or 0, signal.SIGKILL)
    assert "last lines of" in death_of(server)
    server.stop()
    assert all_gone(family)


def test_a_kill_of_pytest(
    vllm_python: str, tiny_model: Path, all_gone: AllGone, owner: Callable[..., subprocess.Popen[str]]
) -> None:
    process = owner("vllm", flags_of(vllm_python, tiny_model))
    assert process.stdout is not None
    supervisor = int(process.stdout.readline())
    family = [*descendants(supervisor), *filter(None, [read_process(supervisor)])]
    assert len(family) >= 3
    process.kill()
    process.wait()
    process.stdout.close()
    assert all_gone(family)
