"""GPUs by NVML: units, whose device it is, and what is absent and why."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from fake_nvml import FakeNvml, NVMLError_GpuIsLost, NVMLError_NotSupported

from pytest_inferslo.core.metrics import METRICS
from pytest_inferslo.telemetry.gpu import GPU_METRICS, GpuProbe, load_nvml

SERVER = [100, 101]
LOCAL = [1, 50, *SERVER]


def nvml_with(devices: dict[int, list[int]], **options: Any) -> FakeNvml:
    nvml = FakeNvml(**options)
    nvml.pids = devices
    return nvml


def test_metric_names_are_the_catalogues() -> None:
    assert set(GPU_METRICS) <= METRICS.keys()


def test_values_in_base_units_of_the_servers_devices_only() -> None:
    nvml = nvml_with({0: [101], 1: [50]})
    probe = GpuProbe(nvml, SERVER, LOCAL)
    assert probe.gpus == [{"uuid": "GPU-0", "name": "NVIDIA H200", "memory_total": 150_754_820_096}]
    first = {(metric, uuid): value for metric, uuid, value in probe.read()}
    assert first == {
        ("gpu_utilization", "GPU-0"): 0.71,
        ("gpu_memory", "GPU-0"): 141_435_994_112.0,
        ("gpu_power", "GPU-0"): pytest.approx(413.365),
        ("gpu_energy", "GPU-0"): 0.0,
        ("gpu_throttled", "GPU-0"): 0.0,
    }
    nvml.values["energy", 0] = 89_398_485 + 2_500
    assert ("gpu_energy", "GPU-0", pytest.approx(2.5)) in probe.read()
    probe.close()
    assert (nvml.open, probe.absent) == (0, {})


@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [
        (0x0, 0.0),
        (0x1, 0.0),
        (0x2, 0.0),
        (0x4, 1.0),
        (0x8, 1.0),
        (0x10, 0.0),
        (0x41, 1.0),
        (0x80, 1.0),
        (0x100, 0.0),
    ],
)
def test_throttle_reasons(reasons: int, throttled: float) -> None:
    nvml = nvml_with({0: [100]})
    nvml.values["reasons", 0] = reasons
    probe = GpuProbe(nvml, SERVER, LOCAL)
    assert ("gpu_throttled", "GPU-0", throttled) in probe.read()


def test_a_throttle_is_noted_by_name() -> None:
    nvml = nvml_with({0: [100]})
    probe = GpuProbe(nvml, SERVER, LOCAL)
    probe.read()
    nvml.values["reasons", 0] = 0x44
    probe.read()
    probe.read()
    probe.close()
    assert probe.notes == [
        "GPU-0: software power cap in 2 readings",
        "GPU-0: hardware thermal slowdown in 2 readings",
    ]


def test_not_supported_is_absent_with_its_cause_and_never_zero() -> None:
    """Case 49."""
    nvml = nvml_with({0: [100], 1: [101]})
    nvml.failing["utilization", 1] = NVMLError_NotSupported()
    probe = GpuProbe(nvml, SERVER, LOCAL)
    metrics = {metric for metric, _, _ in probe.read()}
    assert "gpu_utilization" not in metrics, "the worst of two GPUs is not known from one of them"
    assert metrics == set(GPU_METRICS) - {"gpu_utilization"}
    assert probe.absent == {"gpu_utilization": "GPU-1: NVML answers 'not supported'"}


def test_a_device_lost_under_load_makes_its_metrics_absent_and_is_survived() -> None:
    nvml = nvml_with({0: [100]})
    probe = GpuProbe(nvml, SERVER, LOCAL)
    assert probe.read()
    for what in ("memory", "power", "utilization", "energy", "reasons"):
        nvml.failing[what, 0] = NVMLError_GpuIsLost()
    assert probe.read() == []
    probe.close()
    assert set(probe.absent) == set(GPU_METRICS)
    assert probe.absent["gpu_memory"] == "GPU-0: NVML answers 'gpu is lost', from some moment on"


def test_one_failed_reading_is_no_absence() -> None:
    nvml = nvml_with({0: [100]})
    probe = GpuProbe(nvml, SERVER, LOCAL)
    nvml.failing["power", 0] = NVMLError_GpuIsLost()
    probe.read()
    nvml.failing.clear()
    probe.read()
    probe.close()
    assert probe.absent == {}


@pytest.mark.parametrize(
    ("nvml", "cause"),
    [
        (FakeNvml(driver=False), "no NVIDIA driver: libnvidia-ml.so.1 was not found"),
        (FakeNvml(devices=0), "the NVIDIA driver sees no GPU"),
        (nvml_with({0: [50]}), "none of the server's 2 processes uses any of the 2 GPUs"),
        (nvml_with({}), "none of the server's 2 processes uses any of the 2 GPUs"),
    ],
)
def test_no_gpu_of_the_server_is_absent_with_a_cause(nvml: FakeNvml, cause: str) -> None:
    probe = GpuProbe(nvml, SERVER, LOCAL)
    assert probe.read() == []
    probe.close()
    assert probe.absent == dict.fromkeys(GPU_METRICS, cause)
    assert nvml.open == 0


@pytest.mark.parametrize("hiding", ["pids of another namespace", "no pids at all", "asked for"])
def test_where_owners_are_hidden_all_devices_are_read_and_it_says_so(hiding: str) -> None:
    nvml = nvml_with({0: [987_654]} if hiding.startswith("pids") else {})
    if hiding == "no pids at all":
        nvml.values["memory", 1] = 70 << 30
    probe = GpuProbe(nvml, SERVER, LOCAL, read_all=hiding == "asked for")
    assert {uuid for _, uuid, _ in probe.read()} == {"GPU-0", "GPU-1"}
    assert probe.notes == ["which GPUs are the server's cannot be told: all 2 are read"]


def test_pynvml_not_installed_is_a_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # type: ignore[arg-type]
    assert load_nvml() == (None, "pynvml is not installed: pip install 'pytest-inferslo[gpu]'")
