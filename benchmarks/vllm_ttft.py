"""Our time to first token beside vLLM's own, for the same requests.

    python benchmarks/vllm_ttft.py --model DIR [--python VLLM_PYTHON] [--rounds 3] [--beside] [-- vllm flags]

Starts vLLM once, then offers the same load `--rounds` times; with `--beside`, `vllm bench serve` offers a load of the
same size after each of ours. Before and after each it reads the sum and the count of vLLM's histogram
`vllm:time_to_first_token_seconds`, so that its mean is over exactly those requests, and prints it beside the mean that
was measured: of our samples' service_ttft (from the send), or as `vllm bench serve` says it. The two clocks start at
different places: a client's includes the way through the kernel and the HTTP server to vLLM's own start of the clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import requests

from pytest_inferslo import Scenario, constant, synthetic
from pytest_inferslo.backends import BackendOptions, Fleet, RunningServer, resolve
from pytest_inferslo.core.fold import Fold
from pytest_inferslo.loadgen.offer import LoadGenerator
from pytest_inferslo.record import Order
from pytest_inferslo.run import measure

METRIC = "vllm:time_to_first_token_seconds"
OUTPUT_TOKENS = 8
BENCH_SERVE = Path(__file__).parent / "peers" / "vllm_bench_serve.py"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--python", default=sys.executable, help="interpreter that has vLLM")
    parser.add_argument("--rate", type=float, default=20, help="requests a second")
    parser.add_argument("--beside", action="store_true", help="`vllm bench serve` too, in turn")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--input-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("flags", nargs="*", help="vLLM's own, after --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ratios = compare(arguments, Path(folder))
    for name, found in ratios.items():
        print(
            f"{name} / vLLM's own: median {statistics.median(found):.3f}, from {min(found):.3f} to {max(found):.3f}"
            f" over {len(found)} rounds"
        )
    return 0 if abs(statistics.median(ratios["ours"]) - 1) <= 0.1 else 1


def compare(arguments: argparse.Namespace, folder: Path) -> dict[str, list[float]]:
    options = BackendOptions(
        model=arguments.model,
        args=tuple(arguments.flags),
        python=arguments.python,
        env={"HF_HUB_OFFLINE": "1"},
        log_path=folder / "server.log",
    )
    with Fleet() as fleet, LoadGenerator(folder / "loadgen") as generator:
        server = fleet.server(resolve("vllm", options), options)
        assert server.metrics_url is not None
        print(f"vLLM {server.version}, {arguments.rate:g}/s, {arguments.seconds:g} s a round, streamed")
        measures: dict[str, Callable[[int], float]] = {
            "ours": lambda number: ours(arguments, folder, server, generator, number)
        }
        if arguments.beside:
            measures["vllm bench serve"] = lambda number: theirs(arguments, folder, server, number)
        ratios: dict[str, list[float]] = {name: [] for name in measures}
        for number in range(arguments.rounds):
            for name, measured in measures.items():
                before = told(server.metrics_url)
                mean = measured(number)
                after = told(server.metrics_url)
                count = after[1] - before[1]
                own = (after[0] - before[0]) / count * 1e3
                ratios[name].append(mean / own)
                print(
                    f"round {number}: {name} {mean:.3f} ms, vLLM's own {own:.3f} ms over {count:.0f} requests:"
                    f" ratio {mean / own:.3f}",
                    flush=True,
                )
    return ratios


def ours(
    arguments: argparse.Namespace, folder: Path, server: RunningServer, generator: LoadGenerator, number: int
) -> float:
    """Mean service_ttft, ms."""
    scenario = Scenario(
        arrivals=constant(arguments.rate),
        duration=arguments.seconds,
        prompts=synthetic(input_tokens=arguments.input_tokens, output_tokens=OUTPUT_TOKENS),
        seed=number,
    )
    run = measure(Order(scenario, "ttft", ("", 0), (), folder), server, generator)
    fold = Fold(run.read_record())
    for batch in run.batches():
        fold.add(batch)
    found = fold.result().distribution("service_ttft")
    if found.failures:
        print(f"   {found.failures} requests failed")
    return found.mean / 1e6


def theirs(arguments: argparse.Namespace, folder: Path, server: RunningServer, number: int) -> float:
    """Mean ttft of `vllm bench serve`, ms."""
    (endpoint,) = server.endpoints
    command = [
        arguments.python, str(BENCH_SERVE), "--backend", "openai-chat", "--base-url", endpoint.url,
        "--endpoint", "/v1/chat/completions", "--model", endpoint.model, "--tokenizer", arguments.model,
        "--dataset-name", "random", "--random-input-len", str(arguments.input_tokens),
        "--random-output-len", str(OUTPUT_TOKENS), "--num-prompts", str(round(arguments.rate * arguments.seconds)),
        "--request-rate", str(arguments.rate), "--burstiness", "inf", "--ready-check-timeout-sec", "0",
        "--seed", str(number), "--disable-tqdm", "--percentile-metrics", "ttft", "--save-result",
        "--result-dir", str(folder), "--result-filename", "bench.json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"vllm bench serve failed:\n{done.stderr[-2000:]}")
    return float(json.loads((folder / "bench.json").read_text())["mean_ttft_ms"])


def told(url: str) -> tuple[float, float]:
    """Sum (seconds) and count of vLLM's histogram, over all engines."""
    totals = {"sum": 0.0, "count": 0.0}
    for line in requests.get(url, timeout=10).text.splitlines():
        for part in totals:
            if line.startswith(f"{METRIC}_{part}"):
                totals[part] += float(line.rsplit(" ", 1)[1])
    return totals["sum"], totals["count"]


if __name__ == "__main__":
    raise SystemExit(main())
