"""The example of docs/write-a-backend.md works as it is printed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty import FAKE_SERVERS

from pytest_inferslo.backends import BackendOptions, resolve, start
from pytest_inferslo.errors import BackendConfigError

PAGE = Path(__file__).parents[2] / "docs" / "write-a-backend.md"
#: `ollama serve` takes its address from the environment.
STAND_IN = (
    "import os, runpy, sys; sys.path.insert(0, {folder!r}); "
    "sys.argv = ['ollama', '--port', os.environ['OLLAMA_HOST'].split(':')[1], *sys.argv[1:]]; "
    "runpy.run_path({script!r}, run_name='__main__')"
)


def documented() -> dict[str, Any]:
    code = re.search(r"```python\n(# conftest.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1], names)
    return names


def test_the_example_starts_and_stops_a_server(
    options: BackendOptions, survivors: Callable[[], list[str]]
) -> None:
    registered = documented()["pytest_inferslo_backends"](None)
    script = STAND_IN.format(folder=str(FAKE_SERVERS), script=str(FAKE_SERVERS / "faulty_server.py"))
    wanted = replace(
        options, model="fake-model", command=(sys.executable, "-c", script), args=("--root-is-healthy",)
    )
    with start(resolve("ollama", wanted, registered), wanted) as server:
        assert server.name == "ollama"
        assert server.endpoints[0].model == "fake-model"
        server.check()
    assert survivors() == []


def test_the_example_refuses_what_it_cannot_serve(options: BackendOptions) -> None:
    with pytest.raises(BackendConfigError, match="needs --model"):
        documented()["Ollama"]().launch(options, 1)
