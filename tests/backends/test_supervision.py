"""The fault table: each way in which a server goes wrong ends with the right error, and with nothing left."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from faulty import Faulty, dies, wait_for

from pytest_inferslo.backends import BackendOptions, RunningServer, StartProgress, start
from pytest_inferslo.backends.supervisor import descendants, is_same, name_of, read_process
from pytest_inferslo.errors import BackendConfigError, BackendStartError

Serve = Callable[..., RunningServer]
Survivors = Callable[[], list[str]]


def engine_of(server: RunningServer) -> int:
    assert server.pid is not None
    return next(process.pid for process in descendants(server.pid))


def test_a_good_server_is_started_proven_and_stopped(serve: Serve, survivors: Survivors) -> None:
    server = serve("--engine", "plain")
    server.check()
    record = server.record
    assert record["proved_by"] == "/v1/chat/completions"
    assert (record["kind"], record["version"], record["simulated"]) == ("launched", "1.2.3", False)
    assert record["endpoints"][0]["model"] == "fake-model"
    assert server.metrics_url is not None
    assert server.metrics_url.endswith("/metrics")
    server.stop()
    assert survivors() == []
    report = server.stop_report
    assert report is not None
    assert report.survivors == ()


@pytest.mark.parametrize(
    ("flags", "step", "seen"),
    [
        pytest.param(["--delay", "1", "--exits", "0"], "health", "exited with exit status 0", id="rc 0"),
        pytest.param(["--exits", "3"], "health", "exited with exit status 3", id="rc 3"),
        pytest.param(["--completions", "fail"], "first completion", "HTTP 500: boom", id="completions fail"),
        pytest.param(["--completions", "forbid"], "first completion", "--api-key-env", id="key is missing"),
        pytest.param(["--lists", "other"], "model", "lists other, not fake-model", id="another model"),
    ],
)
def test_a_server_that_never_gets_ready_is_an_error_with_its_log(
    options: BackendOptions, survivors: Survivors, flags: list[str], step: str, seen: str
) -> None:
    begun = time.monotonic()
    with pytest.raises(BackendStartError) as caught:
        start(Faulty((*flags, "--engine", "plain")), replace(options, start_timeout_s=15.0))
    message = str(caught.value)
    assert message.startswith(f"{step}: ")
    assert seen in message
    assert "faulty_server.py" in message  # the command, to run it by hand
    assert "last lines of" in message
    assert time.monotonic() - begun < 15.0
    assert survivors() == []


def test_an_exit_is_seen_within_a_second(options: BackendOptions, survivors: Survivors) -> None:
    with pytest.raises(BackendStartError) as caught:
        start(Faulty(("--delay", "0.5", "--exits", "0")), options)
    seen_within = time.time() - options.log_path.stat().st_mtime  # since its last words
    assert seen_within < 1.0 + 1.0  # the second is the stop's, on a busy machine
    assert "this is the end" in str(caught.value)


def test_healthy_with_hanging_completions_is_not_ready(options: BackendOptions, survivors: Survivors) -> None:
    progress: list[StartProgress] = []
    with pytest.raises(BackendStartError, match=r"first completion: .*within 5 s"):
        start(Faulty(("--completions", "hang")), replace(options, start_timeout_s=5.0), progress.append)
    assert survivors() == []
    assert {each.step for each in progress} == {
        f"waiting for its {what}" for what in ("health page", "list of models", "first completion")
    }
    assert progress[0].detail == "", "before anything was seen there is nothing to say"


def test_an_end_during_a_hanging_completion_is_seen_at_once(
    options: BackendOptions, survivors: Survivors
) -> None:
    def kill(progress: StartProgress) -> None:
        if progress.step == "waiting for its first completion":
            for line in survivors():
                if "faulty_server" in line:
                    os.kill(int(line.split(":")[0]), signal.SIGKILL)

    begun = time.monotonic()
    with pytest.raises(BackendStartError, match="first completion: the server exited with signal 9"):
        start(Faulty(("--completions", "hang")), options, kill)
    assert time.monotonic() - begun < 10.0


def test_a_megabyte_of_log_before_listening_blocks_nothing(serve: Serve, options: BackendOptions) -> None:
    server = serve("--chatter", str(2**20))
    server.check()
    assert options.log_path.stat().st_size > 2**20


def test_the_command_cannot_be_run(options: BackendOptions, survivors: Survivors) -> None:
    with pytest.raises(BackendConfigError, match="cannot run '/no/such/engine'"):
        start(Faulty(changes={"command": ("/no/such/engine", "serve")}), options)


def test_a_stranger_at_the_port_is_not_taken_for_ours(
    options: BackendOptions, stranger: Any, monkeypatch: pytest.MonkeyPatch, survivors: Survivors
) -> None:
    from pytest_inferslo.backends import ports

    port = ports.free_port()
    child = stranger(port)
    monkeypatch.setattr(ports, "free_port", lambda: port)
    # Ours takes its time, so the stranger answers everything first: health, model and completion.
    wanted = rf"port {port} belongs to process {child.pid} \(.*faulty_server"
    with pytest.raises(BackendStartError, match=wanted):
        start(Faulty(("--delay", "60")), options)
    assert child.poll() is None
    with pytest.raises(BackendStartError, match=r"Address already in use|belongs to process"):
        start(Faulty(), options)


def test_kill_of_the_server_leaves_no_orphan(serve: Serve, survivors: Survivors) -> None:
    server = serve("--engine", "stubborn")
    engine = engine_of(server)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    message = dies(server)
    assert "exited with signal 9" in message
    assert "listening" in message
    assert read_process(engine) is not None  # the kernel leaves the child; the stop must find it
    server.stop()
    assert survivors() == []


def test_kill_of_the_engine_is_the_death_of_a_server_that_exits_with_0(
    serve: Serve, survivors: Survivors
) -> None:
    server = serve("--engine", "plain")
    os.kill(engine_of(server), signal.SIGKILL)
    assert re.search(r"exit status 0|health page says HTTP 503", dies(server))
    server.stop()
    assert survivors() == []


def test_kill_of_the_engine_is_the_death_of_a_server_that_stays(serve: Serve, survivors: Survivors) -> None:
    server = serve("--engine", "plain", "--outlives-engine")
    engine = engine_of(server)
    os.kill(engine, signal.SIGKILL)
    message = dies(server)
    assert f"its process {engine} is gone and its health page says HTTP 503" in message
    assert "EngineDeadError" in message


def test_a_child_that_is_not_needed_may_end(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve("--engine", "orphan")
    assert server.pid is not None
    # The orphan left the server's tree: the root that covers both is their supervisor.
    assert "supervisor.py" in name_of(server.pid)
    orphan = descendants(server.pid)[-1]
    assert "faulty_server" not in name_of(orphan.pid)
    os.kill(orphan.pid, signal.SIGKILL)
    assert wait_for(lambda: not is_same(orphan, read_process(orphan.pid)))
    monkeypatch.setattr("pytest_inferslo.backends.server._STAYS_HEALTHY_S", 0.2)

    def is_forgiven() -> bool:
        server.check()
        return any("ended while it stayed healthy" in note for note in server.notes)

    assert wait_for(is_forgiven)


@pytest.mark.parametrize("engine", ["stubborn", "orphan"])
@pytest.mark.parametrize("deaf", [[], ["--deaf"]], ids=["hears", "deaf"])
def test_a_stop_ends_what_ignores_it(
    serve: Serve, survivors: Survivors, engine: str, deaf: list[str]
) -> None:
    server = serve("--engine", engine, *deaf)
    assert any("time.sleep" in line for line in survivors())
    begun = time.monotonic()
    server.stop()
    assert time.monotonic() - begun < 10.0
    assert survivors() == []
    report = server.stop_report
    assert report is not None
    assert any("-c import" in name for _, name in report.killed)


def test_a_killed_supervisor_takes_the_family_with_it(serve: Serve, survivors: Survivors) -> None:
    server = serve("--engine", "stubborn")
    assert server.pid is not None
    process = read_process(server.pid)
    assert process is not None
    assert "supervisor.py" in name_of(process.parent) or process.parent != os.getpid()
    server.check()
    os.kill(process.parent, signal.SIGKILL)
    assert "exited with signal 9" in dies(server)
    server.stop()
    assert survivors() == []


def test_shared_memory_that_was_left_is_named(serve: Serve) -> None:
    name = f"inferslo-test-{os.getpid()}"
    server = serve("--shared-memory", name, "--engine", "plain", "--deaf")
    server.stop()
    try:
        assert any(f"left behind: /dev/shm/{name}" in note for note in server.notes), server.notes
    finally:
        if os.path.exists(f"/dev/shm/{name}"):  # noqa: PTH110
            os.unlink(f"/dev/shm/{name}")  # noqa: PTH108


def test_probes_never_go_through_a_proxy(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = serve()
    assert server.reset_between_scenarios() is True


def test_an_interrupt_while_starting_leaves_nothing(options: BackendOptions, survivors: Survivors) -> None:
    def interrupt(progress: StartProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(Faulty(("--engine", "stubborn")), options, interrupt)
    assert survivors() == []
