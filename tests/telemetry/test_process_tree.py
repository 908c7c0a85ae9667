"""CPU time of a process tree whose members come, go, and are waited for by whom they like."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest
from fake_processes import FakeProcesses

from pytest_inferslo.telemetry.processes import ProcessTree, PsutilProcesses

ROOT = 100


@pytest.fixture
def system() -> FakeProcesses:
    system = FakeProcesses()
    system.put(1, 0)
    system.put(50)
    system.put(ROOT, 50, session=ROOT)
    system.put(101, ROOT, session=ROOT)
    system.put(102, 101, session=ROOT)
    system.put(60, 50)
    return system


def test_the_first_read_is_zero_whatever_was_used_before(system: FakeProcesses) -> None:
    system.run(ROOT, 500.0)
    tree = ProcessTree(system, ROOT)
    assert tree.read() == 0.0
    assert set(tree.members) == {ROOT, 101, 102}


def test_all_members_count_and_nobody_else(system: FakeProcesses) -> None:
    tree = ProcessTree(system, ROOT)
    tree.read()
    for pid, seconds in ((ROOT, 1.0), (101, 2.0), (102, 4.0), (50, 64.0), (60, 128.0)):
        system.run(pid, seconds)
    assert tree.read() == pytest.approx(7.0)


def test_the_servers_of_a_group_count_together(system: FakeProcesses) -> None:
    system.put(200, 50, session=200)
    system.put(201, 200, session=200)
    tree = ProcessTree(system, ROOT, 200)
    tree.read()
    for pid in (ROOT, 102, 200, 201, 60):
        system.run(pid, 1.0)
    assert tree.read() == pytest.approx(4.0)
    assert set(tree.members) == {ROOT, 101, 102, 200, 201}


def test_a_child_that_ends_keeps_its_time(system: FakeProcesses) -> None:
    tree = ProcessTree(system, ROOT)
    tree.read()
    system.run(102, 3.0)
    assert tree.read() == pytest.approx(3.0)
    system.end(102, reaper=101, unseen=0.5)
    assert tree.read() == pytest.approx(3.5), "what ran after the last reading is collected by the parent"
    assert tree.read() == pytest.approx(3.5)


def test_time_from_before_the_first_read_never_comes_back(system: FakeProcesses) -> None:
    system.run(102, 1000.0)
    tree = ProcessTree(system, ROOT)
    tree.read()
    system.end(102, reaper=101)
    assert tree.read() == pytest.approx(0.0)


def test_a_child_that_lived_between_two_reads_counts(system: FakeProcesses) -> None:
    tree = ProcessTree(system, ROOT)
    tree.read()
    system.put(103, 101)
    system.end(103, reaper=101, unseen=0.25)
    assert tree.read() == pytest.approx(0.25)


def test_a_chain_that_ends_at_once_counts_once(system: FakeProcesses) -> None:
    tree = ProcessTree(system, ROOT)
    tree.read()
    system.run(102, 2.0)
    system.run(101, 1.0)
    tree.read()
    system.end(102, reaper=101, unseen=0.5)
    system.end(101, reaper=ROOT, unseen=0.25)
    assert tree.read() == pytest.approx(3.75)


def test_a_parent_that_ignores_sigchld_loses_no_seen_time_and_the_sum_never_falls(
    system: FakeProcesses,
) -> None:
    tree = ProcessTree(system, ROOT)
    tree.read()
    system.run(102, 2.0)
    tree.read()
    system.end(102, reaper=None)
    assert tree.read() == pytest.approx(2.0)
    system.run(101, 1.0)
    assert tree.read() == pytest.approx(3.0)


def test_a_new_child_counts_from_its_birth(system: FakeProcesses) -> None:
    tree = ProcessTree(system, ROOT)
    tree.read()
    system.put(103, 102)
    system.run(103, 0.75)
    assert tree.read() == pytest.approx(0.75)


def test_an_orphan_with_a_session_of_its_own_stays_a_member(system: FakeProcesses) -> None:
    tree = ProcessTree(system, ROOT)
    tree.read()
    system.table[102] = replace(system.table[102], session=102, parent=1)
    system.run(102, 1.0)
    assert tree.read() == pytest.approx(1.0)


def test_a_grandchild_orphaned_before_it_was_seen_is_found_by_its_session(system: FakeProcesses) -> None:
    tree = ProcessTree(system, ROOT)
    tree.read()
    system.put(104, 1, session=ROOT)
    system.run(104, 1.0)
    assert tree.read() == pytest.approx(1.0)
    assert 104 in tree.members


def test_the_session_of_the_test_run_is_not_the_servers(system: FakeProcesses) -> None:
    """A server that did not open a session shares pytest's: its neighbours there are strangers."""
    system.put(ROOT, 50, session=1)
    tree = ProcessTree(system, ROOT)
    tree.read()
    system.put(70, 50, session=1)
    tree.read()
    assert 70 not in tree.members


def test_a_reused_pid_is_a_stranger(system: FakeProcesses) -> None:
    tree = ProcessTree(system, ROOT)
    tree.read()
    system.run(102, 1.0)
    tree.read()
    system.end(102, reaper=101)
    system.put(102, 50, started=99.0)
    system.run(102, 50.0)
    assert tree.read() == pytest.approx(1.0)
    assert 102 not in tree.members


def test_survivors_count_after_the_root_is_gone_and_then_it_is_over(system: FakeProcesses) -> None:
    tree = ProcessTree(system, ROOT)
    tree.read()
    system.end(ROOT, reaper=50)
    system.run(101, 1.0)
    assert tree.read() == pytest.approx(1.0)
    system.end(102, reaper=None)
    system.end(101, reaper=None)
    assert tree.read() is None
    system.put(ROOT, 50, started=5.0)
    assert tree.read() is None, "another process with the root's old pid is not the server"


def test_a_tree_that_is_not_there() -> None:
    assert ProcessTree(FakeProcesses(), ROOT).read() is None


SPAWNER = """
import os, sys, time
def burn(seconds):
    while time.process_time() < seconds: pass
for n in range(3):                      # children that end, one of them in a session of its own
    if os.fork() == 0:
        if n == 1: os.setsid()
        burn(0.2); os._exit(0)
for n in range(3): os.wait()
if os.fork() == 0:                      # a daemon: its parent ends at once
    if os.fork() == 0:
        burn(0.2); print("done", flush=True); time.sleep(60)
    os._exit(0)
os.wait()
time.sleep(60)
"""


def test_real_children_that_end_and_a_real_orphan() -> None:
    child = subprocess.Popen([sys.executable, "-c", SPAWNER], stdout=subprocess.PIPE, start_new_session=True)
    tree = ProcessTree(PsutilProcesses(), child.pid)
    try:
        readings = [tree.read()]
        deadline = time.monotonic() + 30
        while not select.select([child.stdout], [], [], 0.05)[0] and time.monotonic() < deadline:
            readings.append(tree.read())
        readings.append(tree.read())
        members = list(tree.members)
    finally:
        for pid in tree.members:
            psutil.Process(pid).kill()
        child.wait()
        if child.stdout:
            child.stdout.close()
    values = [value for value in readings if value is not None]
    assert values == sorted(values), "never falls"
    assert values[-1] > 0.75, "4 x 0.2 s were used, by processes that are mostly gone"
    assert values[-1] < 2.0, "and none of it counts twice"
    assert len(members) == 2


def test_real_processes_agree_with_psutil_and_vanish_quietly() -> None:
    processes = PsutilProcesses()
    mine = processes.sample(os.getpid())
    assert mine is not None
    assert mine.parent == os.getppid()
    assert mine.cpu == pytest.approx(sum(psutil.Process().cpu_times()[:2]), abs=1.0)
    pss = processes.pss(os.getpid())
    assert pss is not None
    assert 0 < pss <= mine.rss * 1.1
    gone = subprocess.Popen([sys.executable, "-c", ""])
    processes.sample(gone.pid)
    gone.wait()
    assert processes.sample(gone.pid) is None
    assert processes.pss(gone.pid) is None
    assert processes.sample(2**22 + 12345) is None
