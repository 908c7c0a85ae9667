"""What a process may use, from trees of /proc and /sys as kernels write them."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from pytest_inferslo.telemetry.limits import limits_of

TREES = Path(__file__).parent / "trees"
GIB = 1 << 30


@pytest.mark.parametrize(
    ("tree", "pid", "cpus", "cpus_from", "memory", "memory_from"),
    [
        # case 50: systemd slice with a quota of 1.5 CPUs and 2 GiB on the service's parent
        ("v2", 4242, 1.5, "cgroup", 2 * GIB, "cgroup"),
        # the same machine, a process outside of any limit; its mask names 64 CPUs, 8 are online
        ("v2", 1, 8.0, "affinity", 16 * GIB, "machine"),
        # pinned to CPUs 0, 2 and 3 inside a quota of 4
        ("v2", 77, 3.0, "affinity", 16 * GIB, "machine"),
        # a v1 container without a cgroup namespace: the mount shows /docker/abc only
        ("v1", 9, 2.0, "cgroup", 1 * GIB, "cgroup"),
        # v1 writes "no limit" as -1 and as a huge number
        ("v1_unlimited", 10, 4.0, "affinity", 8 * GIB, "machine"),
        # v1 controllers beside an empty v2 mount
        ("hybrid", 5, 0.5, "cgroup", 4 * GIB, "machine"),
        # a cgroup outside of the namespace's root is named with `..`
        ("namespaced", 5, 1.0, "cgroup", 2 * GIB, "cgroup"),
    ],
)
def test_limits(tree: str, pid: int, cpus: float, cpus_from: str, memory: int, memory_from: str) -> None:
    found = limits_of(pid, root=TREES / tree)
    assert (found.cpus, found.cpus_from) == (cpus, cpus_from)
    assert (found.memory, found.memory_from) == (memory, memory_from)


def test_this_process() -> None:
    found = limits_of()
    assert 0 < found.cpus <= len(os.sched_getaffinity(0))
    assert 0 < found.memory <= psutil.virtual_memory().total


def test_a_process_that_is_gone_has_the_machines_limits() -> None:
    assert limits_of(2**22 + 12345).cpus == (os.cpu_count() or 1)
