"""docs/metrics.md defines every metric that a policy may name and every way a request can end."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_inferslo.core.metrics import METRICS
from pytest_inferslo.core.samples import Outcome

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


@pytest.mark.parametrize("name", [*METRICS, *(outcome.name for outcome in Outcome)])
def test_is_defined(name: str) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and f"`{name}`" in line.split("|")[1]]
    assert len(rows) == 1
