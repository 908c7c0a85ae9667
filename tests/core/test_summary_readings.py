"""Readings of the telemetry as one number: which source counts, which time, which statistic."""

from __future__ import annotations

import numpy as np
import pytest
from made_samples import S, record

from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.readings import DRAIN, IDLE, LOAD, Reading
from pytest_inferslo.core.summary import Scope, Summary

PHASES = [{"name": "base", "start": 0, "end": 5 * S}, {"name": "spike", "start": 5 * S, "end": 10 * S}]


def folded(*readings: Reading) -> Summary:
    fold = Fold(record(phases=PHASES))
    fold.add_readings(readings)
    return fold.result()


def each_second(metric: str, values: list[float], source: str = "server", start: int = 0) -> list[Reading]:
    return [Reading((start + i) * S, LOAD, metric, source, value) for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("statistic", "value"),
    [("mean", 0.55), ("peak", 1.0), ("max", 1.0), ("min", 0.1), (0.5, 0.5), (0.95, 1.0)],
)
def test_statistics(statistic: str | float, value: float) -> None:
    found = folded(*each_second("server_cpu", [0.1 * i for i in range(1, 11)]))
    assert found.reading("server_cpu", statistic) == pytest.approx(value)


def test_an_unknown_statistic_is_refused() -> None:
    with pytest.raises(ValueError, match="median-ish"):
        folded(*each_second("server_cpu", [0.1])).reading("server_cpu", "median-ish")


def test_only_the_window_and_the_load_count() -> None:
    found = folded(
        Reading(-S, IDLE, "server_memory", "server", 1.0),
        Reading(5 * S, LOAD, "server_memory", "server", 2.0),
        Reading(10 * S, LOAD, "server_memory", "server", 9.0),
        Reading(6 * S, DRAIN, "server_memory", "server", 9.0),
    )
    assert found.reading("server_memory", "peak") == 2.0
    assert found.reading("server_memory", "peak", Scope(phase="spike")) == 2.0
    assert found.reading("server_memory", "peak", Scope(phase="base")) is None
    assert [series.values.tolist() for series in found.series("server_memory", IDLE)] == [[1.0]]


def test_the_worst_gpu_counts_and_power_adds_up() -> None:
    busy, calm = [0.9, 0.8], [0.2, 0.95]
    found = folded(
        *each_second("gpu_utilization", busy, "GPU-a"),
        *each_second("gpu_utilization", calm, "GPU-b"),
        *each_second("gpu_power", [300.0, 400.0], "GPU-a"),
        *each_second("gpu_power", [100.0, 50.0], "GPU-b"),
    )
    assert found.reading("gpu_utilization", "mean") == pytest.approx(0.85)
    assert found.reading("gpu_utilization", "peak") == 0.95
    assert found.reading("gpu_power", "peak") == 450.0
    assert found.reading("gpu_power", "mean") == 425.0


def test_sources_that_are_read_at_different_instants_add_up_by_their_latest() -> None:
    found = folded(
        Reading(0, LOAD, "gpu_power", "a", 100.0),
        Reading(2 * S, LOAD, "gpu_power", "a", 300.0),
        Reading(1 * S, LOAD, "gpu_power", "b", 10.0),
        Reading(3 * S, LOAD, "gpu_power", "b", 20.0),
    )
    assert found.reading("gpu_power", "peak") == 320.0
    assert found.reading("gpu_power", "min") == 110.0


def test_memory_as_a_share_of_each_gpus_own() -> None:
    found = folded(*each_second("gpu_memory", [40.0], "small"), *each_second("gpu_memory", [60.0], "large"))
    assert found.reading("gpu_memory", "peak", of_total={"small": 50.0, "large": 100.0}) == 0.8
    assert found.reading("gpu_memory", "peak") == 60.0
    assert found.reading("gpu_memory", "peak", of_total={}) is None


def test_cpu_increase_compares_idle_and_load() -> None:
    idle = [Reading(-i * S, IDLE, "server_cpu", "server", 0.1) for i in range(1, 4)]
    found = folded(*idle, *each_second("server_cpu", [0.1, 0.2]))
    assert found.total("server_cpu_increase") == pytest.approx(0.5)
    assert folded(*each_second("server_cpu", [0.1])).total("server_cpu_increase") is None
    assert folded(*each_second("server_cpu", [0.1])).absent("server_cpu_increase") is not None


def test_energy_is_what_the_counters_grew_by() -> None:
    one = each_second("gpu_energy", [1000.0, 1500.0, 1800.0], "a")
    found = folded(*one, *each_second("gpu_energy", [7.0, 9.0], "b"))
    assert found.total("gpu_energy") == 802.0
    assert folded().absent("gpu_energy") == "no reading came"


def test_readings_in_any_order() -> None:
    readings = each_second("server_cpu", [0.1, 0.2, 0.3])
    series = folded(*reversed(readings)).series("server_cpu")
    assert np.all(np.diff(series[0].times) > 0)
