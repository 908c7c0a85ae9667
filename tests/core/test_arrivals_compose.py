"""Phases one after another, streams side by side."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_inferslo.core.arrivals import (
    ClosedLoop,
    Phases,
    SideBySide,
    Trace,
    concurrency,
    constant,
    phase,
    phases,
    poisson,
    spike,
    stream,
    streams,
)
from pytest_inferslo.core.samples import ABSENT
from pytest_inferslo.errors import ScenarioError

CALM_STORM = phases(phase("calm", constant("10/s"), "5s"), phase("storm", constant("100/s"), "5s"))


def test_phases_follow_one_another() -> None:
    schedule = CALM_STORM.schedule(10, seed=0)
    times = schedule.intended / 1e9
    assert np.count_nonzero(times < 5) == 50
    assert np.count_nonzero(times >= 5) == 500
    assert np.array_equal(schedule.index, np.arange(550))
    assert schedule.end == 10_000_000_000
    assert CALM_STORM.length == 10
    assert [tuple(span) for span in CALM_STORM.spans(10)] == [("calm", 0, 5), ("storm", 5, 10)]


def test_the_warm_up_has_the_first_phases_load() -> None:
    times = CALM_STORM.schedule(13, seed=0, lead=3).intended / 1e9
    assert np.count_nonzero(times < 3) == 30
    assert np.count_nonzero((times >= 3) & (times < 8)) == 50
    assert np.count_nonzero(times >= 8) == 500


def test_an_open_last_phase_fills_the_window() -> None:
    arrivals = phases(phase("calm", constant("10/s"), "5s"), phase("storm", constant("100/s")))
    assert arrivals.length is None
    assert len(arrivals.schedule(8, seed=0)) == 350
    assert [tuple(span) for span in arrivals.spans(8)] == [("calm", 0, 5), ("storm", 5, 8)]


def test_phases_of_random_arrivals_differ() -> None:
    """Two phases of the same process are not copies of each other."""
    arrivals = phases(phase("a", poisson(50), "10s"), phase("b", poisson(50), "10s"))
    times = arrivals.schedule(20, seed=3).intended
    first, second = times[times < 10**10], times[times >= 10**10] - 10**10
    assert not np.array_equal(first[:50], second[:50])


def test_phases_scale_with_their_shapes() -> None:
    arrivals = phases(phase("s", spike(1, 9, "10s", "10s"), "30s"), phase("rest", constant(5), "30s"))
    assert arrivals.scaled(0.5) == phases(
        phase("s", spike(1, 9, "5s", "5s"), "15s"), phase("rest", constant(5), "15s")
    )


def test_streams_merge_by_time_and_keep_their_number() -> None:
    arrivals = streams(stream("chat", constant("10/s")), stream("search", constant("25/s")))
    schedule = arrivals.schedule(10, seed=0)
    assert len(schedule) == 350
    assert np.all(np.diff(schedule.intended) >= 0)
    assert np.array_equal(schedule.index, np.arange(350))
    assert np.bincount(schedule.stream).tolist() == [100, 250]
    assert np.array_equal(schedule.intended[schedule.stream == 0], np.arange(100) * 100_000_000)


def test_a_stream_does_not_disturb_another() -> None:
    alone = streams(stream("a", poisson("50/s"))).schedule(10, seed=1)
    beside = streams(stream("a", poisson("50/s")), stream("b", poisson("500/s"))).schedule(10, seed=1)
    assert np.array_equal(alone.intended, beside.intended[beside.stream == 0])


def test_tokens_of_a_trace_beside_a_stream_without() -> None:
    trace = Trace.of([(0, 7, 3), (1_500_000_000, 8, 4), (3_000_000_000, 9, 5)])
    schedule = streams(stream("plain", constant("1/s")), stream("trace", trace)).schedule(3, seed=0)
    assert schedule.input_tokens is not None
    assert schedule.output_tokens is not None
    assert schedule.stream.tolist() == [0, 1, 0, 1, 0]
    assert schedule.input_tokens.tolist() == [ABSENT, 7, ABSENT, 8, ABSENT]
    assert schedule.stripe(1, 2).output_tokens.tolist() == [3, 4]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        (streams(stream("a", constant(1)), stream("b", constant(2))), ["measured"]),
        (
            streams(stream("a", constant(1)), stream("b", spike(1, 9, "1s", "1s"))),
            ["base", "spike", "recovery"],
        ),
        (
            streams(stream("a", spike(1, 9, "0s", "2s")), stream("b", spike(1, 9, "0s", "1s"))),
            ["a/spike", "a/recovery", "b/spike", "b/recovery"],
        ),
    ],
)
def test_phases_of_streams(arrivals: SideBySide, expected: list[str]) -> None:
    assert [span.name for span in arrivals.spans(10)] == expected


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: phases(), ["phases", "one or more"]),
        (lambda: phases(phase("a", constant(1)), phase("b", constant(1))), ["'a'", "must say how long"]),
        (lambda: phases(constant(1)), ["phases", "phase(name, arrivals, duration)"]),
        (lambda: phase("", constant(1), "1s"), ["name", "non-empty"]),
        (lambda: phase("a", constant(1), "0s"), ["duration", "longer than zero"]),
        (lambda: phase("a", concurrency(5), "1s"), ["phase 'a'", "stands alone"]),
        (lambda: stream("a", concurrency(5)), ["stream 'a'", "stands alone"]),
        (lambda: phase("a", "10/s", "1s"), ["phase 'a'", "constant()"]),
        (lambda: streams(), ["streams", "one or more"]),
        (
            lambda: streams(stream("a", constant(1)), stream("a", constant(2))),
            ["a stands there more than once"],
        ),
        (lambda: stream("a", constant(1), endpoints={"x": -1}), ["stream 'a': endpoints[0]", "-1"]),
        (lambda: CALM_STORM.check(60, 0), ["duration is 60", "last 10 s"]),
        (
            lambda: phases(phase("a", constant(1), "9s"), phase("b", constant(1))).check(9, 0),
            ["duration is 9", "fill it"],
        ),
        (lambda: phases(phase("a", spike(1, 9, "9s", "9s"), "9s")).check(9, 0), ["would not end"]),
    ],
)
def test_refusals(make, words: list[str]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ScenarioError) as refused:
        make()
    for word in words:
        assert word in str(refused.value)


def test_kinds_are_told_apart() -> None:
    assert CALM_STORM.open_loop
    assert isinstance(CALM_STORM, Phases)
    assert not ClosedLoop(3).open_loop
