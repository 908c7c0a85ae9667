"""What a whole pytest session concludes from its judged runs: the summary section and the exit code.

Everything travels on the test reports, as JSON-able values, so it also arrives from xdist workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.outcomes import Failed

from pytest_inferslo.collection import REQUIRED

#: The judged runs of an item, in order: dicts as made by `fixtures.offer_load`.
RUNS = pytest.StashKey[list[dict[str, Any]]]()

#: What offer_load raised in an item, in order, other than what `--inconclusive` asked for.
RAISED = pytest.StashKey[list[BaseException]]()

#: What the end of the servers left to say.
NOTES = pytest.StashKey[list[str]]()

_REQUIRED_OF_WORKER = "inferslo_required"

EXIT_INCONCLUSIVE = 8
EXIT_INVALID = 9


class InvalidRun(Failed):
    """The measurement cannot be trusted: an error of the item, neither a pass nor a breach."""

    __module__ = "builtins"  # as pytest.fail does: the summary line then shows the message


class UnofferedLoad(Failed):
    """No verdict: the scenario was refused, the server or the load generator did not start, or the disk was full."""

    __module__ = "builtins"  # as pytest.fail does: the summary line then shows the message


class InconclusiveRun(Failed):
    """The evidence does not reach the declared confidence."""

    __module__ = "builtins"  # as pytest.fail does: the summary line then shows the message


class BreachedPolicy(Failed):
    """The evidence refutes a promise."""

    __module__ = "builtins"  # as pytest.fail does: the summary line then shows the message


def annotate(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Puts the item's verdicts on its report; a run that is INVALID or never began counts as an error.

    A verdict is the session's, not the test's to forgive: a test that swallows it, or offers no load at all, does
    not pass. `xfail` is the way to expect a breach.
    """
    error = call.excinfo.value if call.excinfo else None
    if report.when != "setup" or report.failed:  # a load of a fixture's set-up is told with the call
        runs, raised = item.stash.get(RUNS, []), item.stash.get(RAISED, [])
        report.inferslo_runs = list(runs)  # type: ignore[attr-defined]
        if not report.failed and not hasattr(report, "wasxfail"):
            error = _unanswered(runs, raised, report) or error
        runs.clear()
        raised.clear()
    if isinstance(error, InvalidRun | UnofferedLoad) and report.when == "call":
        report.when = "setup"  # junit and every other consumer then count an error, not a failure
    if isinstance(error, InvalidRun):
        report.inferslo_status = "INVALID"  # type: ignore[attr-defined]
    elif isinstance(error, InconclusiveRun):
        report.inferslo_status = "INCONCLUSIVE"  # type: ignore[attr-defined]


def _unanswered(
    runs: Sequence[dict[str, Any]], raised: Sequence[BaseException], report: pytest.TestReport
) -> BaseException | None:
    """What a test that did not fail should have failed with; its report fails now."""
    worst_first = (BreachedPolicy, InvalidRun, UnofferedLoad, InconclusiveRun)
    error = next((e for kind in worst_first for e in raised if isinstance(e, kind)), next(iter(raised), None))
    if error is not None:
        text = f"the test went on after its load had been refused or judged:\n\n{error}"
    elif report.when == "call" and report.passed and not runs:
        text = (
            "the test asked for offer_load and passed without offering a load: nothing was measured or judged"
        )
        error = UnofferedLoad(text, pytrace=False)
    else:
        return None
    report.outcome = "failed"
    report.longrepr = text
    return error


class SessionVerdicts:
    """A plugin object of one pytest session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.runs: list[dict[str, Any]] = []
        self._statuses: set[str] = set()  # of failed reports; "" stands for everything that is not ours
        self._missing: list[str] = []
        self._required: dict[str, tuple[str, list[str]]] = {}  # what xdist workers collected

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        shown = report.outcome == "failed"  # pytest shows the message of a failure, and of nothing else
        self.runs += [run | {"shown": shown} for run in getattr(report, "inferslo_runs", [])]
        if report.failed:
            self._statuses.add(getattr(report, "inferslo_status", ""))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Of xdist, in its controller, which collects nothing itself."""
        self._required |= getattr(node, "workeroutput", {}).get(_REQUIRED_OF_WORKER, {})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._statuses.add("")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(self._config, "workerinput"):
            output: dict[str, Any] = self._config.workeroutput  # type: ignore[attr-defined]  # of xdist
            output[_REQUIRED_OF_WORKER] = self._config.stash.get(REQUIRED, {})
            return
        self._missing = self._not_evaluated()
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and self._missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif exitstatus == pytest.ExitCode.TESTS_FAILED and not self._missing and "" not in self._statuses:
            if "INVALID" in self._statuses:
                session.exitstatus = EXIT_INVALID
            elif self._statuses == {"INCONCLUSIVE"}:
                session.exitstatus = EXIT_INCONCLUSIVE

    def _not_evaluated(self) -> list[str]:
        """Scenarios that a policy names and no run evaluated, as when a typo in a marker leaves one out."""
        if self._config.option.collectonly:
            return []
        missing = []
        for file, (policy, scenarios) in (self._config.stash.get(REQUIRED, {}) | self._required).items():
            evaluated = {run["scenario"] for run in self.runs if run["policy_file"] == file}
            absent = [name for name in scenarios if name not in evaluated]
            if absent:
                noun = "scenario was" if len(absent) == 1 else "scenarios were"
                missing.append(
                    f"policy {policy}: {len(absent)} named {noun} not evaluated: {', '.join(absent)}"
                )
        return missing

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.runs and not self._missing:
            return
        terminalreporter.section("inferslo")
        for run in self.runs:
            if run["shown"] and run["status"] != "PASS":  # its table stands in the failures section already
                terminalreporter.write_line(run["table"].splitlines()[0] + " (table above)")
            else:
                terminalreporter.write_line(run["table"])
            terminalreporter.write_line("")
        for line in self._comparisons():
            terminalreporter.write_line(line)
        for line in self._config.stash.get(NOTES, []):
            terminalreporter.write_line(f"note: {line}")
        for line in self._missing:
            terminalreporter.write_line(f"FAIL  {line}", red=True)

    def _comparisons(self) -> list[str]:
        """One table per scenario that ran on several backends or with several engine arguments."""
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for run in self.runs:
            groups.setdefault((run["scenario"], run["policy"]), []).append(run)
        compared = [runs for runs in groups.values() if len({run["backend"] for run in runs}) > 1]
        if not compared:
            return []
        from pytest_inferslo.comparison import compare_runs

        return [compare_runs(runs) for runs in compared]
