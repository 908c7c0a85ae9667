"""While nothing reports, the line says what is waited for and how long that takes."""

import io
import math
import time

import numpy as np
import pytest

from pytest_inferslo.backends import StartProgress
from pytest_inferslo.core.arrivals import constant
from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.samples import ABSENT, GAP_DTYPE, SAMPLE_DTYPE, Outcome, SampleBatch
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.loadgen.offer import Progress
from pytest_inferslo.reports.progress import ProgressLine
from pytest_inferslo.running import RunningLatency
from pytest_inferslo.shown import Shown
from pytest_inferslo.storage.samples import SampleWriter


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
    shown.starting(StartProgress(0.0, "waiting for its health page", ""))
    time.sleep(0.15)
    shown.starting(StartProgress(2.4, "another load test runs on this host", "waiting for pid 7"))
    drawn = stream.getvalue().split("\r\x1b[K")
    assert drawn[1:] == [
        "steady on sim: waiting for its health page",
        "steady on sim: another load test runs on this host (2 s): waiting for pid 7",
    ]


def test_where_nothing_is_shown_nothing_is_written():
    shown = Shown(None, "steady on sim", 10.0, tick_s=0.01)
    with shown.waiting("waiting"):
        shown.starting(StartProgress(0.0, "health", ""))
        shown.progress(Progress(0.5, 100, 5, 5, 0, 0))


def test_the_latency_so_far_is_of_the_window_and_counts_failures(tmp_path):
    scenario = Scenario(
        arrivals=constant("100/s"),
        duration="10s",
        warmup="1s",
        prompts=synthetic(input_tokens=9, output_tokens=1),
    )
    rows = np.full(100, ABSENT, SAMPLE_DTYPE)
    rows["intended"] = np.arange(100) * 20_000_000  # half of them in the warm-up
    rows["outcome"] = Outcome.SUCCESS
    rows["first"] = rows["intended"] + np.where(np.arange(100) < 50, 5_000_000_000, 7_000_000)
    rows["outcome"][98:] = Outcome.RESET
    running = RunningLatency(scenario, "ttft")
    assert running.percentile(0.5) is None
    with SampleWriter(tmp_path) as writer:
        running.follow(tmp_path)
        writer.append(SampleBatch(rows, np.empty(0, GAP_DTYPE)))
        deadline = time.monotonic() + 20
        while running.percentile(0.5) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert running.percentile(0.5) == pytest.approx(7e6, rel=0.002)
        assert running.percentile(0.99) == math.inf
        running.close()
