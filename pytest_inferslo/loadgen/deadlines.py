"""When a request has waited too long, and for what."""

from __future__ import annotations

from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.core.scenario import Timeouts
from pytest_inferslo.loadgen.connection import Connection

_SECOND = 1_000_000_000


class Deadlines:
    """A scenario's time-outs, ns. `soonest`: no request can be overdue earlier than so long after its send."""

    def __init__(self, timeouts: Timeouts) -> None:
        self.connect, self._first, self._stall, self._total = (
            round(float(seconds) * _SECOND)
            for seconds in (timeouts.connect, timeouts.first_output, timeouts.stall, timeouts.total)
        )
        self.soonest = min(self._first, self._stall, self._total)

    def overdue(self, connection: Connection, now: int) -> tuple[Outcome, str] | None:
        """What to fail the request of a standing connection with; None moves its deadline to the next look."""
        reply, sent = connection.reply, connection.sent
        if reply.chunks:
            limit, outcome, what = reply.last + self._stall, Outcome.TIMEOUT_STALL, "a stall"
        else:
            limit, outcome, what = sent + self._first, Outcome.TIMEOUT_FIRST_OUTPUT, "no output"
        if sent + self._total <= limit:
            limit, outcome, what = sent + self._total, Outcome.TIMEOUT_TOTAL, "not complete"
        if limit > now:
            # an output that comes before `limit` may be followed by a stall that ends before it
            connection.deadline = min(limit, now + self._stall)
            return None
        return outcome, f"{what} for {(now - sent) / _SECOND:.3g} s,"

    def not_connected(self) -> tuple[Outcome, str]:
        return Outcome.CONNECT_TIMEOUT, f"not connected after {self.connect / _SECOND:g} s"
