"""However the pytest process ends, its server and everything below it end too (cases 42 and 44)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

_OWNER = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {folder!r})
from faulty import Faulty
from pytest_inferslo.backends import BackendOptions, start

with start(Faulty(("--engine", {engine!r})), BackendOptions(log_path=Path({log!r}))) as server:
    print("ready", server.pid, flush=True)
    {then}
"""


def start_owner(tmp_path: Path, engine: str, then: str = "time.sleep(600)") -> subprocess.Popen[str]:
    folder, log = str(Path(__file__).parent), str(tmp_path / "log")
    code = _OWNER.format(folder=folder, log=log, engine=engine, then=then)
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline().startswith("ready")
    return owner


def nothing_left(survivors: Callable[[], list[str]], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while survivors() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not survivors()


@pytest.mark.parametrize("engine", ["stubborn", "orphan"])
def test_a_kill_of_the_process_that_started_it(
    tmp_path: Path, survivors: Callable[[], list[str]], engine: str
) -> None:
    owner = start_owner(tmp_path, engine)
    assert len(survivors()) >= 3
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    assert nothing_left(survivors), survivors()
    assert owner.stdout is not None
    owner.stdout.close()


def test_a_forked_child_of_pytest_does_not_keep_the_server_alive(
    tmp_path: Path, survivors: Callable[[], list[str]]
) -> None:
    """A fork inherits the pipe to the supervisor: its end alone would not tell that pytest is gone."""
    then = "(time.sleep(3), os._exit(0)) if os.fork() == 0 else os._exit(1)"
    owner = start_owner(tmp_path, "plain", then)
    owner.wait()
    deadline = time.monotonic() + 2.5
    while any("faulty_server" in line for line in survivors()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any("faulty_server" in line for line in survivors())
    assert owner.stdout is not None
    owner.stdout.close()


_TESTED = """
import sys, time
from pathlib import Path
import pytest
sys.path.insert(0, {folder!r})
from faulty import Faulty
from pytest_inferslo.backends import BackendOptions, start

@pytest.fixture(scope="session")
def server():
    with start(Faulty(("--engine", "stubborn")), BackendOptions(log_path=Path("server.log"))) as server:
        yield server

def test_that_hangs(server):
    Path("ready").touch()
    time.sleep(600)
"""


@pytest.mark.parametrize("end", ["SIGINT", "SIGKILL", "pytest-timeout"])
def test_an_end_of_a_real_pytest(tmp_path: Path, survivors: Callable[[], list[str]], end: str) -> None:
    (tmp_path / "test_hanging.py").write_text(_TESTED.format(folder=str(Path(__file__).parent)))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:inferslo", "-p", "no:cacheprovider"]
    if end == "pytest-timeout":
        pytest.importorskip("pytest_timeout")
        command += ["--timeout=1", "--timeout-method=thread", "-o", "timeout_func_only=true"]
    owner = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 20.0
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline and owner.poll() is None:
        time.sleep(0.02)
    assert (tmp_path / "ready").exists()
    if end != "pytest-timeout":
        os.killpg(owner.pid, getattr(signal, end))  # the whole group, as a terminal does
    owner.wait(timeout=30)
    assert nothing_left(survivors), survivors()
