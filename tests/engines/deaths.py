"""Patience for the end of a server."""

from __future__ import annotations

import time

from pytest_inferslo.backends import RunningServer
from pytest_inferslo.errors import BackendDiedError


def death_of(server: RunningServer) -> str:
    """The message with which `check` reports the death of a server, within ten seconds."""
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        try:
            server.check()
        except BackendDiedError as error:
            return str(error)
        time.sleep(0.1)
    return ""
