"""Real engines in virtual environments of their own (`.ci/install_engines.sh`), named by environment variables."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_inferslo.backends.supervisor import Process, is_same, read_process

_HERE = Path(__file__).parent


def interpreter(variable: str) -> str:
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} names no interpreter of an engine's environment (make test-engines sets it)")
    return str(Path(python).absolute())


@pytest.fixture(scope="session")
def vllm_python() -> str:
    return interpreter("INFERSLO_VLLM_PYTHON")


@pytest.fixture(scope="session")
def triton_python() -> str:
    return interpreter("INFERSLO_TRITON_PYTHON")


@pytest.fixture(scope="session")
def tiny_model(vllm_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with the adapters `alpha` and `beta` beside it; weights are the engine's own dummies."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    maker = str(_HERE / "make_model.py")
    subprocess.run([vllm_python, maker, str(folder), "--lora", "alpha", "--lora", "beta"], check=True)
    return folder


@pytest.fixture
def all_gone() -> Callable[[list[Process]], bool]:
    """Whether every one of these processes ends within ten seconds."""

    def wait(family: list[Process]) -> bool:
        deadline = time.monotonic() + 10.0
        while any(is_same(each, read_process(each.pid)) for each in family):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    return wait


@pytest.fixture
def owner(tmp_path: Path) -> Callable[[str, dict[str, object]], subprocess.Popen[str]]:
    """Another process that starts a server, prints the pid of its supervisor once it is ready, and waits."""

    def start(backend: str, options: dict[str, object]) -> subprocess.Popen[str]:
        code = (
            "import os, time\nfrom pathlib import Path\n"
            "from pytest_inferslo.backends import BackendOptions, resolve, start\n"
            "from pytest_inferslo.backends.supervisor import read_process\n"
            f"options = BackendOptions(log_path=Path({str(tmp_path / 'owned.log')!r}), **{options!r})\n"
            f"server = start(resolve({backend!r}, options), options)\n"
            "print(read_process(server.pid).parent, flush=True)\ntime.sleep(600)\n"
        )
        return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)

    return start
