"""The machine that a run was made on, so that a reader can tell whether two runs may be compared."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from pytest_inferslo.telemetry.gpu import load_nvml
from pytest_inferslo.telemetry.limits import limits_of


def fingerprint(*, root: Path = Path("/"), nvml: Any = None) -> dict[str, Any]:
    """`host` of run.json. Memory in bytes; `cpus_allowed` by affinity and cgroup may be a fraction; what the
    system does not tell is None. `root` is where proc, sys and etc are found; `nvml` is the pynvml module.
    """
    limits = limits_of("self", root=root)
    gpus, driver = _gpus(nvml)
    return {
        "hostname": platform.node(),
        "os": _os_name(root),
        "kernel": _first_line(root / "proc/sys/kernel/osrelease"),
        "architecture": platform.machine(),
        "cpu_model": _cpu_model(root),
        "cpu_governor": _first_line(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "cpus_online": _first_line(root / "sys/devices/system/cpu/online") or str(os.cpu_count()),
        "cpus_allowed": limits.cpus,
        "cpus_allowed_by": limits.cpus_from,
        "memory_total": _meminfo(root, "MemTotal"),
        "memory_allowed": limits.memory,
        "memory_allowed_by": limits.memory_from,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "gpus": gpus,
        "gpu_driver": driver,
    }


def _gpus(nvml: Any) -> tuple[list[dict[str, Any]], str | None]:
    nvml = nvml or load_nvml()[0]
    if nvml is None:
        return [], None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return [], None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        gpus = [
            {
                "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
                "name": _text(nvml.nvmlDeviceGetName(handle)),
                "memory_total": int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            }
            for handle in handles
        ]
        return gpus, _text(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError:
        return [], None
    finally:
        nvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _cpu_model(root: Path) -> str | None:
    """x86 says `model name`; some arm kernels say `Hardware`, others only numbers."""
    for line in _text_of(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() in ("model name", "hardware", "cpu model"):
            return value.strip()
    return None


def _os_name(root: Path) -> str | None:
    for line in _text_of(root / "etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.split("=", 1)[1].strip('"')
    return None


def _meminfo(root: Path, name: str) -> int | None:
    for line in _text_of(root / "proc/meminfo").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def _first_line(path: Path) -> str | None:
    return next(iter(_text_of(path).splitlines()), None)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
