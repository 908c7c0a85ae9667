"""What a process may use: CPUs by affinity and cgroup quota, memory by cgroup and machine. cgroup v1 and
v2."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: v1 writes "no limit" as a page-rounded 2**63; anything this large is none.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True)
class Limits:
    """`cpus` may be a fraction (a quota of 150 ms in 100 ms is 1.5). `cpus_from` and `memory_from` name
    what set them: `affinity`, `cgroup` or `machine`. Memory in bytes."""

    cpus: float
    cpus_from: str
    memory: int
    memory_from: str


def limits_of(pid: int | str = "self", *, root: Path = Path("/")) -> Limits:
    """The limits of one process. `root` is where `proc` and `sys` are found.

    Every ancestor of the cgroup counts, as in the kernel: the tightest one holds.
    """
    proc = root / "proc" / str(pid)
    affinity = _affinity(root, proc) or os.cpu_count() or 1
    cpus, cpus_from = float(affinity), "affinity"
    memory, memory_from = _machine_memory(root), "machine"
    for directory, controller in _cgroup_directories(root, proc):
        quota = _cpu_quota(directory) if controller in ("cpu", "") else None
        if quota is not None and quota < cpus:
            cpus, cpus_from = quota, "cgroup"
        limit = _memory_limit(directory) if controller in ("memory", "") else None
        if limit is not None and limit < memory:
            memory, memory_from = limit, "cgroup"
    return Limits(cpus, cpus_from, memory, memory_from)


def _affinity(root: Path, proc: Path) -> int | None:
    """CPUs that are both allowed (cpusets are in that mask) and online: the mask may name CPUs never
    plugged in."""
    online = _cpu_list("".join(_lines(root / "sys/devices/system/cpu/online")))
    for line in _lines(proc / "status"):
        if line.startswith("Cpus_allowed_list:"):
            allowed = _cpu_list(line.split(":", 1)[1])
            return len(allowed & online if online else allowed)
    return None


def _cpu_list(text: str) -> set[int]:
    """The CPUs of a kernel list as `0-3,8`."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.strip().isdigit():
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def _machine_memory(root: Path) -> int:
    for line in _lines(root / "proc" / "meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _cgroup_directories(root: Path, proc: Path) -> Iterator[tuple[Path, str]]:
    """(directory, controller) of the process and all its ancestors; the controller of v2 is ""."""
    mounts = list(_cgroup_mounts(root))
    for line in _lines(proc / "cgroup"):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller not in ("", "cpu", "memory"):
                continue
            for mounted_root, mount_point, mounted in mounts:
                if controller in mounted:
                    yield from ((each, controller) for each in _upwards(mount_point, mounted_root, path))
                    break


def _cgroup_mounts(root: Path) -> Iterator[tuple[str, Path, set[str]]]:
    """(root of the mount inside the hierarchy, where it is mounted, controllers) from mountinfo(5)."""
    for line in _lines(root / "proc" / "self" / "mountinfo"):
        left, _, right = line.partition(" - ")
        fields, (kind, _, options, *_) = left.split(), [*right.split(" "), "", "", ""]
        if kind in ("cgroup", "cgroup2"):
            mount_point = root / fields[4].lstrip("/")
            yield fields[3], mount_point, {""} if kind == "cgroup2" else set(options.split(","))


def _upwards(mount_point: Path, mounted_root: str, path: str) -> Iterator[Path]:
    # Without a cgroup namespace the path names the host's tree, of which a container sees `mounted_root`
    # only.
    if mounted_root != "/" and (path + "/").startswith(mounted_root + "/"):
        path = path[len(mounted_root) :]
    directory = mount_point / path.strip("/")
    if ".." in directory.parts or not directory.is_dir():
        directory = mount_point
    yield directory
    while directory != mount_point:
        directory = directory.parent
        yield directory


def _cpu_quota(directory: Path) -> float | None:
    v2 = _lines(directory / "cpu.max")
    if v2:
        quota, _, period = v2[0].partition(" ")
        return None if quota == "max" else int(quota) / int(period or 100_000)
    quota_us, period_us = _lines(directory / "cpu.cfs_quota_us"), _lines(directory / "cpu.cfs_period_us")
    if not quota_us or not period_us or int(quota_us[0]) <= 0:
        return None
    return int(quota_us[0]) / int(period_us[0])


def _memory_limit(directory: Path) -> int | None:
    for name in ("memory.max", "memory.limit_in_bytes"):
        for line in _lines(directory / name)[:1]:
            if line != "max" and int(line) < _NO_LIMIT:
                return int(line)
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
