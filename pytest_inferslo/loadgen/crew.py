"""The workers as the master knows them: who is there, on which clock, and who was lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gevent
import gevent.event

from pytest_inferslo.errors import LoadError
from pytest_inferslo.loadgen.order import PROTOCOL
from pytest_inferslo.loadgen.worker import boot_id

_PINGS = 15
_PING_SECONDS = 2.0
#: A worker that is silent for so long during a load (it reports four times a second) is lost.
SILENCE_SECONDS = 3.0


@dataclass
class Member:
    """One connected worker. `offset` is its monotonic clock minus ours, ns, known to +- `uncertainty`."""

    client_id: str
    host: str
    pid: int
    same_clock: bool
    heard: float
    offset: int = 0
    uncertainty: int = 0
    lost: str = ""


class Crew:
    """`members` in the order in which they came. `on_message` gets what workers say during a load."""

    def __init__(self, runner: Any) -> None:
        self.members: list[Member] = []
        self.refused = ""
        self.on_message: Callable[[Member, str, dict[str, Any]], None] | None = None
        self.on_loss: Callable[[Member], None] | None = None
        self._runner = runner
        self._pongs: dict[str, gevent.event.AsyncResult] = {}
        runner.register_message("inferslo.hello", self._hello)
        runner.register_message("inferslo.pong", self._pong)
        for name in ("inferslo.prepared", "inferslo.finished"):
            runner.register_message(name, self._message)

    def wait_for(self, workers: int) -> None:
        while len(self.members) < workers:
            gevent.sleep(0.02)

    def send(self, member: Member, name: str, data: dict[str, Any]) -> None:
        if not member.lost:
            self._runner.send_message(name, data, member.client_id)

    def find(self, client_id: str) -> Member | None:
        return next((member for member in self.members if member.client_id == client_id), None)

    def heard(self, client_id: str) -> Member | None:
        member = self.find(client_id)
        if member is not None:
            member.heard = time.monotonic()
        return member

    def lose(self, pid: int, why: str) -> None:
        """The local worker `pid` is gone."""
        for member in self.members:
            if member.pid == pid and member.same_clock:
                self.declare_lost(member, why)

    def declare_lost(self, member: Member, why: str) -> None:
        if not member.lost:
            member.lost = why
            if self.on_loss is not None:
                self.on_loss(member)

    def measure_clocks(self) -> None:
        """Estimates each worker's clock offset from the quickest of some round trips (Cristian, 1989)."""
        for member in self.members:
            if not member.lost:
                self._measure_clock(member)

    def _measure_clock(self, member: Member) -> None:
        best = 1 << 62
        for _ in range(_PINGS):
            pong = self._pongs[member.client_id] = gevent.event.AsyncResult()
            before = time.monotonic_ns()
            self.send(member, "inferslo.ping", {"id": before})
            answer = pong.get(timeout=_PING_SECONDS) if pong.wait(_PING_SECONDS) else None
            if answer is None:
                self.declare_lost(member, f"no answer in {_PING_SECONDS:g} s")
                return
            after, theirs = answer
            if after - before < best:
                best = after - before
                member.offset, member.uncertainty = theirs - (before + after) // 2, best // 2
        if member.same_clock:
            member.offset = member.uncertainty = 0

    def _hello(self, environment: Any, msg: Any) -> None:
        data = msg.data
        if data["protocol"] != PROTOCOL:
            self.refused = (
                f"the worker on {data['host']} speaks protocol {data['protocol']}, this master {PROTOCOL}:"
                " install the same version of pytest-inferslo on both"
            )
            self._runner.send_message("quit", None, msg.node_id)
            return
        member = Member(msg.node_id, data["host"], data["pid"], data["boot"] == boot_id(), time.monotonic())
        self.members.append(member)

    def _pong(self, environment: Any, msg: Any) -> None:
        pong = self._pongs.get(msg.node_id)
        if pong is not None and self.heard(msg.node_id):
            pong.set((time.monotonic_ns(), msg.data["clock"]))

    def _message(self, environment: Any, msg: Any) -> None:
        member = self.heard(msg.node_id)
        if member is not None and self.on_message is not None:
            self.on_message(member, msg.type, msg.data)


def require(crew: Crew) -> list[Member]:
    """The workers that can take a load."""
    present = [member for member in crew.members if not member.lost]
    if not present:
        raise LoadError(crew.refused or "no load generator worker is connected")
    return present
