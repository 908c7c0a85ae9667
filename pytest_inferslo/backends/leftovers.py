"""What a server can leave behind when its processes are gone: shared memory, socket files, GPU memory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pytest_inferslo.backends.ports import held_sockets

#: GPU memory is back when it is this close to what was used before the start (driver contexts move a little).
_SETTLED_BYTES = 64 * 2**20


class Leftovers:
    """Names the shared-memory segments and socket files that one family of processes used and did not remove.

    Made before the start, so that what lay there already is never blamed on the server.
    """

    def __init__(self, shm: str = "/dev/shm", proc_root: str = "/proc") -> None:
        self._shm = shm
        self._proc_root = proc_root
        self._before = set(_listing(shm))
        self._used: set[str] = set()

    def see(self, family: Iterable[int]) -> None:
        """Notes what these processes hold now; call it while they live."""
        bound = _bound_sockets(self._proc_root)
        for pid in family:
            self._used.update(bound[inode] for inode in held_sockets(pid, self._proc_root) if inode in bound)
            with contextlib.suppress(OSError):
                maps = Path(f"{self._proc_root}/{pid}/maps").read_text(errors="replace")
                paths = (line.split(maxsplit=5)[-1] for line in maps.splitlines() if self._shm in line)
                self._used.update(path for path in paths if not path.endswith(" (deleted)"))

    def left(self) -> list[str]:
        """Paths that are still there, sorted."""
        return sorted(path for path in self._used if path not in self._before and os.path.lexists(path))


def _listing(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [entry.path for entry in os.scandir(folder)]
    return []


def _bound_sockets(proc_root: str) -> dict[str, str]:
    """Paths of the UNIX sockets bound in the file system, by inode."""
    bound = {}
    with contextlib.suppress(OSError):
        for line in Path(f"{proc_root}/net/unix").read_text(errors="replace").splitlines()[1:]:
            fields = line.split(maxsplit=7)
            if len(fields) == 8 and fields[7].startswith("/"):
                bound[fields[6]] = fields[7]
    return bound


class GpuMemory:
    """Whether GPU memory came back after a server ended.

    Without NVML or a GPU it knows nothing and says nothing.
    """

    def __init__(self, nvml: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml if nvml is not None else _load_nvml()
        self._clock = clock
        self._before = self._used()

    def wait_settled(self, timeout_s: float = 10.0) -> str | None:
        """None once all memory is back; else, after `timeout_s`, a sentence that names what is missing."""
        deadline = self._clock() + timeout_s
        while True:
            used = self._used()
            missing = {
                index: used[index] - before
                for index, before in self._before.items()
                if used.get(index, before) - before > _SETTLED_BYTES
            }
            if not missing:
                return None
            if self._clock() >= deadline:
                amounts = ", ".join(
                    f"GPU {index}: {value / 2**20:.0f} MiB" for index, value in missing.items()
                )
                return f"GPU memory did not come back within {timeout_s:.0f} s of the server's end: {amounts}"
            time.sleep(0.1)

    def _used(self) -> dict[int, int]:
        if self._nvml is None:
            return {}
        used = {}
        with contextlib.suppress(
            Exception
        ):  # NVML raises its own errors for each thing a GPU does not support
            for index in range(self._nvml.nvmlDeviceGetCount()):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                used[index] = int(self._nvml.nvmlDeviceGetMemoryInfo(handle).used)
        return used


def _load_nvml() -> Any:
    with contextlib.suppress(Exception):  # no pynvml, no driver, no GPU: nothing to watch
        import pynvml

        pynvml.nvmlInit()
        return pynvml
    return None
