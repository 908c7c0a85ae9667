"""Errors in a user's file as `file:line: what is wrong`, in place of a traceback through this package."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_inferslo.errors import InfersloError
from pytest_inferslo.session import UnofferedLoad

_HERE = Path(__file__).parent


def told(config: pytest.Config, found: pytest.ExceptionInfo[BaseException]) -> str | None:
    """The last line of the user's own that led to an error of ours; None for any other error, and where pytest was
    asked for whole tracebacks."""
    asked = config.option.fulltrace or config.option.tbstyle in ("long", "native")
    if asked or not isinstance(found.value, InfersloError):
        return None
    for entry in reversed(found.traceback):
        path = Path(entry.path)
        if path.is_file() and _HERE not in path.parents:
            root = config.rootpath
            shown = path.relative_to(root) if path.is_relative_to(root) else path
            return f"{shown}:{entry.lineno + 1}: {found.value}"
    return None


def unoffered(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Of a test that could not even say its load: the error of the test is then that nothing was offered."""
    if call.excinfo is None or item.get_closest_marker("xfail"):  # which may expect the error that it was
        return
    if (text := told(item.config, call.excinfo)) is not None:
        error = UnofferedLoad(text, pytrace=False).with_traceback(call.excinfo.tb)
        call.excinfo = pytest.ExceptionInfo.from_exception(error)
