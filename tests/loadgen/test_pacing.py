"""When the loop wakes, and whose clock says when bytes came: in processes of their own, for gevent's sake."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from raw_server import RawServer, answer_all

from pytest_inferslo.loadgen import pacing

PACE = """
import time, gevent
from pytest_inferslo.loadgen import pacing
loop, early, fired = gevent.get_hub().loop, [], []
def callback():
    now = time.monotonic_ns()
    fired.append(now - due[0])
    if len(fired) < 5:
        due[0] = now + 20_000_000
        pacer.arm(due[0])
    else:
        pacer.disarm()
pacer = pacing.{kind}(loop, callback)
due = [time.monotonic_ns() + 20_000_000]
pacer.arm(due[0] + 10**12)
pacer.arm(due[0])
gevent.sleep(0.5)
pacer.close()
assert len(fired) == 5, fired
assert min(fired) > (0 if "{kind}" == "SpinPacer" else -1_100_000), fired
print(pacing.pacer(loop, callback).name)
"""

STEP = """
import time
from pytest_inferslo.loadgen import stamps
kept = stamps.Stamps(kernel=False)
assert kept.name == "clock"
assert abs(time.time_ns() - kept.offset - time.monotonic_ns()) < 5e7
kept.measure()
assert kept.steps == 0
wall = time.time_ns
stamps.time.time_ns = lambda: wall() + 3_600_000_000_000
kept.measure()
assert kept.steps == 1
"""


class Armed:
    name = "made"

    def arm(self, due: int) -> None:
        self.due = due

    disarm = close = print


def test_time_that_another_process_had_was_not_spun(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be taken off the CPU time of a worker that never had it, and hide how busy that is."""
    times = iter([50_000, 60_000, 9_000_000, 9_500_000])
    timer, fired = Armed(), []
    monkeypatch.setattr(pacing, "pacer", lambda loop, callback: timer)
    monkeypatch.setattr(pacing, "time", SimpleNamespace(monotonic_ns=lambda: next(times)))
    spin = pacing.SpinPacer(None, lambda: fired.append(True))
    spin.arm(100_000)
    spin._ahead()
    assert fired == [True]
    assert spin.spun_ns == 50_000


@pytest.mark.parametrize("kind", ["TimerfdPacer", "LibevPacer", "SpinPacer"])
def test_pacers_fire_once_and_not_early(kind: str) -> None:
    """libev's clock ticks in ms, so its timers may be that early."""
    if kind == "TimerfdPacer" and sys.platform != "linux":
        pytest.skip("timerfd is Linux's")
    out = subprocess.run(
        [sys.executable, "-c", PACE.replace("{kind}", kind)], capture_output=True, text=True, check=False
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip() == ("timerfd" if sys.platform == "linux" else "libev")


def test_a_stepped_realtime_clock_is_noticed() -> None:
    assert subprocess.run([sys.executable, "-c", STEP], check=False).returncode == 0


@pytest.mark.parametrize("spin", [True, False])
def test_a_spinning_worker_says_so_and_how_long_it_spun(load: Any, spin: bool) -> None:
    with RawServer(answer_all()) as server:
        order = replace(load.order(server.url), spin=spin)
        workers = load.read(order, load.generator.offer(order)).result.workers
    assert [worker["pacing"].endswith("spin") for worker in workers] == [spin] * len(workers)
    assert [worker["spun_ns"] > 0 for worker in workers] == [spin] * len(workers)
    assert all(0 < worker["cpu_share"] <= 1 for worker in workers)


@pytest.mark.parametrize("stamps", ["kernel", "clock"])
def test_the_record_says_whose_stamps_they_are(load: Any, stamps: str) -> None:
    with RawServer(answer_all()) as server:
        order = replace(load.order(server.url), stamps=stamps)
        offered = load.read(order, load.generator.offer(order))
    wanted = stamps if sys.platform == "linux" else "clock"
    assert {worker["stamps"] for worker in offered.result.workers} == {wanted}
    rows = offered.samples
    assert (rows["first"] >= rows["sent"]).all()
    assert (rows["end"] >= rows["last"]).all()
