"""What the server and the kernel saw of a load, whoever offered it: the same measure for every tool."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import psutil
from peers.commands import Report
from side_by_side import GENERATOR_CORE, null_server


@dataclass(frozen=True)
class Seen:
    """Of a load of `seconds`: when requests arrived (ns, sorted), what the server took to the first token (ns), and
    what CPU the generator's processes had spent (s) at moments (ns). The first second and the last are left out.
    """

    seconds: int
    arrivals: np.ndarray
    spent: np.ndarray
    moments: np.ndarray
    busy: np.ndarray

    def _window(self) -> np.ndarray:
        begin = self.arrivals[0] + 1_000_000_000
        end = begin + (self.seconds - 2) * 1_000_000_000
        return self.arrivals[(self.arrivals >= begin) & (self.arrivals < end)]

    def rate(self) -> float:
        return len(self._window()) / (self.seconds - 2)

    def send_lag_p99(self, rate: int) -> float:
        """How late requests arrived, ms, against an even schedule that is laid so that 1 % of them are early."""
        window = self._window()
        late = window - np.arange(len(window)) * (1e9 / rate)
        return float(np.percentile(late, 99) - np.percentile(late, 1)) / 1e6

    def cpu_per_request(self) -> float:
        """us"""
        window = self._window()
        busy = np.interp([window[0], window[-1]], self.moments, self.busy)
        return float(busy[1] - busy[0]) / len(window) * 1e6


def _spent_there() -> dict[int, float]:
    """CPU seconds of every process that may run on the generator's core alone."""
    spent = {}
    for pid in psutil.pids():
        with suppress(OSError, psutil.Error):
            if os.sched_getaffinity(pid) == {GENERATOR_CORE}:
                spent[pid] = sum(psutil.Process(pid).cpu_times()[:2])
    return spent


@contextmanager
def watched_core() -> Iterator[tuple[list[int], list[float]]]:
    """Moments (ns) and what had been spent by then (s), as they come."""
    moments: list[int] = []
    busy: list[float] = []
    spent: dict[int, float] = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.25):
            moments.append(time.monotonic_ns())
            spent.update(_spent_there())
            busy.append(sum(spent.values()))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield moments, busy
    finally:
        ended.set()
        thread.join()


def observe(offer: Callable[[str], Report], seconds: int, *options: str) -> tuple[Report, Seen]:
    """Offers for `seconds` to a null server with these options. RuntimeError where nothing came."""
    with tempfile.NamedTemporaryFile() as log:
        with null_server(*options, "--truth", log.name) as (url, _), watched_core() as (moments, busy):
            report = offer(url)
        pairs = np.fromfile(log.name, np.int64).reshape(-1, 2)
    if len(pairs) == 0:
        raise RuntimeError("no request arrived")
    arrivals = np.sort(pairs[:, 0])
    return report, Seen(seconds, arrivals, pairs[:, 1] - pairs[:, 0], np.array(moments), np.array(busy))
