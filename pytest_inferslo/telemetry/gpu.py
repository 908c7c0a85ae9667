"""GPUs by NVML: what each device does, by UUID. No driver, no device and "not supported" are absences with
a cause."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

GPU_METRICS = ("gpu_utilization", "gpu_memory", "gpu_power", "gpu_energy", "gpu_throttled")

#: Clock-event reasons that slow a busy GPU down (nvml.h). Idle clocks, clocks set by the user,
#: synchronisation with another GPU and display clocks are not among them.
THROTTLE_REASONS = {
    0x04: "software power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}

#: What an idle device may hold for its driver alone.
_DRIVER_BYTES = 1 << 30


@dataclass(frozen=True)
class _Device:
    handle: Any
    uuid: str
    name: str
    memory_total: int


class GpuProbe:
    """Reads the devices that a server uses.

    `nvml` is the `pynvml` module (or one shaped like it). Devices are the server's when NVML lists one of
    `pids` on them. Where a pid namespace hides that (it lists others than `local_pids`, or none on a device
    in use), or `read_all` asks for it, all visible devices are read, and `notes` says so. A metric that any
    of the devices does not support is absent as a whole: the worst or the sum of only some devices would
    look like the figure of all.
    """

    def __init__(
        self, nvml: Any, pids: Collection[int], local_pids: Collection[int], *, read_all: bool = False
    ) -> None:
        self._nvml = nvml
        self.notes: list[str] = []
        self.absent: dict[str, str] = {}
        self._devices: list[_Device] = []
        self._metrics: list[str] = []
        self._failing: dict[tuple[str, str], str] = {}
        self._energy_at_start: dict[str, float] = {}
        self._throttles: dict[tuple[str, str], int] = {}
        self._open = False
        try:
            nvml.nvmlInit()
            self._open = True
            self._devices = self._devices_of(pids, local_pids, read_all)
        except nvml.NVMLError as error:
            self.absent = dict.fromkeys(GPU_METRICS, _cause(error))
        if self._devices:
            self._metrics = [metric for metric in GPU_METRICS if self._supported(metric)]

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The devices that are read, as run.json holds them."""
        return [{"uuid": d.uuid, "name": d.name, "memory_total": d.memory_total} for d in self._devices]

    def read(self) -> list[tuple[str, str, float]]:
        """(metric, UUID, value in base units) of now; a value that cannot be read is left out. Energy counts
        from the first reading."""
        values = []
        for device in self._devices:
            for metric in self._metrics:
                try:
                    values.append((metric, device.uuid, self._value(metric, device)))
                    self._failing.pop((metric, device.uuid), None)
                except self._nvml.NVMLError as error:
                    self._failing[metric, device.uuid] = (
                        f"{device.uuid}: {_cause(error)}, from some moment on"
                    )
        return values

    def close(self) -> None:
        """Let NVML go, and settle what is absent: a metric whose last reading failed was not measured."""
        for (metric, _), cause in self._failing.items():
            self.absent.setdefault(metric, cause)
        self.notes += [f"{uuid}: {name} in {n} readings" for (uuid, name), n in self._throttles.items()]
        if self._open:
            self._open = False
            self._nvml.nvmlShutdown()

    def _devices_of(
        self, pids: Collection[int], local_pids: Collection[int], read_all: bool
    ) -> list[_Device]:
        nvml = self._nvml
        devices: list[_Device] = []
        used: list[_Device] = []
        hidden = False
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            uuid, name = _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle))
            devices.append(_Device(handle, uuid, name, int(memory.total)))
            on_device = self._processes_on(handle)
            if on_device & set(pids):
                used.append(devices[-1])
            hidden |= bool(on_device - set(local_pids)) or (not on_device and memory.used > _DRIVER_BYTES)
        if used:
            return used
        if not devices:
            self.absent = dict.fromkeys(GPU_METRICS, "the NVIDIA driver sees no GPU")
        elif hidden or read_all:
            self.notes.append(f"which GPUs are the server's cannot be told: all {len(devices)} are read")
            return devices
        else:
            cause = f"none of the server's {len(pids)} processes uses any of the {len(devices)} GPUs"
            self.absent = dict.fromkeys(GPU_METRICS, cause)
        return []

    def _processes_on(self, handle: Any) -> set[int]:
        try:
            return {int(process.pid) for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
        except self._nvml.NVMLError:
            return set()

    def _supported(self, metric: str) -> bool:
        for device in self._devices:
            try:
                self._value(metric, device)
            except self._nvml.NVMLError as error:
                self.absent[metric] = f"{device.uuid}: {_cause(error)}"
                return False
        return True

    def _value(self, metric: str, device: _Device) -> float:
        nvml, handle = self._nvml, device.handle
        if metric == "gpu_utilization":
            return float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
        if metric == "gpu_memory":
            return float(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        if metric == "gpu_power":
            return float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1000
        if metric == "gpu_energy":
            joules = float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
            return joules - self._energy_at_start.setdefault(device.uuid, joules)
        return self._throttled(device)

    def _throttled(self, device: _Device) -> float:
        nvml = self._nvml
        read: Callable[[Any], int] = (
            getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
            or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        )
        reasons = int(read(device.handle))
        for bit, name in THROTTLE_REASONS.items():
            if reasons & bit:
                self._throttles[device.uuid, name] = self._throttles.get((device.uuid, name), 0) + 1
        return float(any(reasons & bit for bit in THROTTLE_REASONS))


def load_nvml() -> tuple[Any | None, str]:
    """The `pynvml` module, or None and why not. Imported only here: a run without GPUs never needs it."""
    try:
        return importlib.import_module("pynvml"), ""
    except ImportError:
        return None, "pynvml is not installed: pip install 'pytest-inferslo[gpu]'"


def _cause(error: Exception) -> str:
    name = type(error).__name__.removeprefix("NVMLError_")
    if name == "LibraryNotFound":
        return "no NVIDIA driver: libnvidia-ml.so.1 was not found"
    return f"NVML answers {str(error).lower()!r}"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
