"""The command `inferslo` as a shell sees it."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "arguments",
    [("policy", "schema"), ("policy", "check", "p.yaml")],
    ids=["more than a pipe takes at once", "little"],
)
def test_a_reader_that_leaves_ends_it_quietly(tmp_path, arguments):
    """As `inferslo ... | head` does."""
    (tmp_path / "p.yaml").write_text("policy: p\nobjectives: [e2e p50 <= 1s]\n")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest_inferslo.cli", *arguments],
            cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, timeout=60,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")
