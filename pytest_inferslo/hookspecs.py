"""Hooks by which other packages extend this plugin: implement them in a conftest.py or a plugin of your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_inferslo.backends import Backend
    from pytest_inferslo.judgement import Judged


def pytest_inferslo_backends(config: pytest.Config) -> dict[str, Backend]:  # type: ignore[empty-body]
    """Backends by the name that `--backend` takes. A name that is already known is a usage error."""


@pytest.hookspec
def pytest_inferslo_run_finished(config: pytest.Config, nodeid: str, run: Judged) -> None:
    """Called after each judged run, whatever its verdict; the place for reports of your own."""
