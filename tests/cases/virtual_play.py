"""A script played into the reply reader on a clock of its own: exact times, no sockets."""

from __future__ import annotations

import asyncio
import contextlib
from typing import cast

from gate_runs import SCRIPTS

from pytest_inferslo.loadgen.dialects import DIALECTS
from pytest_inferslo.loadgen.reply import Reply
from pytest_inferslo.servers.http import Exchange
from pytest_inferslo.servers.pacer import Pacer
from pytest_inferslo.servers.play import Over, Play, Played
from pytest_inferslo.servers.scripted_cli import load_script

MS = 1_000_000


class _Clock:
    """Stands for a Pacer: waiting costs nothing."""

    def __init__(self) -> None:
        self.time = 0

    def now(self) -> int:
        return self.time

    async def until(self, due: int) -> None:
        self.time = max(self.time, due)


class _Wire:
    """Stands for an Exchange: what is written reaches the reader at once."""

    method, path, body = "POST", "/", b'{"stream": true, "max_tokens": 16}'

    def __init__(self, reply: Reply, clock: _Clock) -> None:
        self._reply = reply
        self._clock = clock

    def write(self, data: bytes) -> None:
        self._reply.feed(data, self._clock.now())

    def close(self) -> None:
        self._reply.closed(self._clock.now())

    def reset(self) -> None:
        self._reply.closed(self._clock.now(), reset=True)


def read(script: str, number: int = 1) -> Reply:
    """The reply that the `number`-th request of the script gets; times are ns since that request."""
    found = load_script(SCRIPTS / f"{script}.yaml")
    clock = _Clock()
    reply = Reply(DIALECTS[found.api], streaming=True)
    wire = _Wire(reply, clock)
    rule = next(rule for rule in found.rules if rule.when.holds(number, 1, wire.path))
    play = Play(found, cast(Exchange, wire), cast(Pacer, clock), Played(number, rule.line, wire.path, 0))
    with contextlib.suppress(Over, TimeoutError):
        asyncio.run(asyncio.wait_for(play.all_of(rule.steps), 0.5))  # only a script that hangs takes so long
    return reply
