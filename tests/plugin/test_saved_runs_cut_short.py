"""What `inferslo judge` says of a run that was ended before its load."""

import json
from pathlib import Path

from pytest_inferslo.cli import main

RECORD = json.loads((Path(__file__).parents[1] / "storage/data/run.json").read_text())
POLICY = "policy: p\nobjectives: [ttft p99 <= 1s]\n"


def judged(directory, record, capsys):
    (directory / "run.json").write_text(json.dumps(record))
    (directory / "p.yaml").write_text(POLICY)
    code = main(["judge", str(directory), "--slo-policy", str(directory / "p.yaml")])
    return code, capsys.readouterr().err


def test_a_run_without_samples_says_why_it_was_ended(tmp_path, capsys):
    cut = {
        "epoch": {"unix_ns": 0, "monotonic_ns": 0},
        "errors": ["before the load began: interrupted (Ctrl-C)"],
    }
    code, told = judged(tmp_path, RECORD | cut, capsys)
    assert code == 9
    assert "samples.arrow is missing" in told
    assert "ended before its time: before the load began: interrupted (Ctrl-C)" in told
    code, told = judged(tmp_path, RECORD | {"errors": []}, capsys)
    assert code == 9
    assert "ended before its time" not in told
