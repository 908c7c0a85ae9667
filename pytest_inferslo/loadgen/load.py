"""One load as the master leads it: prepare, agree on the epoch, start, gather, end."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gevent
import gevent.event

from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.errors import LoadError
from pytest_inferslo.loadgen.crew import SILENCE_SECONDS, Crew, Member, require
from pytest_inferslo.loadgen.locust_setup import REPORT_SECONDS
from pytest_inferslo.loadgen.order import LoadOrder, WorkerRecord, unheard_users
from pytest_inferslo.loadgen.recorder import Taken
from pytest_inferslo.storage.samples import SampleWriter

_PREPARE_SECONDS = 120.0
#: Between the last worker's readiness and the epoch: time for the start message to get there.
_LEAD_NS = 250_000_000

Say = Callable[[dict[str, Any]], None]


class Load:
    """`run` blocks its greenlet until every worker has finished or the load had to be ended."""

    def __init__(self, crew: Crew, order: LoadOrder, say: Say) -> None:
        self._crew = crew
        self._order = order
        self._say = say
        self._run_id = os.urandom(8).hex()
        self._members: list[Member] = []
        self._prepared: dict[int, str] = {}
        self._records: dict[int, dict[str, Any]] = {}
        self._latest: dict[int, dict[str, Any]] = {}
        self._recorded: dict[int, int] = {}
        self._changed = gevent.event.Event()
        self._stopped: str | None = None
        self._errors: list[str] = []
        self._writer: SampleWriter | None = None
        self._epoch = 0
        self._intended: int | None = None
        self._users: list[int] = []  # of a closed loop, by worker

    def run(self) -> dict[str, Any]:
        scenario = replace(Scenario.from_dict(self._order.scenario), seed=self._order.seed)
        self._members = require(self._crew)
        if self._order.locustfile is None:
            self._expect(scenario)
        self._crew.on_message, self._crew.on_loss = self._message, self._lost
        self._crew.measure_clocks()
        self._prepare()
        self._writer = SampleWriter(Path(self._order.run_directory))
        try:
            self._start()
            self._gather()
        finally:
            writer, self._writer = self._writer, None  # what a lost worker still sends comes too late
            writer.close()
            self._crew.on_message = self._crew.on_loss = None
        return self._result()

    def _expect(self, scenario: Scenario) -> None:
        """What the schedule says of how many requests there must be."""
        schedule, workers = scenario.schedule(), len(self._members)
        if scenario.open_loop:
            self._intended = len(schedule)
        else:
            self._users = [len(schedule.stripe(worker, workers)) for worker in range(workers)]

    def stop(self, reason: str) -> None:
        if self._stopped is None:
            self._stopped = reason
            for member in self._members:
                self._crew.send(member, "inferslo.stop", {"reason": reason})
            self._changed.set()

    def report(self, client_id: str, data: dict[str, Any]) -> None:
        """Samples and progress of one worker, four times a second."""
        member = self._crew.heard(client_id)
        if member is None or self._writer is None or member not in self._members:
            return
        batch = Taken(*data.pop("batch")).batch()
        self._writer.append(batch)
        worker = data["worker"]
        self._recorded[worker] = self._recorded.get(worker, 0) + len(batch)
        self._latest[worker] = data

    def _prepare(self) -> None:
        order = json.dumps(self._order.to_dict())
        workers = len(self._members)
        for worker, member in enumerate(self._members):
            data = {"run": self._run_id, "worker": worker, "workers": workers, "order": order}
            self._crew.send(member, "inferslo.prepare", data)
        with gevent.Timeout(_PREPARE_SECONDS, LoadError(f"workers not ready after {_PREPARE_SECONDS:g} s")):
            while len(self._prepared) < workers and not self._errors:
                self._changed.clear()
                self._changed.wait(1.0)
        refusals = [text for text in self._prepared.values() if text]
        if refusals or self._errors:
            self.stop("another worker could not prepare")
            raise LoadError((refusals or self._errors)[0])

    def _start(self) -> None:
        self._epoch_unix, self._epoch = _instant(_LEAD_NS)
        for member in self._members:
            self._crew.send(member, "inferslo.start", {"epoch": self._epoch + member.offset})
            member.heard = time.monotonic()

    def _gather(self) -> None:
        while self._waiting():
            self._changed.clear()
            self._changed.wait(REPORT_SECONDS)
            self._say(self._progress())
            now = time.monotonic()
            for member in self._waiting():
                if now - member.heard > SILENCE_SECONDS:
                    self._crew.declare_lost(member, f"nothing was heard of it for {SILENCE_SECONDS:g} s")

    def _waiting(self) -> list[Member]:
        return [
            member
            for worker, member in enumerate(self._members)
            if worker not in self._records and not member.lost
        ]

    def _message(self, member: Member, name: str, data: dict[str, Any]) -> None:
        if data["run"] != self._run_id:
            return
        if name == "inferslo.prepared":
            self._prepared[data["worker"]] = data["error"]
        else:
            self._records[self._members.index(member)] = data["record"]
        self._changed.set()

    def _lost(self, member: Member) -> None:
        if member in self._members and self._members.index(member) not in self._records:
            worker = self._members.index(member)
            self._errors.append(
                f"worker {worker} on {member.host} (pid {member.pid}) was lost: {member.lost}"
            )
            self.stop(f"worker {worker} was lost")

    def _progress(self) -> dict[str, Any]:
        counts = self._counts()
        return {
            "event": "progress",
            "elapsed_s": (time.monotonic_ns() - self._epoch) / 1e9,
            "intended": counts["intended"],
            "sent": sum(latest["sent"] for latest in self._latest.values()),
            "succeeded": counts["succeeded"],
            "failed": counts["failed"] + counts["never_sent"] + counts["unfinished"],
            "in_flight": sum(latest["in_flight"] for latest in self._latest.values()),
        }

    def _outcomes(self) -> dict[Outcome, dict[str, Any]]:
        found: dict[Outcome, dict[str, Any]] = {}
        for latest in self._latest.values():
            for code, count in latest["counts"].items():
                entry = found.setdefault(Outcome(int(code)), {"count": 0, "example": ""})
                entry["count"] += count
                entry["example"] = entry["example"] or latest["examples"].get(code, "")
        return found

    def _counts(self) -> dict[str, int]:
        outcomes = {outcome: entry["count"] for outcome, entry in self._outcomes().items()}
        succeeded, unfinished, never_sent = (
            outcomes.pop(outcome, 0) for outcome in (Outcome.SUCCESS, Outcome.UNFINISHED, Outcome.NEVER_SENT)
        )
        failed = sum(outcomes.values())
        issued = succeeded + failed + unfinished + never_sent
        return {
            "intended": issued if self._intended is None else self._intended,
            "issued": issued,
            "succeeded": succeeded,
            "failed": failed,
            "unfinished": unfinished,
            "never_sent": never_sent,
        }

    def _result(self) -> dict[str, Any]:
        counts = self._counts()
        recorded = sum(self._recorded.values())
        if recorded != counts["issued"]:
            self._errors.append(f"workers recorded {counts['issued']} samples, {recorded} arrived")
        if not self._errors and recorded != counts["intended"]:
            self._errors.append(f"{counts['intended']} requests were intended, {recorded} were recorded")
        if not self._errors and self._stopped is None:
            self._errors += unheard_users(self._users, self._recorded)
        return {
            "epoch_unix_ns": self._epoch_unix,
            "epoch_monotonic_ns": self._epoch,
            "counts": counts,
            "workers": [self._record(worker, member) for worker, member in enumerate(self._members)],
            "outcomes": {
                outcome.name: entry
                for outcome, entry in self._outcomes().items()
                if outcome is not Outcome.SUCCESS
            },
            "stopped_early": self._stopped,
            "errors": self._errors + [text for record in self._records.values() for text in record["errors"]],
        }

    def _record(self, worker: int, member: Member) -> dict[str, Any]:
        record = self._records.get(worker)
        if record is None:
            record = WorkerRecord(worker, member.host, member.pid, lost=bool(member.lost)).to_dict()
            record["recorded"] = self._recorded.get(worker, 0)
        return record | {
            "clock_offset_ns": member.offset,
            "clock_uncertainty_ns": member.uncertainty,
        }


def _instant(ahead: int) -> tuple[int, int]:
    """The instant `ahead` ns from now, on the realtime and on the monotonic clock."""
    return time.time_ns() + ahead, time.monotonic_ns() + ahead
