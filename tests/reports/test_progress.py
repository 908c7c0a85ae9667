"""The line of progress, on a terminal and off it."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pytest

from pytest_inferslo.reports.progress import ProgressLine


@dataclass
class Progress:
    elapsed_s: float
    sent: int
    succeeded: int
    failed: int = 0
    in_flight: int = 0
    intended: int = 1500


@dataclass
class Seen:
    p99: float | None = 2.5e8
    metric: str = "ttft"

    def percentile(self, p: float) -> float | None:
        return 2e7 if p == 0.5 else self.p99


class Terminal(io.StringIO):
    encoding = "ascii"  # type: ignore[assignment]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stream() -> Terminal:
    return Terminal()


def run(line: ProgressLine, clock: Clock, seconds: float, *, step: float = 0.05) -> None:
    """50 requests/s are sent, 40/s end."""
    begun, elapsed = clock.now, 0.0
    while elapsed <= seconds:
        clock.now = begun + elapsed
        sent = int(50 * elapsed)
        line.update(Progress(elapsed, sent, int(40 * elapsed), 0, int(10 * elapsed)), 30.0, latency=Seen())
        elapsed += step


def test_off_a_terminal_a_plain_line_comes_every_five_seconds(stream: Terminal, clock: Clock) -> None:
    run(ProgressLine(stream, is_tty=False, clock=clock), clock, 20.2)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 5
    assert lines[0] == "0/30 s, sent 0 of 1,500, in flight 0, ttft p50 20ms p99 250ms"
    assert (
        lines[2] == "10/30 s, sent 502 of 1,500, now 50/s, done 40/s, in flight 100, ttft p50 20ms p99 250ms"
    )
    assert "\r" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_on_a_terminal_one_line_is_redrawn_and_erased(stream: Terminal, clock: Clock) -> None:
    line = ProgressLine(stream, width=104, is_tty=True, clock=clock)
    run(line, clock, 20.0, step=0.0625)
    drawn = stream.getvalue().split("\r\x1b[K")[1:]
    assert 100 < len(drawn) <= 201, "at most ten a second"
    assert (
        drawn[-1]
        == "20/30 s, sent 1,000 of 1,500, now 50/s, done 40/s, in flight 200, ttft p50 20ms p99 250ms"
    )
    assert "\n" not in stream.getvalue()
    assert max(map(len, drawn)) <= 103
    line.close()
    assert stream.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (
            122,
            "poisson on vllm [########........] 15/30 s, sent 1,400 of 1,500, in flight 75, failed 25, "
            "ttft p50 20ms p99 250ms",
        ),
        (
            110,
            "poisson on vllm 15/30 s, sent 1,400 of 1,500, in flight 75, failed 25, ttft p50 20ms p99 250ms",
        ),
        (91, "poisson o.. 15/30 s, sent 1,400 of 1,500, in flight 75, failed 25, ttft p50 20ms p99 250ms"),
        (80, "15/30 s, sent 1,400 of 1,500, in flight 75, failed 25, ttft p50 20ms p99 250ms"),
        (61, "15/30 s, sent 1,400, in flight 75, failed 25, ttft p99 250ms"),
        (51, "15/30 s, sent 1,400, failed 25, ttft p99 250ms"),
        (40, "15/30 s, sent 1,400, failed 25, ttft .."),
    ],
)
def test_on_a_narrow_terminal_the_figures_come_first(
    stream: Terminal, clock: Clock, width: int, expected: str
) -> None:
    line = ProgressLine(stream, width=width, is_tty=True, clock=clock)
    line.update(Progress(15.0, 1400, 1300, 25, 75), 30.0, label="poisson on vllm", latency=Seen())
    assert stream.getvalue() == f"\r\x1b[K{expected}"


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (
            120,
            "poisson on vllm 15/30 s, sent 750 of 1,500, now 50/s, done 40/s, in flight 150, "
            "ttft p50 20ms p99 250ms",
        ),
        (102, "poisson on vllm 15/30 s, sent 750 of 1,500, now 50/s, in flight 150, ttft p50 20ms p99 250ms"),
        (80, "poisson on.. 15/30 s, sent 750 of 1,500, in flight 150, ttft p50 20ms p99 250ms"),
    ],
)
def test_rates_go_before_the_tail_of_a_latency_does(
    stream: Terminal, clock: Clock, width: int, expected: str
) -> None:
    line = ProgressLine(stream, width=width, is_tty=True, clock=clock)
    for elapsed in (14.0, 15.0):
        clock.now += 1
        sent, ended = int(50 * elapsed), int(40 * elapsed)
        progress = Progress(elapsed, sent, ended, 0, sent - ended)
        line.update(progress, 30.0, label="poisson on vllm", latency=Seen())
    assert stream.getvalue().split("\r\x1b[K")[-1] == expected


def test_failures_and_drain_are_said(stream: Terminal, clock: Clock) -> None:
    line = ProgressLine(stream, is_tty=False, clock=clock)
    line.update(Progress(31.0, 1400, 1300, 25, 75), 30.0, label="test_bursty")
    assert (
        stream.getvalue() == "test_bursty 30/30 s, sent 1,400 of 1,500, in flight 75, failed 25, draining\n"
    )


def test_the_start_of_a_server_shows_at_the_same_pace(stream: Terminal, clock: Clock) -> None:
    line = ProgressLine(stream, is_tty=False, clock=clock)
    for _ in range(60):
        line.say("starting vllm: loading\x1b[2J weights µ")
        clock.now += 0.2
    assert stream.getvalue().splitlines() == ["starting vllm: loading?[2J weights u"] * 3


def test_a_percentile_that_failures_reach_and_none_yet(stream: Terminal, clock: Clock) -> None:
    line = ProgressLine(stream, is_tty=False, clock=clock)
    line.update(Progress(3.0, 140, 130), 30.0, latency=Seen(float("inf"), "e2e"))
    clock.now += 10
    line.update(Progress(3.0, 140, 130), 30.0, latency=Seen(None))
    assert [text.rpartition("in flight 0")[2] for text in stream.getvalue().splitlines()] == [
        ", e2e p50 20ms p99 failed",
        ", ttft p50 20ms",
    ]


def test_a_closed_loop_has_no_whole(stream: Terminal, clock: Clock) -> None:
    ProgressLine(stream, is_tty=False, clock=clock).update(Progress(3.0, 140, 130, 5, 5, intended=135), 30.0)
    assert stream.getvalue() == "3/30 s, sent 140, in flight 5, failed 5\n"


def test_a_second_load_starts_afresh(stream: Terminal, clock: Clock) -> None:
    line = ProgressLine(stream, is_tty=False, clock=clock)
    run(line, clock, 6.0)
    line.close()
    line.update(Progress(0.5, 25, 20), 30.0)
    assert stream.getvalue().splitlines()[-1] == "0/30 s, sent 25 of 1,500, in flight 0"


def test_close_writes_nothing_when_nothing_was_drawn(stream: Terminal) -> None:
    ProgressLine(stream, is_tty=True).close()
    assert stream.getvalue() == ""
