"""How much one host's generator offers with several workers, against several null servers on the same host.

    python benchmarks/wide.py [--workers 4] [--servers 4] [--rates 10000,50000,100000] [--seconds 10] [--chunks 1]

Prints for each rate what was delivered, the p99 of the send lag, and the workers' CPU. Servers and workers share the
host's cores, so that a figure says what this host does when both live on it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pytest_inferslo import Scenario, poisson, synthetic
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.loadgen.offer import LoadGenerator, LoadOrder
from pytest_inferslo.storage.samples import read_batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 2 - 1))
    parser.add_argument("--servers", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--rates", default="10000,20000,50000,100000")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--chunks", type=int, default=1)
    arguments = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} CPUs, {arguments.workers} workers, {arguments.servers} null servers"
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        servers(arguments.servers, arguments.chunks) as urls,
        LoadGenerator(Path(folder) / "logs", workers=arguments.workers) as generator,
    ):
        for rate in map(float, arguments.rates.split(",")):
            offer(generator, Path(folder) / f"{rate:.0f}", urls, rate, arguments.seconds)


@contextlib.contextmanager
def servers(count: int, chunks: int) -> Iterator[list[str]]:
    command = [sys.executable, "-m", "pytest_inferslo.servers.null", "--chunks", str(chunks)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        yield [
            f"http://127.0.0.1:{process.stdout.readline().strip()}" for process in processes if process.stdout
        ]
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def offer(generator: LoadGenerator, directory: Path, urls: list[str], rate: float, seconds: float) -> None:
    scenario = Scenario(
        arrivals=poisson(rate), prompts=synthetic(64, 1), warmup=2, duration=seconds, drain=5,
        max_in_flight=100_000, max_connections=20_000,
    )  # fmt: skip
    endpoints = [Endpoint(url, "m", name=f"null-{number}").to_dict() for number, url in enumerate(urls)]
    result = generator.offer(LoadOrder(scenario.to_dict(), endpoints, [], 1, str(directory)))
    rows = np.concatenate([batch.samples for batch in read_batches(directory)])
    window = rows[rows["intended"] >= scenario.window_ns[0]]
    sent = window[window["sent"] >= 0]
    lag_ms = np.percentile(sent["sent"] - sent["intended"], 99) / 1e6
    shares = [worker["cpu_share"] for worker in result.workers]
    print(
        f"{rate:>9,.0f}/s asked  {len(sent) / seconds:>9,.0f}/s sent  {(window['outcome'] == 0).mean():.4%} succeeded  "
        f"send lag p99 {lag_ms:.3f} ms  worker CPU {max(shares):.0%} at most, {sum(shares):.2f} cores in all",
        flush=True,
    )


if __name__ == "__main__":
    main()
