"""The null server answers what it was asked to, and its truth is what a client can measure."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replies import read

from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.servers.null_answers import stream_parts, whole_answer


@contextmanager
def null_server(*options: str) -> Iterator[str]:
    command = [sys.executable, "-m", "pytest_inferslo.servers.null", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        server.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("chunks", [1, 16])
def test_its_answers_are_complete(chunks: int) -> None:
    streamed = read(b"".join(stream_parts(chunks)))
    assert (streamed.outcome, streamed.chunks, streamed.output_tokens) == (Outcome.SUCCESS, chunks, chunks)
    assert read(whole_answer(chunks), streaming=False).output_tokens == chunks


def test_streams_have_ids_of_their_own() -> None:
    streams = [b"".join(stream_parts(2, number)) for number in range(3)]
    assert len(set(streams)) == 3
    assert len({len(stream) for stream in streams}) == 1


def test_it_speaks_tls(load: Any, certificate: Path) -> None:
    with null_server("--chunks", "2", "--certificate", str(certificate)) as url:
        secure = url.replace("http://127.0.0.1", "https://localhost")
        assert load(Endpoint(secure, "m", ca_file=str(certificate))).outcomes == {"SUCCESS": 20}
        assert load(Endpoint(url, "m")).outcomes.keys() <= {"TRUNCATED", "RESET", "MALFORMED_HTTP"}


def test_streams_with_gaps_and_their_truth(load: Any, tmp_path: Path) -> None:
    truth = tmp_path / "truth"
    with null_server("--chunks", "4", "--first-ms", "30", "--gap-ms", "10", "--truth", str(truth)) as url:
        rows = load(url).samples
    assert (rows["outcome"] == 0).all()
    assert (rows["chunks"] == 4).all()
    assert np.median(rows["last"] - rows["first"]) == pytest.approx(30e6, rel=0.3)
    pairs = np.fromfile(truth, np.int64).reshape(-1, 2)
    assert len(pairs) == len(rows)
    spent = np.sort(pairs[:, 1] - pairs[:, 0])
    measured = np.sort(rows["first"] - rows["sent"])
    assert (spent >= 29e6).all()
    assert np.median(measured - spent) == pytest.approx(0, abs=3e6)


def test_whole_answers_with_a_delay(load: Any) -> None:
    with null_server("--first-ms", "20") as url:
        rows = load(url, streaming=False).samples
    assert (rows["outcome"] == 0).all()
    assert ((rows["first"] - rows["sent"]) >= 19e6).all()


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/health", 200, ""),
        ("/metrics", 200, ""),
        ("/v1/models", 200, '"object":"list"'),
        ("/v1/models/", 200, '"id":"null"'),
        ("/tokenizer", 404, ""),
    ],
)
def test_what_tools_look_at_before_a_load(path: str, status: int, body: str) -> None:
    with null_server() as url:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
        try:
            for _ in range(2):  # on one connection: it is kept
                connection.request("GET", path)
                response = connection.getresponse()
                assert response.status == status
                assert body in response.read().decode()
        finally:
            connection.close()
