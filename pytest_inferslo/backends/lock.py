"""One measured server and one load at a time on a host: two runs at once would measure each other."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_inferslo.errors import BackendConfigError


def default_lock_path() -> Path:
    """The same for all projects of a user on this host, or what INFERSLO_LOCK_FILE says."""
    if chosen := os.environ.get("INFERSLO_LOCK_FILE"):
        return Path(chosen)
    return Path(tempfile.gettempdir()) / f"pytest-inferslo-{os.getuid()}.lock"


@contextlib.contextmanager
def exclusive(
    path: Path | None = None, *, wait_s: float = 0.0, on_wait: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Holds the host's lock; it falls with the process, so a crash leaves none behind.

    Waits up to `wait_s` seconds for another holder, telling `on_wait` every moment who that is. Raises
    BackendConfigError that names the holder when it keeps the lock longer.
    """
    path = path or default_lock_path()
    # Not truncated on opening: until the lock is ours the text in it belongs to its holder.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+") as file:
        deadline = time.monotonic() + wait_s
        while not _try_lock(file.fileno()):
            file.seek(0)
            holder = file.read().strip() or "an unknown process"
            if time.monotonic() >= deadline:
                raise BackendConfigError(
                    f"another load test runs on this host: {holder} holds {path}. Two at once would measure "
                    "each other: wait for it to end, and run load tests without `pytest -n`, or in one group"
                )
            if on_wait is not None:
                on_wait(f"waiting for {holder}")
            time.sleep(0.2)
        file.seek(0)
        file.truncate()
        file.write(f"pid {os.getpid()} ({' '.join(sys.argv)[:200]}), since {time.strftime('%H:%M:%S')}\n")
        file.flush()
        try:
            yield
        finally:
            file.seek(0)
            file.truncate()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
