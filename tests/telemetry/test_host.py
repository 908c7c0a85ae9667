"""The host's fingerprint, from a tree and from the machine that runs the tests."""

from __future__ import annotations

import json
from pathlib import Path

from fake_nvml import FakeNvml

from pytest_inferslo.telemetry.host import fingerprint

V2 = Path(__file__).parent / "trees" / "v2"


def test_a_tree() -> None:
    found = fingerprint(root=V2, nvml=FakeNvml())
    assert found["cpu_model"] == "AMD EPYC 9554"
    assert found["os"] == "Ubuntu 24.04.2 LTS"
    assert found["kernel"] == "6.8.0-71-generic"
    assert found["cpus_online"] == "0-7"
    assert (found["cpus_allowed"], found["cpus_allowed_by"]) == (1.5, "cgroup")
    assert (found["memory_total"], found["memory_allowed"]) == (16 << 30, 2 << 30)
    assert found["cpu_governor"] is None
    assert found["gpu_driver"] == "580.159.04"
    assert [gpu["name"] for gpu in found["gpus"]] == ["NVIDIA H200"] * 2


def test_this_machine() -> None:
    found = fingerprint()
    assert json.loads(json.dumps(found)) == found
    assert found["cpus_allowed"] > 0
    assert found["python"].split()[1].startswith("3.")


def test_without_a_driver_or_any_file(tmp_path: Path) -> None:
    found = fingerprint(root=tmp_path, nvml=FakeNvml(driver=False))
    assert (found["gpus"], found["gpu_driver"], found["cpu_model"], found["memory_total"]) == (
        [],
        None,
        None,
        None,
    )
