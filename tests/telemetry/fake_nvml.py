"""An NVML of two H200s for tests, shaped like the `pynvml` module; values are those that a real one gave."""

from __future__ import annotations

from types import SimpleNamespace

NOTHING = object()


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    def __str__(self) -> str:
        return "Not Supported"


class NVMLError_LibraryNotFound(NVMLError):
    def __str__(self) -> str:
        return "NVML Shared Library Not Found"


class NVMLError_GpuIsLost(NVMLError):
    def __str__(self) -> str:
        return "GPU is lost"


class FakeNvml:
    """Devices are numbers. `failing[(function, device)]` raises; `values[(function, device)]` overrides."""

    NVMLError = NVMLError

    def __init__(self, devices: int = 2, *, driver: bool = True) -> None:
        self.devices, self.driver = devices, driver
        self.failing: dict[tuple[str, int], NVMLError] = {}
        self.values: dict[tuple[str, int], object] = {}
        self.pids: dict[int, list[int]] = {}
        self.open = 0

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError_LibraryNotFound
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlDeviceGetCount(self) -> int:
        return self.devices

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, device: int) -> str:
        return f"GPU-{device}"

    def nvmlDeviceGetName(self, device: int) -> bytes:
        return b"NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, device: int) -> SimpleNamespace:
        used = self._answer("memory", device, 141_435_994_112 if self.pids.get(device) else 615 << 20)
        return SimpleNamespace(total=150_754_820_096, used=used)

    def nvmlDeviceGetUtilizationRates(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=self._answer("utilization", device, 71), memory=30)

    def nvmlDeviceGetPowerUsage(self, device: int) -> int:
        return self._answer("power", device, 413_365)

    def nvmlDeviceGetTotalEnergyConsumption(self, device: int) -> int:
        return self._answer("energy", device, 89_398_485)

    def nvmlDeviceGetCurrentClocksEventReasons(self, device: int) -> int:
        return self._answer("reasons", device, 0)

    def nvmlDeviceGetComputeRunningProcesses(self, device: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid) for pid in self.pids.get(device, [])]

    def _answer(self, what: str, device: int, usual: int) -> int:
        if (what, device) in self.failing:
            raise self.failing[what, device]
        value = self.values.get((what, device), usual)
        assert isinstance(value, int)
        return value
