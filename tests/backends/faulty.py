"""A backend that goes wrong on request, and patience for its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_inferslo.backends import BackendOptions, Launch, RunningGroup, RunningServer
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.errors import BackendDiedError

FAKE_SERVERS = Path(__file__).parent / "fake_servers"


@dataclass
class Faulty:
    """A backend whose server takes the flags of fake_servers/faulty_server.py."""

    flags: tuple[str, ...] = ()
    model: str = "fake-model"
    name: str = "faulty"
    grace_s: float = 0.5
    changes: dict[str, Any] = field(default_factory=dict)

    def launch(self, options: BackendOptions, port: int) -> Launch:
        url = f"http://127.0.0.1:{port}"
        script = str(FAKE_SERVERS / "faulty_server.py")
        values: dict[str, Any] = {
            "command": (sys.executable, script, "--port", str(port), *self.flags, *options.args),
            "endpoints": (Endpoint(url, self.model),),
            "version_path": "/version",
            "metrics_url": f"{url}/metrics",
            "reset_cache_path": "/reset_prefix_cache",
            "stop_grace_s": self.grace_s,
        }
        return Launch(**(values | self.changes))


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def dies(server: RunningServer | RunningGroup) -> str:
    """The message with which `check` reports the death of a server, once it does."""
    messages: list[str] = []

    def is_dead() -> bool:
        try:
            server.check()
        except BackendDiedError as error:
            messages.append(str(error))
        return bool(messages)

    assert wait_for(is_dead), "the server's death was not seen"
    return messages[0]
