"""Ends a run early once its verdict is certain: reads the samples while they are written, and decides.

The tests are of the anytime-valid kind (core/early), so looking often does not bias them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.baseline import Baseline
from pytest_inferslo.core.distribution import SECOND
from pytest_inferslo.core.early import Decision, complete_seconds, decide
from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.policy import Policy
from pytest_inferslo.core.questions import questions
from pytest_inferslo.core.samples import SampleBatch
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.core.verdict import Status
from pytest_inferslo.storage.samples import read_batches

_POLL_SECONDS = 0.25


class EarlyStop:
    """Follows the samples of one run in a thread of its own; `reason` is a text once every policy is certain.

    One certain FAIL is enough; a PASS needs all policies. `until_ns` is then the end of the window that the decision
    rests on, ns since the run's epoch. `error` is what broke the following, if anything did: the run then goes on to
    its end and is judged there.
    """

    def __init__(
        self,
        policies: Sequence[tuple[Policy, Baseline | None]],
        record: dict[str, Any],
        scenario: Scenario,
    ) -> None:
        self.reason: str | None = None
        self.until_ns: int | None = None
        self.error: Exception | None = None
        self._record = record
        self._judges = [_Judge(policy, baseline, record) for policy, baseline in policies]
        self._start = scenario.window_ns[0]
        self._expected = _expected(scenario)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, directory: Path) -> None:
        self._thread = threading.Thread(
            target=self._follow, args=(directory,), daemon=True, name="inferslo-early-stop"
        )
        self._thread.start()

    def close(self) -> None:
        """The run is over, for whatever reason."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _follow(self, directory: Path) -> None:
        try:
            self._decide_while_written(directory)
        except Exception as error:
            self.error = error

    def _decide_while_written(self, directory: Path) -> None:
        looked = 0
        batches = read_batches(
            directory,
            follow=True,
            finished=self._over.is_set,
            on_incomplete=lambda text: None,
            poll_seconds=_POLL_SECONDS,
        )
        for batch in batches:
            for judge in self._judges:
                judge.fold.add(batch)
            seconds = complete_seconds(self._expected, self._judges[0].fold.result())
            if seconds > looked:
                looked = seconds
                self._look(seconds)
            if self.reason is not None:
                return

    def _look(self, seconds: int) -> None:
        decisions = [judge.decision(self._record, self._expected) for judge in self._judges]
        certain = [decision for decision in decisions if decision.status is Status.FAIL]
        if not certain and all(decision.status is Status.PASS for decision in decisions):
            certain = decisions
        if certain:
            self.until_ns = self._start + seconds * SECOND
            self.reason = certain[0].reason


class _Judge:
    def __init__(self, policy: Policy, baseline: Baseline | None, record: dict[str, Any]) -> None:
        mine = policy.for_record(record)
        self._policy = policy
        self._baseline = baseline
        self.fold = Fold(record, questions(mine, record, baseline), mine.goals())
        self.fold.add(SampleBatch.empty())

    def decision(self, record: dict[str, Any], expected: npt.NDArray[Any]) -> Decision:
        return decide(self._policy, self.fold.result(), record, expected, baseline=self._baseline)


def _expected(scenario: Scenario) -> npt.NDArray[Any]:
    """How many requests the schedule starts in each whole second of the window."""
    start, end = scenario.window_ns
    intended = scenario.schedule().intended - start
    inside = intended[(intended >= 0) & (intended < end - start)]
    return np.bincount(inside // SECOND, minlength=(end - start) // SECOND)
