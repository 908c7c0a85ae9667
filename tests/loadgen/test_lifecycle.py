"""What is left when something dies: nothing, and a result that says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from raw_server import RawServer, answer_all

from pytest_inferslo.core.arrivals import concurrency
from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.errors import LoadError
from pytest_inferslo.loadgen.offer import LoadGenerator, LoadInterrupted, Progress
from pytest_inferslo.loadgen.order import unheard_users
from pytest_inferslo.storage.samples import read_batches


def wait_until(condition: Any, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def gone(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)


class At:
    """Does `action` once the load is `seconds` old."""

    def __init__(self, seconds: float, action: Any) -> None:
        self._seconds, self._action = seconds, action
        self.done_at = 0.0

    def __call__(self, progress: Progress) -> None:
        if progress.elapsed_s >= self._seconds and not self.done_at:
            self.done_at = time.monotonic()
            self._action()


def test_a_stop_records_the_rest_as_never_sent(load: Any) -> None:
    stop: list[str] = []
    with RawServer(answer_all()) as server:
        order = load.order(server.url, duration=30)
        result = load.generator.offer(
            order,
            on_progress=At(0.5, lambda: stop.append("that is enough")),
            should_stop=lambda: stop[0] if stop else None,
        )
    offered = load.read(order, result)
    assert result.stopped_early == "that is enough"
    assert set(offered.outcomes) <= {"SUCCESS", "UNFINISHED", "NEVER_SENT"}
    assert offered.outcomes["NEVER_SENT"] > 1000
    assert offered.outcomes["SUCCESS"] > 5


def test_ctrl_c_ends_the_load_and_leaves_complete_samples(load: Any) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with RawServer(answer_all()) as server:
        order = load.order(server.url, duration=30)
        with pytest.raises(LoadInterrupted) as caught:
            load.generator.offer(order, on_progress=At(0.5, interrupt))
        assert isinstance(caught.value, KeyboardInterrupt)
        counts = caught.value.result.counts
        assert counts["issued"] == counts["intended"] == 1500
        assert caught.value.result.stopped_early == "interrupted"
        rows = np.concatenate([batch.samples for batch in read_batches(Path(order.run_directory))])
        assert sorted(rows["index"].tolist()) == list(range(1500))
        assert load(server.url).outcomes == {"SUCCESS": 20}, "and the next load works"


def test_a_killed_worker_ends_the_run_at_once(load: Any, tmp_path: Path) -> None:
    with RawServer(answer_all()) as server, LoadGenerator(tmp_path / "logs", workers=2) as generator:
        order = load.order(server.url, duration=30)
        kill = At(0.5, lambda: os.kill(generator.pids()[1], signal.SIGKILL))
        result = generator.offer(order, on_progress=kill)
        assert time.monotonic() - kill.done_at < 5
        assert [worker["lost"] for worker in result.workers].count(True) == 1
        assert "was lost" in result.errors[0]
        assert result.counts["issued"] < result.counts["intended"] == 1500
        rows = np.concatenate([batch.samples for batch in read_batches(Path(order.run_directory))])
        assert set(rows["worker"].tolist()) == {0, 1}, "what the lost one had sent is kept"
        assert (rows["outcome"] == Outcome.SUCCESS).sum() > 10
        again = generator.offer(load.order(server.url))
        assert again.errors == []
        assert again.counts["succeeded"] == 20


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (signal.SIGKILL, "master ended"),
        (signal.SIGSTOP, "nothing was heard of the load generator's master for 1 s"),
    ],
)
def test_a_lost_master_is_an_error(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals, said: str
) -> None:
    monkeypatch.setattr("pytest_inferslo.loadgen.offer._SILENCE_SECONDS", 1.0)
    monkeypatch.setattr("pytest_inferslo.loadgen.offer._STOP_SECONDS", 1.0)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "master.log").write_text("trouble of yesterday\n")
    with RawServer(answer_all()) as server, LoadGenerator(tmp_path / "logs") as generator:
        kill = At(0.3, lambda: os.kill(generator.pids()[0], sent))
        pids: list[int] = []

        def on_progress(progress: Progress) -> None:
            pids[:] = pids or generator.pids()
            kill(progress)

        with pytest.raises(LoadError, match=said) as lost:
            generator.offer(load.order(server.url, duration=30), on_progress=on_progress)
        assert "yesterday" not in str(lost.value)
        assert gone(pids)


def test_users_that_never_asked_are_told() -> None:
    assert unheard_users([5, 5], {0: 5, 1: 90}) == []
    assert unheard_users([5, 5, 0], {0: 40, 1: 4}) == ["worker 1 had 5 users and recorded 4 requests"]
    assert unheard_users([5], {}) == ["worker 0 had 5 users and recorded 0 requests"]


def test_a_closed_loop_that_cannot_connect_is_never_a_small_load(load: Any) -> None:
    with RawServer(answer_all()) as server:
        order = load.order(server.url, "http://127.0.0.1:9", arrivals=concurrency(10))
        result = load.generator.offer(order)
    assert result.errors or result.counts["failed"] > 0


SESSION = """
import sys, time
from pathlib import Path
from pytest_inferslo.loadgen.offer import LoadGenerator
generator = LoadGenerator(Path(sys.argv[1]), workers=2)
generator.wait_until_ready()
print(*generator.pids(), flush=True)
time.sleep(60)
"""


def test_case_44_nothing_outlives_a_killed_session(tmp_path: Path) -> None:
    session = subprocess.Popen(
        [sys.executable, "-c", SESSION, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert session.stdout is not None
    pids = [int(pid) for pid in session.stdout.readline().split()]
    assert len(pids) == 3
    session.kill()
    session.wait()
    assert wait_until(lambda: gone(pids))


def test_close_leaves_no_process(tmp_path: Path) -> None:
    generator = LoadGenerator(tmp_path)
    generator.wait_until_ready()
    pids = generator.pids()
    generator.close()
    assert gone(pids)


def test_workers_that_never_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_inferslo.loadgen.offer._START_SECONDS", 3.0)
    with LoadGenerator(tmp_path, workers=0, expect_workers=1) as generator:
        with pytest.raises(LoadError, match="not all of 1 workers connected to 127"):
            generator.wait_until_ready()


def test_the_pytest_process_never_imports_locust() -> None:
    code = (
        "import sys, pytest_inferslo.loadgen.offer; bad = {'locust', 'gevent', 'numpy'} & set(sys.modules);"
        " sys.exit(str(bad) if bad else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
