"""The paced server: good answers at the times that it logs."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.errors import ScriptError
from pytest_inferslo.loadgen.dialects import DIALECTS
from pytest_inferslo.loadgen.reply import Reply
from pytest_inferslo.servers.paced import paced_answer
from pytest_inferslo.servers.scripted_cli import load_script

MS = 1_000_000


def test_answers_and_their_truth(tmp_path: Path) -> None:
    script, truth = tmp_path / "s.yaml", tmp_path / "truth"
    script.write_text(
        "answers:\n  - steps: [{answer: {tokens: 3, first: 20ms, every: {uniform: {low: 5ms, high: 9ms}}}}]\n"
    )
    command = [sys.executable, "-m", "pytest_inferslo.servers.paced", str(script), "--truth", str(truth)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = ("127.0.0.1", int(server.stdout.readline()))
            with socket.create_connection(address, timeout=5) as connection:
                begin = time.monotonic_ns()
                for _ in range(4):
                    reply = Reply(DIALECTS["chat"], True)
                    connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-")
                    connection.sendall(b'Length: 15\r\n\r\n{"stream":true}')
                    while not reply.feed(connection.recv(65536), time.monotonic_ns()):
                        pass
                    assert reply.outcome is Outcome.SUCCESS
                    assert (reply.output_tokens, reply.chunks, reply.keep_alive) == (3, 3, True)
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(10) == 0
    rows = np.fromfile(truth, np.int64).reshape(-1, 4)
    assert len(rows) == 4
    received, first, last, tokens = rows.T
    assert begin - MS <= received[0]
    assert ((first - received) >= 20 * MS).all()
    assert ((last - first) >= 10 * MS).all()
    assert (received[1:] >= last[:-1]).all()
    assert tokens.tolist() == [3] * 4


@pytest.mark.parametrize("steps", ["[hang]", "[answer]", "[{answer: {tokens: 2}}, close]"])
def test_other_scripts_are_refused(tmp_path: Path, steps: str) -> None:
    script = tmp_path / "s.yaml"
    script.write_text(f"answers:\n  - steps: {steps}\n")
    with pytest.raises(ScriptError, match=r"s\.yaml:2"):
        paced_answer(load_script(script), str(script))
