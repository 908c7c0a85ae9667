"""How simulated steps become wall time: absolute deadlines, with a clock and a timer in the test's hands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_inferslo.backends.simulated.engine import Engine
from pytest_inferslo.backends.simulated.pace import Pace
from pytest_inferslo.backends.simulated.profile import Profile
from pytest_inferslo.backends.simulated.sequences import Request

PROFILE = Profile("plain", frontend_ms=0, prefill_ms=((1, 10),), decode_ms=((1, 10),))


class Clock:
    """A clock, and the one timer that it fires."""

    def __init__(self) -> None:
        self.now = 100.0
        self.deadline: float | None = None
        self._callback: Callable[[], None] = lambda: None

    def timer(self, callback: Callable[[], None]) -> Clock:
        self._callback = callback
        return self

    def arm(self, deadline: float) -> None:
        self.deadline = deadline

    def close(self) -> None:
        self.deadline = None

    def fire(self, late: float = 0.0) -> bool:
        """Lets time pass to the deadline, and `late` beyond it; False when nothing is armed."""
        if self.deadline is None:
            return False
        self.now = max(self.now, self.deadline + late)
        self.deadline = None
        self._callback()
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made_pace(clock: Clock, seen: list[tuple[float, float]]) -> Pace:
    """A pace whose deliveries land in `seen` as (wall time, simulated time)."""
    engine = Engine(PROFILE)

    def deliver(produced: list[Request]) -> None:
        seen.extend((clock.now, request.last_token) for request in produced)

    return Pace(engine, deliver, lambda: clock.now, clock.timer)


def test_late_wake_ups_do_not_add_up(clock: Clock) -> None:
    seen: list[tuple[float, float]] = []
    pace = made_pace(clock, seen)
    pace.submit(Request([1], 50))
    while clock.fire(late=0.004):
        pass
    assert [simulated for _, simulated in seen] == pytest.approx([100 + 0.01 * n for n in range(1, 51)])
    assert max(wall - simulated for wall, simulated in seen) == pytest.approx(0.004)
    assert pace.largest_lag == pytest.approx(0.004)
    assert pace.resyncs == 0


def test_idle_engine_starts_with_the_arrival(clock: Clock) -> None:
    seen: list[tuple[float, float]] = []
    pace = made_pace(clock, seen)
    for arrival in (100.0, 250.0):
        clock.now = arrival
        pace.submit(Request([arrival], 1))
        while clock.fire():
            pass
    assert [simulated for _, simulated in seen] == pytest.approx([100.01, 250.01])


def test_clock_that_is_a_second_behind_jumps(clock: Clock) -> None:
    seen: list[tuple[float, float]] = []
    pace = made_pace(clock, seen)
    pace.submit(Request([1], 3))
    clock.fire()
    clock.fire(late=5.0)
    while clock.fire():
        pass
    assert pace.resyncs == 1
    assert seen[-1][0] == pytest.approx(seen[-1][1])


def test_pause_holds_the_step_in_flight_and_what_follows_continues(clock: Clock) -> None:
    seen: list[tuple[float, float]] = []
    pace = made_pace(clock, seen)
    pace.submit(Request([1], 3))
    clock.fire()
    pace.pause(2.0)
    while clock.fire():
        pass
    walls = [wall for wall, _ in seen]
    assert walls == pytest.approx([102.0, 102.01, 102.02])


def test_request_that_leaves_before_its_turn_leaves_nothing_behind(clock: Clock) -> None:
    seen: list[tuple[float, float]] = []
    pace = made_pace(clock, seen)
    leaves, stays = Request([1], 2), Request([2], 2)
    pace.submit(leaves)
    pace.submit(stays)
    pace.abort(leaves)
    while clock.fire():
        pass
    assert (leaves.generated, stays.generated, len(seen)) == (0, 2, 2)
