"""What a whole pytest session concludes from its judged runs: the summary section and the exit code.

Everything travels on the test reports, as JSON-able values, so it also arrives from xdist workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.outcomes import Failed

from pytest_inferslo.collection import NAMED, REMARKS

#: The judged runs of an item, in order: dicts as made by `fixtures.offer_load`.
RUNS = pytest.StashKey[list[dict[str, Any]]]()

#: What offer_load raised in an item, in order, other than what `--inconclusive` asked for.
RAISED = pytest.StashKey[list[BaseException]]()

#: Verdicts by test id, over the tries of one session: a retry must not launder a breach.
TRIES = pytest.StashKey[dict[str, list[dict[str, Any]]]]()

#: What the end of the session should say about runs that have no verdict, and about the end of the servers.
NOTES = pytest.StashKey[list[str]]()

#: Why nothing was begun.
REFUSAL = pytest.StashKey[str]()

_OF_WORKER = "inferslo"  # where an xdist worker tells its controller what it collected

EXIT_INCONCLUSIVE = 8
EXIT_INVALID = 9


def scenario_name(item: pytest.Item) -> str:
    """The name that a test's load has unless it is given another."""
    return str(getattr(item, "originalname", None) or item.name).removeprefix("test_")


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
    tries = item.config.stash[TRIES].get(item.nodeid, []) if TRIES in item.config.stash else []
    mine: list[dict[str, Any]] = item.stash.get(RUNS, [])
    if report.skipped and (breached := _breached_before(tries, mine)):
        error = BreachedPolicy(flaky(breached, str(error)), pytrace=False)
        report.outcome, report.longrepr = "failed", str(error)
        report.__dict__.pop("wasxfail", None)
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


def flaky(breached: Sequence[dict[str, Any]], message: str) -> str:
    tries = "\n\n".join(f"an earlier try, {note['directory']}:\n{note['table']}" for note in breached)
    return f"flaky: a retry does not undo a breach. This try:\n{message}\n\n{tries}"


def _breached_before(tries: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The breaches among `tries` that are none of this one's `runs`."""
    return [note for note in tries if note["status"] == "FAIL" and not any(note is mine for mine in runs)]


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
        self._named: dict[str, dict[str, Any]] = {}  # what policies name, xdist workers' included
        self._collected: set[str] = set()  # names of scenarios, chosen for this session or not
        self._notes: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        shown = report.outcome == "failed"  # pytest shows the message of a failure, and of nothing else
        self.runs += [run | {"shown": shown} for run in getattr(report, "inferslo_runs", [])]
        if report.failed:
            self._statuses.add(getattr(report, "inferslo_status", ""))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Of xdist, in its controller, which collects nothing itself."""
        told = getattr(node, "workeroutput", {}).get(_OF_WORKER)
        if told is not None:
            self._named |= told["named"]
            self._collected |= set(told["collected"])
            self._notes += told["notes"]
            if told["refusal"] is not None:  # a worker of xdist has nobody else to tell
                raise pytest.UsageError(told["refusal"])

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._collected |= {scenario_name(item) for item in items}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected |= {scenario_name(item) for item in session.items}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._statuses.add("")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        mine: dict[str, dict[str, Any]] = self._config.stash.get(NAMED, {})
        self._named |= mine
        self._notes += [*self._config.stash.get(REMARKS, []), *self._config.stash.get(NOTES, [])]
        if hasattr(self._config, "workerinput"):
            output: dict[str, Any] = self._config.workeroutput  # type: ignore[attr-defined]  # of xdist
            output[_OF_WORKER] = {
                "named": self._named,
                "collected": sorted(self._collected),
                "notes": self._notes,
                "refusal": self._config.stash.get(REFUSAL, None),
            }
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
        for file, named in self._named.items():
            evaluated = {run["scenario"] for run in self.runs if run["policy_file"] == file}
            absent = [name for name in named["scenarios"] if name not in evaluated]
            if absent:
                noun = "scenario was" if len(absent) == 1 else "scenarios were"
                missing.append(
                    f"policy {named['policy']}: {len(absent)} named {noun} not evaluated: {', '.join(absent)}"
                )
        return missing

    def _unused_overrides(self) -> list[str]:
        """Overrides for what nobody has met: promises that somebody wrote down and that may never hold for anything."""
        from pytest_inferslo.core.units import nearest

        found = []
        met = self._collected | {run["scenario"] for run in self.runs}
        for named in self._named.values():
            for kind, names in (("scenario", named["overridden"]), ("backend", named["strangers"])):
                known = met if kind == "scenario" else ()
                found += [
                    f"policy {named['policy']} has overrides for {kind} {name!r}, which this session does not know"
                    f"{nearest(name, sorted(known))}: they had no effect"
                    for name in names
                    if name not in known
                ]
        return found

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        notes = list(dict.fromkeys([*self._notes, *self._unused_overrides()]))
        if not self.runs and not self._missing and not notes:
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
        for line in notes:
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
