"""SLO gates and load tests for LLM inference servers, as a pytest plugin.

What scenario files use is exported here, and loaded on first use: importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_inferslo.core.adapters import adapters
    from pytest_inferslo.core.arrivals import (
        bursts,
        concurrency,
        constant,
        gamma,
        phase,
        phases,
        poisson,
        ramp,
        sine,
        spike,
        steps,
        stream,
        streams,
    )
    from pytest_inferslo.core.prompts import lognormal, normal, synthetic, uniform, zipf
    from pytest_inferslo.core.scenario import Scenario, Timeouts
    from pytest_inferslo.datasets import dataset, tokenizer
    from pytest_inferslo.traces import trace

__version__ = "0.1.0"

_HOMES = {
    "pytest_inferslo.core.adapters": ("adapters",),
    "pytest_inferslo.core.arrivals": (
        "bursts", "concurrency", "constant", "gamma", "phase", "phases", "poisson", "ramp", "sine", "spike", "steps",
        "stream", "streams",
    ),
    "pytest_inferslo.core.prompts": ("lognormal", "normal", "synthetic", "uniform", "zipf"),
    "pytest_inferslo.core.scenario": ("Scenario", "Timeouts"),
    "pytest_inferslo.datasets": ("dataset", "tokenizer"),
    "pytest_inferslo.traces": ("trace",),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Scenario", "Timeouts", "adapters", "bursts", "concurrency", "constant", "dataset", "gamma", "lognormal", "normal",
    "phase", "phases", "poisson", "ramp", "sine", "spike", "steps", "stream", "streams", "synthetic", "tokenizer",
    "trace", "uniform", "zipf",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
