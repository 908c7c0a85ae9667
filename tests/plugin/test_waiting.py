"""While nothing reports, the line says what is waited for and how long that takes."""

import io
import time

import pytest

from pytest_inferslo.backends import StartProgress
from pytest_inferslo.loadgen.offer import Progress
from pytest_inferslo.reports.progress import ProgressLine
from pytest_inferslo.shown import Shown


@pytest.fixture
def stream():
    return io.StringIO()


@pytest.fixture
def shown(stream):
    return Shown(ProgressLine(stream, width=120, is_tty=True), "steady on sim", 10.0, tick_s=0.02)


def eventually(stream, text):
    deadline = time.monotonic() + 20
    while text not in stream.getvalue() and time.monotonic() < deadline:
        time.sleep(0.02)
    return text in stream.getvalue()


def test_waiting_is_told_with_its_length_until_the_load_reports(shown, stream):
    with shown.waiting("waiting for 2 workers"):
        assert eventually(stream, "steady on sim: waiting for 2 workers (1 s)")
        shown.progress(Progress(0.5, 100, 5, 5, 0, 0))
        told = stream.getvalue().count("waiting")
        time.sleep(0.3)
        assert stream.getvalue().count("waiting") == told


def test_waiting_ends_with_its_block(shown, stream):
    with pytest.raises(ZeroDivisionError), shown.waiting("waiting for nothing"):
        1 / 0  # noqa: B018
    told = stream.getvalue()
    time.sleep(0.3)
    assert stream.getvalue() == told


def test_a_step_tells_its_time_once_there_is_some(shown, stream):
    shown.starting(StartProgress(0.0, "health", "nothing yet"))
    time.sleep(0.15)
    shown.starting(StartProgress(2.4, "another load test runs on this host", "waiting for pid 7"))
    drawn = stream.getvalue().split("\r\x1b[K")
    assert drawn[1:] == [
        "steady on sim: health: nothing yet",
        "steady on sim: another load test runs on this host (2 s): waiting for pid 7",
    ]


def test_where_nothing_is_shown_nothing_is_written():
    shown = Shown(None, "steady on sim", 10.0, tick_s=0.01)
    with shown.waiting("waiting"):
        shown.starting(StartProgress(0.0, "health", ""))
        shown.progress(Progress(0.5, 100, 5, 5, 0, 0))
