"""The latency of a run so far, for the line of progress: read from the samples while they are written."""

from __future__ import annotations

import threading
from pathlib import Path

from pytest_inferslo.core.histogram import Histogram
from pytest_inferslo.core.samples import Outcome, SampleBatch
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.storage.samples import read_batches

_POLL_SECONDS = 1.0


class RunningLatency:
    """Follows the samples in a thread of its own until `close`; a figure to look at, which no verdict rests on.

    `metric` is ttft or e2e; of the requests of the measured window, failures as infinitely slow.
    """

    def __init__(self, scenario: Scenario, metric: str) -> None:
        self.metric = metric
        self._start, self._end = scenario.window_ns
        self._histogram = Histogram()
        self._changing = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, directory: Path) -> None:
        self._thread = threading.Thread(
            target=self._follow, args=(directory,), daemon=True, name="inferslo-progress"
        )
        self._thread.start()

    def percentile(self, p: float) -> float | None:
        """In ns; None while nothing is known."""
        with self._changing:
            return self._histogram.percentile(p)

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def add(self, batch: SampleBatch) -> None:
        rows = batch.samples
        rows = rows[(rows["intended"] >= self._start) & (rows["intended"] < self._end)]
        ended = rows["first" if self.metric == "ttft" else "last"]
        good = (rows["outcome"] == Outcome.SUCCESS) & (ended >= 0)
        with self._changing:
            self._histogram.add(ended[good] - rows["intended"][good])
            self._histogram.add_failures(len(rows) - int(good.sum()))

    def _follow(self, directory: Path) -> None:
        try:
            for batch in read_batches(
                directory,
                follow=True,
                finished=self._over.is_set,
                on_incomplete=lambda text: None,
                poll_seconds=_POLL_SECONDS,
            ):
                self.add(batch)
                if self._over.is_set():
                    return
        except Exception:
            return  # what is wrong with the samples is said by the judgement of them
