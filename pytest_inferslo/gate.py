"""`offer_load`: from a scenario in a test to that test's pass, failure or error."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_inferslo.baselines import HINT, recorded, uncomparable
from pytest_inferslo.core.policy import Policy
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.core.verdict import Status
from pytest_inferslo.errors import InfersloError, ScenarioError, UsageError
from pytest_inferslo.judgement import Judged, baseline_levels, judge_runs
from pytest_inferslo.locust_order import locust_order
from pytest_inferslo.ordering import ordered
from pytest_inferslo.record import Order, intended_load
from pytest_inferslo.reports.junit import junit_properties
from pytest_inferslo.reports.terminal import ProgressLine, render_verdict
from pytest_inferslo.rig import BackendUnderTest, Rig
from pytest_inferslo.run import measure
from pytest_inferslo.session import (
    NOTES,
    TRIES,
    BreachedPolicy,
    InconclusiveRun,
    InvalidRun,
    UnofferedLoad,
    flaky,
    scenario_name,
)
from pytest_inferslo.shown import Shown
from pytest_inferslo.storage.run_directory import RunDirectory
from pytest_inferslo.storage.samples import SAMPLES_FILE

if TYPE_CHECKING:
    from pytest_inferslo.loadgen.order import LocustLoad

_WORST_FIRST = (Status.FAIL, Status.INVALID, Status.INCONCLUSIVE, Status.PASS)


class LoadOffer:
    """What the fixture `offer_load` gives a test."""

    def __init__(
        self,
        item: pytest.Item,
        rig: Rig,
        backend: BackendUnderTest,
        policies: Sequence[Policy],
        notes: list[dict[str, Any]],
        raised: list[BaseException],
    ) -> None:
        self._item = item
        self._rig = rig
        self._backend = backend
        self._policies = tuple(policies)
        self._notes = notes
        self._raised = raised
        self._unjudged: Path | None = None  # the run that was begun and has no verdict yet

    def __call__(
        self,
        scenario: Scenario | None = None,
        *,
        name: str | None = None,
        locustfile: str | Path | None = None,
        **locust: Any,
    ) -> list[Judged]:
        """Offers `scenario` to the backend and judges the run by each policy of the test.

        Returns one `Judged` (record, summary, verdict) per policy when all of them PASS. A breach fails the test with
        the table of objectives, an INVALID run is an error of the test, and an INCONCLUSIVE one does what
        `--inconclusive` says. `name` tells apart several loads of one test; the default is the test's own name.

        In place of a scenario, `locustfile` names a file with Locust's own users; `users`, `spawn_rate`, `shape`,
        `duration` and `warmup` go with it (see `locust_order`).

        A scenario that cannot show what the policy promises is an error of the test before a server starts; so is a
        server that does not come up.
        """
        try:
            return self._offered(scenario, name, locustfile, locust)
        except (pytest.skip.Exception, pytest.xfail.Exception):
            raise
        except BaseException as error:
            self._raised.append(error)
            self._tell_unjudged(error)
            raise

    def _offered(
        self,
        scenario: Scenario | None,
        name: str | None,
        locustfile: str | Path | None,
        locust: dict[str, Any],
    ) -> list[Judged]:
        try:
            order = self._order(self._wanted(scenario, locustfile, locust), name)
            judged = self._judged(order)
            self._conclude(judged, order)
        except InfersloError as error:
            raise UnofferedLoad(f"{error}\n{self._place()}", pytrace=False) from None
        return judged

    def _tell_unjudged(self, error: BaseException) -> None:
        """Where a run lies that nobody will judge now, for the end of the session."""
        path, self._unjudged = self._unjudged, None
        if path is None:
            return
        ended = "was interrupted" if isinstance(error, KeyboardInterrupt) else "broke off"
        told = f"and has no verdict: what was measured until then lies in {path}"
        if not (path / SAMPLES_FILE).exists():
            told = f"before its load began: nothing was measured ({path})"
        self._item.config.stash.setdefault(NOTES, []).append(f"{self._item.nodeid} {ended} {told}")

    def _place(self) -> str:
        file, line = _caller()
        path = Path(file)
        root = self._rig.options.rootdir
        return f"offered at {path.relative_to(root) if path.is_relative_to(root) else path}:{line}"

    def _wanted(
        self, scenario: Scenario | None, locustfile: str | Path | None, options: dict[str, Any]
    ) -> tuple[Scenario, LocustLoad | None]:
        if locustfile is not None and scenario is None:
            return locust_order(locustfile, near=self._item.path.parent, **options)
        if options or locustfile is not None or not isinstance(scenario, Scenario):
            raise ScenarioError(
                f"offer_load takes a Scenario, or locustfile= with users=, duration=, ..., not {scenario!r}"
                + (f" with {', '.join(options)}" if options else "")
            )
        return scenario, None

    def _judged(self, order: Order) -> list[Judged]:
        if not self._policies:
            raise ScenarioError("no policy judges this load: a test must take `offer_load` as an argument")
        named = self._rig.options.baseline
        baseline = RunDirectory.open(Path(named)) if named else None
        if baseline is not None:
            order = replace(order, baseline={"path": str(baseline.path), "run_id": baseline.run_id})
        judges = [(policy, baseline_levels(baseline, policy)) for policy in self._policies]
        for policy, levels in judges:
            mine = policy.resolved(order.name, *self._backend.names)
            if levels is not None and mine.refers_to("baseline"):
                levels.refuse_for(intended_load(order))  # rather now than when the load has been offered
            if levels is None and not order.records_baseline and (lacking := uncomparable(mine)):
                raise UsageError("\n".join([*lacking, HINT]))
        with self._shown(order) as shown:
            if order.locustfile is None:
                self._rig.check_envelope(order.scenario, shown.starting)
            server = self._backend.start(shown.starting)
            generator = self._rig.load_generator()
            runs: list[RunDirectory] = []
            for repeat in range(order.scenario.repeats):
                seed = order.scenario.seed + repeat
                again = replace(order, scenario=replace(order.scenario, seed=seed, repeats=1))
                with (
                    shown.waiting(self._rig.before_the_load()),
                    shown.latency_of(again.scenario, _latency_shown(order)) as follow,
                ):

                    def created(path: Path, follow: Callable[[Path], None] = follow) -> None:
                        self._unjudged = path
                        follow(path)

                    runs.append(
                        measure(
                            again,
                            server,
                            generator,
                            judges=() if order.records_baseline else judges,
                            on_progress=shown.progress,
                            on_created=created,
                        )
                    )
        judged = [judge_runs(runs, policy, levels) for policy, levels in judges]
        self._unjudged = None
        return judged

    def _order(self, wanted: tuple[Scenario, LocustLoad | None], name: str | None) -> Order:
        return ordered(
            *wanted,
            name=name or scenario_name(self._item),
            source=_caller(),
            policies=self._policies,
            backends=self._backend.names,
            endpoints=self._backend.endpoint_names,
            options=self._rig.options,
        )

    def _conclude(self, judged: Sequence[Judged], order: Order) -> None:
        tables = []
        for place in reversed(_worst_first(judged)):
            judged[place].write()
        if order.records_baseline:
            invalid = any(each.verdict.status is Status.INVALID for each in judged)
            told = recorded(order.name, judged[0].directory.path, invalid=invalid)
            self._item.config.stash.setdefault(NOTES, []).append(told)
        for each in judged:
            table = render_verdict(each.verdict, each.record, each.summary)
            tables.append(table)
            note = self._note(each, table, order)
            self._notes.append(note)
            self._item.user_properties.extend(junit_properties(each.verdict, each.record))
            self._item.config.hook.pytest_inferslo_run_finished(
                config=self._item.config, nodeid=self._item.nodeid, run=each
            )
        worst = min((each.verdict.status for each in judged), key=_WORST_FIRST.index)
        message = "\n\n".join(tables[place] for place in _worst_first(judged))
        earlier = self._tries()
        breached = [note for note in earlier if note["status"] == Status.FAIL.value]
        earlier.extend(self._notes[-len(judged) :])
        if breached and worst is not Status.FAIL:  # nor does one that `--inconclusive` would let go
            raise BreachedPolicy(flaky(breached, message), pytrace=False)
        self._raise(worst, message)

    def _raise(self, status: Status, message: str) -> None:
        if status is Status.FAIL:
            raise BreachedPolicy(message, pytrace=False)
        if status is Status.INVALID:
            raise InvalidRun(message, pytrace=False)
        if status is Status.INCONCLUSIVE:
            match self._rig.options.inconclusive:
                case "xfail":
                    pytest.xfail(message)
                case "skip":
                    pytest.skip(message)
                case "warn":
                    self._item.warn(pytest.PytestWarning(message.splitlines()[0]))
                case _:
                    raise InconclusiveRun(message, pytrace=False)

    def _note(self, judged: Judged, table: str, order: Order) -> dict[str, Any]:
        status = judged.verdict.status.value
        return {
            "nodeid": self._item.nodeid,
            "scenario": order.name,
            "backend": self._backend.label,
            "policy": judged.verdict.policy,
            "policy_file": judged.policy.file,
            "status": status,
            "directory": str(judged.directory.path),
            "directories": [str(directory.path) for directory in judged.directories],
            "baseline": self._rig.options.baseline,
            "table": table,
        }

    def _tries(self) -> list[dict[str, Any]]:
        tries = self._item.config.stash.setdefault(TRIES, {})
        return tries.setdefault(self._item.nodeid, [])

    @contextlib.contextmanager
    def _shown(self, order: Order) -> Iterator[Shown]:
        """Progress on the real terminal, past pytest's capturing; none from xdist workers, which have no terminal."""
        label = f"{order.name} on {self._backend.label}"
        total_s = order.scenario.window_ns[1] / 1e9
        if hasattr(self._item.config, "workerinput"):
            yield Shown(None, label, total_s)
            return
        capture = self._item.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            line = ProgressLine(sys.stdout)
            sys.stdout.write("\n")
            try:
                yield Shown(line, label, total_s)
            finally:
                line.close()


def _worst_first(judged: Sequence[Judged]) -> list[int]:
    return sorted(range(len(judged)), key=lambda place: _WORST_FIRST.index(judged[place].verdict.status))


def _latency_shown(order: Order) -> str:
    streams = order.locustfile is None and all(stream.streaming for stream in order.scenario.streams)
    return "ttft" if streams else "e2e"


def _caller() -> tuple[str, int]:
    """File and line of the test that called `offer_load`."""
    here = Path(__file__).parent
    for frame in inspect.stack(context=0):
        if here not in Path(frame.filename).parents:
            return frame.filename, frame.lineno
    return "", 0
