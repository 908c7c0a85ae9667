"""How the load engine of this installation runs: as Python, or compiled by mypyc from the same sources."""

from __future__ import annotations

import importlib.util


def engine_build() -> str:
    """`"compiled"` or `"python"`. Does not import the engine."""
    spec = importlib.util.find_spec("pytest_inferslo.loadgen.engine")
    return "python" if spec is None or (spec.origin or "").endswith(".py") else "compiled"
