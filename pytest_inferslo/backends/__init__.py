"""Servers under test: started, proven ready by a real completion, watched, and gone afterwards.

The names below load on first use, so that a plugin that only offers options pays for none of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_inferslo.backends.fleet import Fleet
    from pytest_inferslo.backends.group import Group, RunningGroup
    from pytest_inferslo.backends.lock import exclusive
    from pytest_inferslo.backends.protocol import Backend, BackendOptions, Launch, LoraPaths, StartProgress
    from pytest_inferslo.backends.registry import resolve, shipped
    from pytest_inferslo.backends.server import RunningServer
    from pytest_inferslo.backends.starting import start

_HOMES = {
    "Backend": "protocol", "BackendOptions": "protocol", "Launch": "protocol", "LoraPaths": "protocol",
    "StartProgress": "protocol", "Fleet": "fleet", "Group": "group", "RunningGroup": "group",
    "RunningServer": "server", "exclusive": "lock", "resolve": "registry", "shipped": "registry", "start": "starting",
}  # fmt: skip

__all__ = [
    "Backend", "BackendOptions", "Fleet", "Group", "Launch", "LoraPaths", "RunningGroup", "RunningServer",
    "StartProgress", "exclusive", "resolve", "shipped", "start",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
