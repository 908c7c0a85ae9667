"""Processes as the telemetry sees them, and the CPU time of a whole tree of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

import psutil


@dataclass(frozen=True)
class ProcessSample:
    """One process at one instant. CPU times in seconds since its start; `started` tells a reused pid
    apart."""

    pid: int
    started: float
    parent: int
    session: int
    cpu: float  # user + system
    reaped_cpu: float  # the same of children that ended and were waited for, theirs included
    rss: int  # bytes


class Processes(Protocol):
    """The system's processes. A pid that is gone, or may not be read, is None."""

    def pids(self) -> list[int]: ...

    def sample(self, pid: int) -> ProcessSample | None: ...

    def pss(self, pid: int) -> int | None: ...


class PsutilProcesses:
    """The real ones, through psutil."""

    def __init__(self) -> None:
        self._open: dict[int, psutil.Process] = {}

    def pids(self) -> list[int]:
        pids = psutil.pids()
        for gone in self._open.keys() - set(pids):
            del self._open[gone]
        return pids

    def sample(self, pid: int) -> ProcessSample | None:
        try:
            process = self._open.get(pid) or psutil.Process(pid)
            with process.oneshot():
                times = process.cpu_times()
                sample = ProcessSample(
                    pid,
                    process.create_time(),
                    process.ppid(),
                    os.getsid(pid),
                    times.user + times.system,
                    times.children_user + times.children_system,
                    process.memory_info().rss,
                )
        except (psutil.Error, OSError):
            self._open.pop(pid, None)
            return None
        self._open[pid] = process
        return sample

    def pss(self, pid: int) -> int | None:
        try:
            process = psutil.Process(pid)
            # psutil 8 gives PSS a call of its own and warns of the old one.
            read = getattr(process, "memory_footprint", None) or process.memory_full_info
            return int(read().pss)
        except (psutil.Error, OSError, AttributeError):
            return None


class ProcessTree:
    """Processes and all that descends from them, while the members come and go.

    A member is a root (a group of servers has several), a child of a member, or a process of a session that
    a member opened: the last rule finds a grandchild whose parent ended before it was seen. A member stays
    one when it is orphaned or opens a session of its own.
    """

    def __init__(self, processes: Processes, *roots: int) -> None:
        self.roots = frozenset(roots)
        self._processes = processes
        self._members: dict[int, ProcessSample] = {}
        self._outsiders: set[int] = set()
        self._ever: set[int] = set(roots)
        self._begun = False
        self._cpu = 0.0

    @property
    def members(self) -> dict[int, ProcessSample]:
        """The processes of the last `read`, by pid."""
        return self._members

    def read(self) -> float | None:
        """CPU seconds that the tree has used since the first read (which is 0.0); None when no member is
        left.

        Never decreases. The time of a member that ended is kept: what was seen of it at the latest read, and,
        once an ancestor in the tree waited for it, all of it.
        """
        before = self._members
        now: dict[int, ProcessSample] = {}
        for pid, last in before.items():
            sample = self._processes.sample(pid)
            if sample is not None and sample.started == last.started:
                now[pid] = sample
        self._discover(now)
        self._members = now
        if self._begun:
            self._cpu += _cpu_used(before, now)
        self._begun = True
        return self._cpu if now else None

    def _discover(self, now: dict[int, ProcessSample]) -> None:
        pids = set(self._processes.pids())
        self._outsiders &= pids
        fresh: dict[int, ProcessSample] = {}
        for pid in pids - self._outsiders - now.keys():
            sample = self._processes.sample(pid)
            if sample is not None:
                fresh[pid] = sample
        if not self._begun:
            now.update((root, fresh.pop(root)) for root in self.roots & fresh.keys())
        while joining := [sample for sample in fresh.values() if self._belongs(sample, now)]:
            for sample in joining:
                now[sample.pid] = fresh.pop(sample.pid)
        self._ever |= now.keys()
        self._outsiders |= fresh.keys()

    def _belongs(self, sample: ProcessSample, now: dict[int, ProcessSample]) -> bool:
        if sample.parent in now:
            return True
        return sample.session in self._ever and any(
            member.session == sample.session for member in (*now.values(), *self._members.values())
        )


def _cpu_used(before: dict[int, ProcessSample], now: dict[int, ProcessSample]) -> float:
    """CPU seconds used between two reads of a tree.

    A member that ended moves its whole time, and its children's, into `reaped_cpu` of the ancestor that
    waited for it. What was counted of it before is taken off there; an ancestor that ignores SIGCHLD
    collects nothing, and then nothing is taken off.
    """
    counted_before: dict[int, float] = {}
    for pid, last in before.items():
        if pid not in now:
            heir = _surviving_ancestor(last, before, now)
            if heir is not None:
                counted_before[heir] = counted_before.get(heir, 0.0) + last.cpu + last.reaped_cpu
    used = 0.0
    for pid, sample in now.items():
        known = before.get(pid)
        used += max(0.0, sample.cpu - (known.cpu if known else 0.0))
        reaped = sample.reaped_cpu - (known.reaped_cpu if known else 0.0)
        used += max(0.0, reaped - counted_before.get(pid, 0.0))
    return used


def _surviving_ancestor(
    member: ProcessSample, before: dict[int, ProcessSample], now: dict[int, ProcessSample]
) -> int | None:
    parent = member.parent
    while parent not in now:
        if parent not in before:
            return None
        parent = before[parent].parent
    return parent
