"""The surface of `trtllm-serve` (TensorRT-LLM 0.20 to 1.3): flags, pages and processes, without an engine.

Written from tensorrt_llm/commands/serve.py and tensorrt_llm/serve/openai_server.py: a local folder is
listed by its last part; `/metrics` is JSON; Prometheus text is mounted with `return_perf_metrics` alone; `/health` is
503 once the executor is gone. Ranks run below a daemon that leaves the session, as OpenMPI's does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from answers import PROMETHEUS, FakeServer, completion_pages, listing

VERSION = "1.2.0"
_RANK = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
_DAEMON = f"""
import os, subprocess, sys, time
os.setsid()
ranks = [subprocess.Popen([sys.executable, "-c", {_RANK!r}, "rank"]) for _ in range(int(sys.argv[1]))]
print(*[rank.pid for rank in ranks], flush=True)
for rank in ranks:
    rank.wait()
"""


def parse(argv: list[str]) -> argparse.Namespace:
    """`trtllm-serve [serve] MODEL [OPTIONS]`, where unknown options are errors as they are with click."""
    parser = argparse.ArgumentParser(prog="trtllm-serve serve", allow_abbrev=False)
    parser.add_argument("model")
    for names in (
        ["--tokenizer"], ["--host"], ["--backend"], ["--log_level"], ["--max_beam_width"], ["--max_batch_size"],
        ["--max_num_tokens"], ["--max_seq_len"], ["--pipeline_parallel_size", "--pp_size"],
        ["--context_parallel_size", "--cp_size"], ["--moe_expert_parallel_size", "--ep_size"],
        ["--moe_cluster_parallel_size", "--cluster_size"], ["--gpus_per_node"],
        ["--free_gpu_memory_fraction", "--kv_cache_free_gpu_memory_fraction"], ["--num_postprocess_workers"],
        ["--revision"], ["--config", "--extra_llm_api_options"], ["--reasoning_parser"], ["--tool_parser"],
        ["--metadata_server_config_file"], ["--server_role"], ["--chat_template"],
    ):  # fmt: skip
        parser.add_argument(*names)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--tensor_parallel_size", "--tp_size", type=int, default=1)
    for flag in (
        "--trust_remote_code",
        "--enable_chunked_prefill",
        "--fail_fast_on_attention_window_too_large",
    ):
        parser.add_argument(flag, action="store_true")
    return parser.parse_args(argv[1:] if argv[:1] == ["serve"] else argv)


def start_ranks(count: int) -> list[int]:
    """Their pids. The daemon's own parent ends at once, so it belongs to nobody but the supervisor."""
    launcher = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {_DAEMON!r}, '{count}'])"
    read_end, write_end = os.pipe()
    subprocess.run([sys.executable, "-c", launcher], stdout=write_end, check=True)
    os.close(write_end)
    with os.fdopen(read_end) as pids:
        return [int(pid) for pid in pids.readline().split()]


def main() -> None:
    arguments = parse(sys.argv[1:])
    options = Path(arguments.config).read_text() if arguments.config else ""
    model = Path(arguments.model).name if Path(arguments.model).is_dir() else arguments.model
    pages = completion_pages(model) | {
        "GET /health": lambda _: (200, ""),
        "GET /health_generate": lambda _: (200, "Generation health check OK"),
        "GET /version": lambda _: (200, {"version": VERSION}),
        "GET /v1/models": lambda _: (200, listing({"id": model, "owned_by": "tensorrt_llm"})),
        "GET /metrics": lambda _: (200, [{"gpuMemUsage": 1, "iter": 1}]),
        "GET /server_info": lambda _: (200, {}),
    }
    if "return_perf_metrics: true" in options:
        pages["GET /prometheus/metrics"] = lambda _: (200, PROMETHEUS)
    server = FakeServer(arguments.port, pages, arguments.host or "localhost")
    ranks = start_ranks(arguments.tensor_parallel_size)
    print(f"[TRT-LLM] [I] started ranks {ranks}", flush=True)

    def watch() -> None:
        while all(Path(f"/proc/{pid}").exists() for pid in ranks):
            time.sleep(0.05)
        unavailable = "LLM is unavailable. Please check the server logs for more details."
        pages["GET /health"] = lambda _: (503, unavailable)

    threading.Thread(target=watch, daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
