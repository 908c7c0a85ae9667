"""The real tritonserver with a decoupled model that has the interface of TensorRT-LLM's `ensemble`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from deaths import death_of

from pytest_inferslo.backends import BackendOptions, RunningServer, resolve, start
from pytest_inferslo.backends.supervisor import Process, descendants, read_process
from pytest_inferslo.errors import BackendStartError

pytestmark = pytest.mark.engines

MODELS = Path(__file__).parent / "triton_models"
AllGone = Callable[[list[Process]], bool]


@pytest.fixture(autouse=True)
def shared_memory_of_the_killed() -> Iterator[None]:
    """Removes the segments that Triton cannot remove itself when it is killed."""
    folder, before = Path("/dev/shm"), set(Path("/dev/shm").iterdir())
    yield
    for segment in set(folder.glob("triton_python_backend_shm_region_*")) - before:
        segment.unlink()


@pytest.fixture
def options(triton_python: str, tmp_path: Path) -> BackendOptions:
    return BackendOptions(
        model=str(MODELS), python=triton_python, log_path=tmp_path / "server.log", start_timeout_s=60.0
    )


def launched(options: BackendOptions, **changes: Any) -> RunningServer:
    options = BackendOptions(**(vars(options) | changes))
    server = start(resolve("triton", options), options)
    assert isinstance(server, RunningServer)
    return server


def family_of(server: RunningServer) -> list[Process]:
    leader = read_process(server.pid or 0)
    assert leader is not None
    return descendants(leader.parent)


@pytest.mark.parametrize("args", [[], ["--model-control-mode=explicit"]], ids=["all models", "explicit"])
def test_a_life(options: BackendOptions, all_gone: AllGone, args: list[str]) -> None:
    with launched(options, args=args) as server:
        family = family_of(server)
        assert server.version is not None
        assert server.metrics_url is not None
        assert "nv_inference_request_success" in requests.get(server.metrics_url, timeout=10).text
        assert server.record["proved_by"] == "/v2/models/ensemble/generate"
        url = f"{server.endpoints[0].url}/v2/models/ensemble/generate_stream"
        body = {"text_input": "hi", "max_tokens": 3, "stream": True}
        answer = requests.post(url, json=body, timeout=30, headers={"connection": "close"})
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        assert [event["text_output"] for event in events] == ["tok0 ", "tok1 ", "tok2 "]
        server.check()
    assert all_gone(family)


def test_a_model_of_tensors_is_proven_by_an_inference(options: BackendOptions) -> None:
    with launched(options, model="double", args=[f"--model-repository={MODELS}"]) as server:
        assert server.record["proved_by"] == "/v2/models/double/infer"


def test_ready_is_a_matter_of_the_model(options: BackendOptions, tmp_path: Path) -> None:
    """A broken neighbour keeps Triton as a whole unready for ever; the model that is asked is ready all the same."""
    models = tmp_path / "models"
    shutil.copytree(MODELS, models)
    broken = models / "broken"
    (broken / "1").mkdir(parents=True)
    (broken / "1" / "model.py").write_text("raise RuntimeError('broken on purpose')\n")
    (broken / "config.pbtxt").write_text('name: "broken"\nbackend: "python"\n')
    with launched(options, model=str(models), args=["--exit-on-error=false"]) as server:
        url = server.endpoints[0].url
        assert requests.get(f"{url}/v2/health/ready", timeout=10).status_code != 200
    with pytest.raises(BackendStartError, match="broken on purpose"):
        launched(options, model=str(models))


@pytest.mark.parametrize("owner_is", ["alive", "killed"])
def test_a_kill(
    options: BackendOptions,
    triton_python: str,
    all_gone: AllGone,
    owner: Callable[..., subprocess.Popen[str]],
    owner_is: str,
) -> None:
    if owner_is == "killed":
        flags = {"model": str(MODELS), "python": triton_python}
        process = owner("triton", flags)
        assert process.stdout is not None
        supervisor = int(process.stdout.readline())
        family = [*descendants(supervisor), *filter(None, [read_process(supervisor)])]
        process.kill()
        process.wait()
        process.stdout.close()
    else:
        server = launched(options)
        family = family_of(server)
        os.kill(server.pid or 0, signal.SIGKILL)
        assert "signal 9" in death_of(server)
        server.stop()
    assert all_gone(family)
