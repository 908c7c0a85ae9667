"""Heavy scenarios (hours long, or more requests than one small machine serves) run only when asked for."""

from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "heavy: runs with `-m heavy`, or when its file is named")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = {Path(argument.split("::")[0]).name for argument in config.args}
    if "heavy" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("heavy") and item.path.name not in named]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
