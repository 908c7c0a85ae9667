"""Servers for the tests of backends.

Real processes that go wrong in a chosen way, and a look at what is left of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty import FAKE_SERVERS, Faulty

from pytest_inferslo.backends import BackendOptions, RunningServer, start
from pytest_inferslo.backends.supervisor import process_table


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Stands in the environment of every process that the test starts, and of no other."""
    value = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("INFERSLO_TEST_MARK", value)
    return value


@pytest.fixture
def survivors(mark: str) -> Iterator[Callable[[], list[str]]]:
    """The command lines of processes that this test started and that live still.

    The test fails when any is left.
    """

    def look() -> list[str]:
        found = []
        for process in process_table().values():
            if process.zombie or process.pid == os.getpid():
                continue
            try:
                environment = Path(f"/proc/{process.pid}/environ").read_bytes()
                words = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in environment or mark.encode() in words:
                found.append(f"{process.pid}: {words.replace(bytes(1), b' ').decode(errors='replace')}")
        return found

    yield look
    deadline = time.monotonic() + 10.0
    while look() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert look() == []


@pytest.fixture
def options(tmp_path: Path) -> BackendOptions:
    return BackendOptions(log_path=tmp_path / "server.log", start_timeout_s=20.0)


@pytest.fixture
def serve(options: BackendOptions, survivors: Any) -> Iterator[Callable[..., RunningServer]]:
    """Starts a faulty server with these flags; whatever still runs at the end is stopped."""
    running: list[RunningServer] = []

    def start_faulty(*flags: str, **changes: Any) -> RunningServer:
        server = start(Faulty(flags, **changes), options)
        assert isinstance(server, RunningServer)
        running.append(server)
        return server

    yield start_faulty
    for server in running:
        server.stop()


@pytest.fixture
def stranger(survivors: Any) -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """Somebody else's server at a port, with the same pages as ours."""
    children: list[subprocess.Popen[bytes]] = []

    def listen(port: int) -> subprocess.Popen[bytes]:
        script = str(FAKE_SERVERS / "faulty_server.py")
        child = subprocess.Popen([sys.executable, script, "--port", str(port)], stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline().strip() == b"listening"
        return child

    yield listen
    for child in children:
        child.kill()
        child.wait()
        if child.stdout:
            child.stdout.close()
