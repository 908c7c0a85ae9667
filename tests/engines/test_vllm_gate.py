"""The main job on a real engine: pytest starts vLLM on the CPU, offers a shipped scenario and judges it.

One server life, two runs: the second judges the first one's record by a limit below the truth.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engines

ROOT = Path(__file__).parents[2]

#: The guards leave room: two cores hold the engine, its HTTP server, the load generator and this test.
POLICY = """\
policy: {name}
objectives:
  - ttft p50 <= {limit}
  - tpot p50 <= 200ms
  - error_rate <= 2%
  - server_memory peak <= 20GiB
guards:
  send_lag: 2s
  loop_lag: 2s
  loadgen_cpu: 100%
"""


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    for name, limit in (("kept", "5s"), ("broken", "1ms")):
        (folder / f"{name}.yaml").write_text(POLICY.format(name=name, limit=limit))
    return folder


@pytest.fixture(scope="module")
def offered(vllm_python: str, tiny_model: Path, policies: Path) -> subprocess.CompletedProcess[str]:
    flags = ["--load-format=dummy", "--dtype=bfloat16", "--max-model-len=1024", "--enforce-eager"]
    command = [
        *(
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--backend=vllm",
            f"--model={tiny_model}",
        ),
        *(f"--backend-python={vllm_python}", *(f"--backend-arg={flag}" for flag in flags)),
        *("--backend-env=VLLM_CPU_KVCACHE_SPACE=1", "--backend-env=HF_HUB_OFFLINE=1"),
        *(
            "--load-seconds=15",
            f"--inferslo-dir={policies / 'runs'}",
            f"--slo-policy={policies / 'kept.yaml'}",
        ),
        str(ROOT / "scenarios" / "test_sustained.py"),
    ]
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_a_kept_promise_passes(offered: subprocess.CompletedProcess[str], policies: Path) -> None:
    print(offered.stdout)
    assert offered.returncode == 0, offered.stdout + offered.stderr
    assert "PASS: sustained on vllm" in offered.stdout
    record = json.loads((policies / "runs" / "latest" / "run.json").read_text())
    assert record["backend"]["simulated"] is False
    assert record["counts"]["succeeded"] == record["counts"]["issued"] > 400
    assert (policies / "runs" / "latest" / "server.log").stat().st_size > 1000


def test_the_same_run_fails_a_limit_below_the_truth(
    offered: subprocess.CompletedProcess[str], policies: Path
) -> None:
    command = [sys.executable, "-m", "pytest_inferslo.cli", "judge", str(policies / "runs" / "latest")]
    judged = subprocess.run(
        [*command, "--slo-policy", str(policies / "broken.yaml")], capture_output=True, text=True, check=False
    )
    print(judged.stdout)
    assert judged.returncode == 1, judged.stdout + judged.stderr
    assert "FAIL: sustained on vllm" in judged.stdout
