"""From a backend and its options to a server that is ready, or to nothing at all."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from pytest_inferslo.backends import ports
from pytest_inferslo.backends.group import Group, start_group
from pytest_inferslo.backends.leftovers import GpuMemory, Leftovers
from pytest_inferslo.backends.process import ServerProcess
from pytest_inferslo.backends.protocol import Backend, BackendOptions
from pytest_inferslo.backends.readiness import OnProgress, Readiness
from pytest_inferslo.backends.server import RunningServer

if TYPE_CHECKING:
    from pytest_inferslo.backends.group import RunningGroup


def start(
    backend: Backend | Group, options: BackendOptions, on_progress: OnProgress | None = None
) -> RunningServer | RunningGroup:
    """Starts (or attaches to) what `backend` names, and returns once every endpoint has completed a request.

    Raises BackendConfigError for options that cannot be served, BackendStartError when the server exits, is
    not ready within `options.start_timeout_s`, or another process answers at its port. Whatever was started
    is gone before any exception leaves, KeyboardInterrupt included.
    """
    if isinstance(backend, Group):
        return start_group(backend, options, on_progress, start_one)
    return start_one(backend, options, on_progress)


def start_one(backend: Backend, options: BackendOptions, on_progress: OnProgress | None) -> RunningServer:
    """`start` for a single server."""
    launch = backend.launch(options, ports.free_port())
    leftovers, gpu_memory = (Leftovers(), GpuMemory()) if launch.command else (None, None)
    begun = time.monotonic()
    process = None
    if launch.command:
        process = ServerProcess(
            launch.command,
            environment={**os.environ, **launch.env, **options.env},
            log_path=options.log_path,
            cwd=options.cwd,
        )
    try:
        readiness = Readiness(launch, process, options.start_timeout_s, on_progress)
        ready = [readiness.wait(endpoint) for endpoint in launch.endpoints]
        ready_s = time.monotonic() - begun
        if leftovers is not None and process is not None:
            leftovers.see(member.pid for member in process.family())
        return RunningServer(backend.name, launch, options, process, ready, ready_s, leftovers, gpu_memory)
    except BaseException:
        if process is not None:
            process.stop(launch.stop_grace_s)
        raise
