"""What the benchmarks of the load engine share: one core for the server, one for what generates the load."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from pytest_inferslo.core.arrivals import Arrivals
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.samples import Rows
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.loadgen.offer import LoadGenerator, LoadOrder, LoadResult, Progress
from pytest_inferslo.storage.samples import read_batches


def _cores() -> tuple[int, int, int]:
    """For the server, the generator and its master: of different physical cores as far as there are so many.

    Where there are only two CPUs, the master is put beside the server.
    """
    chosen: list[int] = []
    taken: set[int] = set()
    mine = sorted(os.sched_getaffinity(0))
    for core in mine:
        if core not in taken:
            chosen.append(core)
            taken |= _siblings(core)
    chosen += [core for core in mine if core not in chosen]
    return chosen[0], chosen[min(1, len(chosen) - 1)], chosen[2 if len(chosen) > 2 else 0]


def _siblings(core: int) -> set[int]:
    """The CPUs that share a physical core with `core`, itself among them."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
    except OSError:
        return {core}
    bounds = [part.partition("-") for part in text.strip().split(",")]
    return {core, *(each for low, _, high in bounds for each in range(int(low), int(high or low) + 1))}


SERVER_CORE, GENERATOR_CORE, MASTER_CORE = _cores()


def pinned(core: int, *command: str) -> list[str]:
    return ["taskset", "-c", str(core), *command]


@contextmanager
def null_server(*options: str) -> Iterator[tuple[str, psutil.Process]]:
    command = pinned(SERVER_CORE, sys.executable, "-m", "pytest_inferslo.servers.null", *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            scheme = "https" if "--certificate" in options else "http"
            yield f"{scheme}://127.0.0.1:{server.stdout.readline().strip()}", psutil.Process(server.pid)
        finally:
            server.terminate()


class Ours:
    """A real master and one worker. The worker has its core to itself, unless the master is put there too."""

    def __init__(self, folder: Path, *, master_core: int = MASTER_CORE) -> None:
        self._folder = folder
        self._master_core = master_core
        self._runs = 0
        self.generator = LoadGenerator(folder / "logs")

    def offer(
        self,
        url: str,
        arrivals: Arrivals,
        seconds: float,
        *,
        stamps: str = "kernel",
        spin: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        keep: bool = True,
        **fields: Any,
    ) -> tuple[LoadResult, Rows]:
        scenario = Scenario(arrivals=arrivals, prompts=synthetic(64, 1), duration=seconds, drain=5, **fields)
        self._runs += 1
        directory = self._folder / f"run{self._runs}"
        endpoints = [Endpoint(url, "m", verify_tls=False).to_dict()]
        order = LoadOrder(scenario.to_dict(), endpoints, [], 1, str(directory), stamps, spin)
        self.generator.wait_until_ready()
        master, worker = self.generator.pids()
        os.sched_setaffinity(master, {self._master_core})
        os.sched_setaffinity(worker, {GENERATOR_CORE})
        result = self.generator.offer(order, on_progress=on_progress)
        rows = np.concatenate([b.samples for b in read_batches(directory)]) if keep else np.empty(0)
        shutil.rmtree(directory)
        if result.errors or (keep and (rows["outcome"] != 0).any()):
            print("   !", result.outcomes, result.errors)
        return result, rows

    def close(self) -> None:
        self.generator.close()
