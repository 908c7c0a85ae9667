"""Which scenarios share a server, and how several servers act as one."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from faulty import Faulty, dies

from pytest_inferslo.backends import BackendOptions, Fleet, Group, RunningGroup, RunningServer, resolve, start
from pytest_inferslo.backends.supervisor import read_process
from pytest_inferslo.errors import BackendConfigError, BackendStartError


def resets(server: RunningServer | RunningGroup) -> int:
    return int(requests.get(f"{server.endpoints[0].url}/resets", timeout=5).text)


def test_one_server_serves_equal_options_and_is_reset_between(
    options: BackendOptions, survivors: Callable[[], list[str]]
) -> None:
    backend = Faulty()
    with Fleet() as fleet:
        first = fleet.server(backend, options)
        assert resets(first) == 0
        again = fleet.server(backend, replace(options, log_path=Path("elsewhere.log"), start_timeout_s=9.0))
        assert again is first
        assert resets(first) == 1

        other = fleet.server(backend, replace(options, args=["--chatter", "64"]))
        assert other is not first
        # Gone before the next one starts (they would share the machine), and not even a zombie of it is left.
        assert read_process(first.pid or 0) is None

        os.kill(other.pid or 0, signal.SIGKILL)
        fresh = fleet.server(backend, replace(options, args=["--chatter", "64"]))
        assert fresh is not other
        assert "died between two scenarios" in fleet.notes[-1]
        fresh.check()
        name = f"inferslo-fleet-{os.getpid()}"
        fleet.server(backend, replace(options, args=["--shared-memory", name]))
    assert any(name in note for note in fleet.notes)
    Path(f"/dev/shm/{name}").unlink()
    assert survivors() == []


@pytest.mark.parametrize(
    "change",
    [
        {"model": "x"},
        {"args": ["--chatter", "1"]},
        {"env": {"A": "b"}},
        {"python": "/other/python"},
        {"command": ["x"]},
        {"lora": {"a": "b"}},
        {"lora_runtime": True},
        {"api_key_env": "K"},
        {"headers": {"a": "b"}},
    ],
)
def test_options_that_want_another_server(change: dict[str, Any]) -> None:
    assert BackendOptions(**change).identity() != BackendOptions().identity()
    assert BackendOptions(**change).identity() == BackendOptions(**change).identity()


def write_group(tmp_path: Path, options: BackendOptions, text: str) -> Group:
    path = tmp_path / "pair.yaml"
    path.write_text(text)
    group = resolve(str(path), options, {"faulty": Faulty()})
    assert isinstance(group, Group)
    return group


PAIR = """
backends:
- {backend: faulty, replicas: 2, weight: 3}
- {backend: faulty, name: canary, weight: 1, args: [--engine, stubborn]}
"""


def test_a_group_is_one_server(
    tmp_path: Path, options: BackendOptions, survivors: Callable[[], list[str]]
) -> None:
    group = write_group(tmp_path, options, PAIR)
    with Fleet() as fleet:
        running = fleet.server(group, options)
        assert isinstance(running, RunningGroup)
        assert [(each.name, each.weight) for each in running.endpoints] == [
            ("faulty-0", 1.5),
            ("faulty-1", 1.5),
            ("canary", 1.0),
        ]
        assert len({each.url for each in running.endpoints}) == 3
        assert len(running.pids) == 3
        assert running.pid is None  # no single tree stands for all of them
        assert set(running.metrics_urls) == {"faulty-0", "faulty-1", "canary"}
        assert (tmp_path / "server-canary.log").exists()
        assert fleet.server(group, options) is running
        running.check()
        record = running.record
        assert [(member["name"], member["adapter"]) for member in record["members"]] == [
            ("faulty-0", "faulty"),
            ("faulty-1", "faulty"),
            ("canary", "faulty"),
        ]
        os.kill(running.pids[1], signal.SIGKILL)
        assert "faulty-1: the server exited with signal 9" in dies(running)
    assert survivors() == []


def test_a_member_that_fails_ends_the_others(
    tmp_path: Path, options: BackendOptions, survivors: Callable[[], list[str]]
) -> None:
    group = write_group(tmp_path, options, PAIR.replace("--engine, stubborn", "--exits, '3'"))
    with pytest.raises(BackendStartError, match="canary: health: the server exited with exit status 3"):
        start(group, options)
    assert survivors() == []


def test_a_failure_does_not_wait_for_slow_members(
    tmp_path: Path, options: BackendOptions, survivors: Callable[[], list[str]]
) -> None:
    text = PAIR.replace("replicas: 2", "args: [--delay, '60']").replace("--engine, stubborn", "--exits, '3'")
    begun = time.monotonic()
    with pytest.raises(BackendStartError, match="exit status 3"):
        start(write_group(tmp_path, options, text), replace(options, start_timeout_s=90.0))
    assert time.monotonic() - begun < 30.0
    assert survivors() == []


def test_steps_of_a_group_name_the_member(tmp_path: Path, options: BackendOptions, survivors: Any) -> None:
    steps: set[str] = set()
    with start(write_group(tmp_path, options, PAIR), options, lambda progress: steps.add(progress.step)):
        pass
    assert "canary: waiting for its health page" in steps
    assert all(re.match(r"(faulty-\d|canary): ", step) for step in steps)


def test_adapters_at_run_time_need_a_server_for_them(serve: Callable[..., RunningServer]) -> None:
    from pytest_inferslo.errors import BackendError

    with pytest.raises(BackendError, match="was not started for adapters"):
        serve().load_adapter("a", "/a")


def test_a_second_holder_of_the_lock_is_refused_or_waits(tmp_path: Path) -> None:
    from pytest_inferslo.backends import exclusive

    path = tmp_path / "lock"
    with exclusive(path):
        told: list[str] = []
        with pytest.raises(BackendConfigError, match=rf"pid {os.getpid()} .* holds {path}"):
            with exclusive(path, wait_s=0.3, on_wait=told.append):
                pass
        assert len(told) >= 2  # again and again, so that a reader sees how long it takes
        assert set(told) == {told[0]}
    with exclusive(path):
        pass


def test_the_lock_can_be_put_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_inferslo.backends import exclusive

    monkeypatch.setenv("INFERSLO_LOCK_FILE", str(tmp_path / "elsewhere"))
    with exclusive():
        assert str(os.getpid()) in (tmp_path / "elsewhere").read_text()


def test_the_lock_falls_with_its_holder(tmp_path: Path) -> None:
    import subprocess
    import sys

    from pytest_inferslo.backends import exclusive

    path = tmp_path / "lock"
    code = (
        "import pathlib, sys, time\nfrom pytest_inferslo.backends import exclusive\n"
        "with exclusive(pathlib.Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(600)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(BackendConfigError, match=f"pid {holder.pid}"):
        with exclusive(path):
            pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with exclusive(path, wait_s=5.0):
        pass
