"""What a user sees while a test runs: what is waited for, the server coming up, then the load."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_inferslo.reports.progress import ProgressLine
from pytest_inferslo.running import RunningLatency

if TYPE_CHECKING:
    from pytest_inferslo.backends import StartProgress
    from pytest_inferslo.core.scenario import Scenario
    from pytest_inferslo.loadgen.offer import Progress

_TICK_S = 1.0


class Shown:
    """One load's line, `label` in front; no `line`, nothing shown. `total_s` is the load's length."""

    def __init__(
        self, line: ProgressLine | None, label: str, total_s: float, *, tick_s: float = _TICK_S
    ) -> None:
        self._line = line
        self._label = label
        self._total_s = total_s
        self._tick_s = tick_s
        self._writing = threading.Lock()
        self._load_began = threading.Event()
        self._latency: RunningLatency | None = None

    def starting(self, progress: StartProgress) -> None:
        self._say(progress.step, progress.elapsed_s, progress.detail)

    def progress(self, progress: Progress) -> None:
        with self._writing:
            self._load_began.set()
            if self._line is not None:
                self._line.update(progress, self._total_s, label=self._label, latency=self._latency)

    @contextlib.contextmanager
    def latency_of(self, scenario: Scenario, metric: str) -> Iterator[Callable[[Path], None]]:
        """Gives what to call with the run's directory; from then on the line has the percentiles of `metric` too."""
        if self._line is None:
            yield lambda directory: None
            return
        self._latency = RunningLatency(scenario, metric)
        try:
            yield self._latency.follow
        finally:
            self._latency.close()
            self._latency = None

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Says `what` is waited for, and since when, until the load's first progress or the end of the block.

        From a thread of its own: what is waited for here does not report.
        """
        self._load_began.clear()
        begun = time.monotonic()

        def tell() -> None:
            while not self._load_began.wait(self._tick_s):
                self._say(what, time.monotonic() - begun, "", until=self._load_began)

        thread = threading.Thread(target=tell, name="inferslo-waiting", daemon=True)
        if self._line is not None:
            thread.start()
        try:
            yield
        finally:
            self._load_began.set()
            if self._line is not None:
                thread.join()

    def _say(self, step: str, elapsed_s: float, detail: str, until: threading.Event | None = None) -> None:
        since = f" ({elapsed_s:.0f} s)" if elapsed_s >= 1 else ""
        with self._writing:
            if self._line is not None and not (until is not None and until.is_set()):
                self._line.say(f"{self._label}: {step}{since}" + (f": {detail}" if detail else ""))
