"""The telemetry as a whole: phases, epoch, absence, restarts, faults, and one real busy server."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from fake_nvml import FakeNvml
from fake_processes import FakeProcesses

from pytest_inferslo.core.metrics import METRICS
from pytest_inferslo.core.readings import DRAIN, IDLE, LOAD, Reading
from pytest_inferslo.telemetry.gpu import GPU_METRICS
from pytest_inferslo.telemetry.limits import limits_of
from pytest_inferslo.telemetry.poller import Telemetry
from pytest_inferslo.telemetry.server import SERVER_METRICS, LoadGeneratorProbe, ServerProbe

V2 = Path(__file__).parent / "trees" / "v2"
SERVER = 4242  # in V2: may use 1.5 CPUs
SECOND = 1_000_000_000


class FakeClock:
    def __init__(self) -> None:
        self.now = 50 * SECOND

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def system() -> FakeProcesses:
    system = FakeProcesses()
    system.put(1, 0)
    system.put(SERVER, 1, session=SERVER, rss=1000)
    system.put(4243, SERVER, session=SERVER, rss=800)
    system.shares = {SERVER: 700, 4243: 500}
    return system


def values(readings: list[tuple[str, str, float]]) -> dict[str, float]:
    return {metric: value for metric, _, value in readings}


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.005)


# The server's probe


def test_cpu_is_a_share_of_what_is_allowed_and_the_first_reading_is_discarded(
    system: FakeProcesses, clock: FakeClock
) -> None:
    probe = ServerProbe(lambda: [SERVER], system, clock, V2)
    system.run(SERVER, 400.0)
    assert values(probe.read()).keys() == {"server_memory"}
    clock.advance(0.5)
    system.run(SERVER, 0.5)
    system.run(4243, 0.25)
    found = values(probe.read())
    assert found["server_cpu_cores"] == pytest.approx(1.5)
    assert found["server_cpu"] == pytest.approx(1.0), "1.5 cores of a quota of 1.5"
    assert probe.absent() == {}


def test_a_restarted_server_begins_anew(system: FakeProcesses, clock: FakeClock) -> None:
    pid = SERVER
    probe = ServerProbe(lambda: [] if pid is None else [pid], system, clock, V2)
    probe.read()
    system.end(SERVER, reaper=None)
    system.put(77, 1, session=77)
    system.run(77, 900.0)
    pid = 77
    clock.advance(0.1)
    assert "server_cpu" not in values(probe.read())
    clock.advance(0.1)
    assert values(probe.read())["server_cpu_cores"] == pytest.approx(0.0)


def test_a_vanished_server_gives_no_readings(system: FakeProcesses, clock: FakeClock) -> None:
    probe = ServerProbe(lambda: [SERVER], system, clock, V2)
    probe.read()
    system.table.clear()
    clock.advance(0.1)
    assert probe.read() == []


@pytest.mark.parametrize(
    ("pid", "cause", "metrics"),
    [
        (None, "the server was not started here", SERVER_METRICS),
        (999_999, "no process of the server could be read", SERVER_METRICS),
        (SERVER, "fewer than two readings", SERVER_METRICS[:3]),
    ],
)
def test_absence_has_a_cause(
    system: FakeProcesses, clock: FakeClock, pid: int | None, cause: str, metrics: tuple[str, ...]
) -> None:
    probe = ServerProbe(lambda: [] if pid is None else [pid], system, clock, V2)
    probe.read()
    absent = probe.absent()
    assert set(absent) == set(metrics)
    assert all(cause in each for each in absent.values())


def test_memory_is_pss_and_follows_rss_between_its_readings(system: FakeProcesses, clock: FakeClock) -> None:
    def slow_pss(pid: int) -> int | None:
        clock.advance(0.1)
        return system.shares.get(pid)

    probe = ServerProbe(lambda: [SERVER], system, clock, V2)
    system.pss = slow_pss  # type: ignore[method-assign]
    assert values(probe.read())["server_memory"] == 1200
    system.put(4243, SERVER, session=SERVER, rss=860)
    before = clock.now
    assert values(probe.read())["server_memory"] == 1260
    assert clock.now == before, "0.2 s were spent on PSS: the next is 40 s away"
    system.shares[4243] = 590
    clock.advance(40.1)
    assert values(probe.read())["server_memory"] == 1290
    assert probe.notes() == []


def test_rss_stands_in_for_pss_and_says_so(system: FakeProcesses, clock: FakeClock) -> None:
    del system.shares[4243]
    probe = ServerProbe(lambda: [SERVER], system, clock, V2)
    assert values(probe.read())["server_memory"] == 1500
    assert probe.notes() == ["server_memory counts RSS, not PSS, for 1 processes (not readable as PSS)"]


def test_each_load_generator_process_is_a_share_of_one_core(system: FakeProcesses, clock: FakeClock) -> None:
    pids = [60, 61]
    for pid in pids:
        system.put(pid)
    probe = LoadGeneratorProbe(lambda: pids, system, clock)
    assert probe.read() == []
    system.run(60, 0.1)
    system.run(61, 0.02)
    clock.advance(0.2)
    assert probe.read() == [
        ("loadgen_cpu", "loadgen:60", pytest.approx(0.5)),
        ("loadgen_cpu", "loadgen:61", pytest.approx(0.1)),
    ]
    pids.remove(60)
    del system.table[61]
    assert probe.read() == []


# The thread


def poll(system: FakeProcesses, **options: object) -> Telemetry:
    options = {
        "interval_s": 0.01,
        "gpu": False,
        "proc_root": str(V2 / "proc"),
        "processes": system,
        **options,
    }
    return Telemetry(lambda: [SERVER], **options)  # type: ignore[arg-type]


def test_phases_epoch_and_names(system: FakeProcesses) -> None:
    nvml = FakeNvml()
    nvml.pids = {0: [4243]}
    telemetry = poll(system, gpu=None, nvml=nvml)
    telemetry.start()
    until(lambda: len(telemetry._raw) > 30)
    telemetry.phase(LOAD)
    time.sleep(0.05)
    epoch = time.monotonic_ns()
    telemetry.set_epoch(epoch)
    time.sleep(0.1)
    telemetry.phase(DRAIN)
    time.sleep(0.1)
    record = telemetry.stop()
    by_phase = {phase: [r for r in record.readings if r.phase == phase] for phase in (IDLE, LOAD, DRAIN)}
    assert all(by_phase.values())
    assert all(r.time < 0 for r in by_phase[IDLE])
    assert all(r.time > 0 for r in by_phase[DRAIN])
    times = [r.time for r in record.readings]
    assert times == sorted(times)
    names = {r.metric for r in record.readings}
    assert names == {"server_cpu", "server_cpu_cores", "server_memory", *GPU_METRICS}
    assert names <= METRICS.keys()
    assert {r.source for r in record.readings} == {"server", "GPU-0"}
    assert (record.absent, record.notes, nvml.open) == ({}, [], 0)
    assert [gpu["uuid"] for gpu in record.gpus] == ["GPU-0"]


def test_a_sink_takes_what_the_record_then_does_not_hold(system: FakeProcesses) -> None:
    taken: list[Reading] = []
    telemetry = poll(system, sink=taken.extend)
    telemetry.start()
    until(lambda: len(telemetry._raw) > 5)
    assert taken == [], "without an epoch there is no time to give"
    telemetry.set_epoch(time.monotonic_ns())
    until(lambda: len(taken) > 0)
    before = len(taken)
    record = telemetry.stop()
    assert record.readings == []
    assert len(taken) >= before
    assert [r.time for r in taken] == sorted(r.time for r in taken)


def test_no_load_is_said(system: FakeProcesses) -> None:
    telemetry = poll(system)
    telemetry.start()
    until(lambda: len(telemetry._raw) > 3)
    record = telemetry.stop()
    assert any("no load was offered" in note for note in record.notes)
    assert all(r.time <= 0 for r in record.readings)


@pytest.mark.parametrize(
    ("gpu", "pid", "cause"),
    [
        (False, SERVER, "switched off"),
        (None, None, "its GPUs cannot be told"),
        (None, SERVER, "no NVIDIA driver"),
        (True, None, "no NVIDIA driver"),
    ],
)
def test_gpu_absence(system: FakeProcesses, gpu: bool | None, pid: int | None, cause: str) -> None:
    telemetry = Telemetry(
        lambda: [] if pid is None else [pid],
        gpu=gpu,
        nvml=FakeNvml(driver=False),
        processes=system,
        proc_root=str(V2 / "proc"),
    )
    telemetry.start()
    until(lambda: telemetry._reads > 0)
    absent = telemetry.stop().absent
    assert set(GPU_METRICS) <= absent.keys()
    assert all(cause in absent[metric] for metric in GPU_METRICS)


def test_telemetry_that_breaks_makes_its_metrics_absent(system: FakeProcesses) -> None:
    telemetry = poll(system)
    telemetry.start()
    until(lambda: len(telemetry._raw) > 3)

    def broken(pid: int) -> None:
        raise RuntimeError("out of descriptors")

    system.sample = broken  # type: ignore[method-assign]
    assert telemetry._thread is not None
    telemetry._thread.join(30)
    record = telemetry.stop()
    assert {"server_cpu", "server_memory", "server_cpu_increase", "loadgen_cpu"} <= record.absent.keys()
    assert "out of descriptors" in record.absent["server_cpu"]


def test_slow_readings_are_told(system: FakeProcesses) -> None:
    telemetry = poll(system, interval_s=0.4)
    telemetry.start()
    until(lambda: telemetry._reads >= 4)
    assert any("times a second" in note for note in telemetry.stop().notes)


BUSY = """
import os, subprocess, sys, time
if os.fork() == 0: print(os.getpid(), flush=True)       # two busy processes,
os.setsid()                                             # each in a session of its own
while True:
    subprocess.run(["/bin/true"])                       # children that exit while they are sampled
    end = time.process_time() + 0.05
    while time.process_time() < end: pass
"""


def test_two_busy_cores_with_children_that_come_and_go() -> None:
    """Case 50: the readings add up to what the processes used, while their children exit under the sampler."""
    child = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
    assert child.stdout is not None
    pids = [child.pid, int(child.stdout.readline())]
    telemetry = Telemetry(lambda: [child.pid], loadgen_pids=lambda: [os.getpid()])
    try:
        before = sum(sum(psutil.Process(pid).cpu_times()[:4]) for pid in pids)
        telemetry.start()
        time.sleep(1.5)
        telemetry.set_epoch(time.monotonic_ns())
        record = telemetry.stop()
        used = sum(sum(psutil.Process(pid).cpu_times()[:4]) for pid in pids) - before
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
    cores = [r.value for r in record.readings if r.metric == "server_cpu_cores"]
    shares = [r.value for r in record.readings if r.metric == "server_cpu"]
    times = [r.time / SECOND for r in record.readings if r.metric == "server_cpu_cores"]
    assert len(cores) >= 5
    assert min(cores) >= 0
    seen = sum(value * (now - then) for value, then, now in zip(cores[1:], times, times[1:], strict=False))
    # The first interval is not in the sum, and on a loaded machine the edges are a good part of the rest.
    assert 0.5 * used < seen < used + 0.1
    assert statistics.mean(shares) == pytest.approx(statistics.mean(cores) / limits_of().cpus)
    memory = [r.value for r in record.readings if r.metric == "server_memory"]
    assert min(memory) > 1 << 20
    assert [r for r in record.readings if r.metric == "loadgen_cpu"]
    assert not [name for name in record.absent if name.startswith("server")]


def test_no_thread_is_left(system: FakeProcesses) -> None:
    telemetry = poll(system)
    telemetry.start()
    telemetry.stop()
    assert "inferslo-telemetry" not in {thread.name for thread in threading.enumerate()}
