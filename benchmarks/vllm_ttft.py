"""Our time to first token beside vLLM's own, for the same requests.

    python benchmarks/vllm_ttft.py --model DIR [--python VLLM_PYTHON] [--rounds 3] [-- vllm flags]

Starts vLLM once, then offers the same load `--rounds` times. Before and after each it reads the sum and the count of
vLLM's histogram `vllm:time_to_first_token_seconds`, so that its mean is over exactly our requests, and prints it
beside the mean of our samples' service_ttft (from the send). The two clocks start at different places: ours includes
the way through the kernel and the HTTP server to vLLM's own start of the clock.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import requests

from pytest_inferslo import Scenario, constant, synthetic
from pytest_inferslo.backends import BackendOptions, Fleet, resolve
from pytest_inferslo.core.fold import Fold
from pytest_inferslo.loadgen.offer import LoadGenerator
from pytest_inferslo.record import Order
from pytest_inferslo.run import measure

METRIC = "vllm:time_to_first_token_seconds"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--python", default=sys.executable, help="interpreter that has vLLM")
    parser.add_argument("--rate", default="20/s")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--input-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("flags", nargs="*", help="vLLM's own, after --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ratios = compare(arguments, Path(folder))
    median = statistics.median(ratios)
    print(
        f"ours / vLLM's: median {median:.3f}, from {min(ratios):.3f} to {max(ratios):.3f} over {len(ratios)} rounds"
    )
    return 0 if abs(median - 1) <= 0.1 else 1


def compare(arguments: argparse.Namespace, folder: Path) -> list[float]:
    options = BackendOptions(
        model=arguments.model,
        args=tuple(arguments.flags),
        python=arguments.python,
        env={"HF_HUB_OFFLINE": "1"},
        log_path=folder / "server.log",
    )
    ratios = []
    with Fleet() as fleet, LoadGenerator(folder / "loadgen") as generator:
        server = fleet.server(resolve("vllm", options), options)
        assert server.metrics_url is not None
        print(f"vLLM {server.version}, {arguments.rate}, {arguments.seconds:g} s a round, streamed")
        for number in range(arguments.rounds):
            scenario = Scenario(
                arrivals=constant(arguments.rate),
                duration=arguments.seconds,
                prompts=synthetic(input_tokens=arguments.input_tokens, output_tokens=8),
                seed=number,
            )
            before = told(server.metrics_url)
            run = measure(Order(scenario, "ttft", ("", 0), (), folder), server, generator)
            after = told(server.metrics_url)
            fold = Fold(run.read_record())
            for batch in run.batches():
                fold.add(batch)
            ours = fold.result().distribution("service_ttft")
            count = after[1] - before[1]
            theirs = (after[0] - before[0]) / count * 1e3
            mean = ours.mean / 1e6
            ratios.append(mean / theirs)
            print(
                f"round {number}: ours {mean:.3f} ms over {ours.count} answers ({ours.failures} failures), "
                f"vLLM's {theirs:.3f} ms over {count:.0f}: ratio {mean / theirs:.3f}"
            )
    return ratios


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
