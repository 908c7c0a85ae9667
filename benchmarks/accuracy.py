"""Measured latencies against the server's own log, at 50 to 5,000 requests/s.

    python benchmarks/accuracy.py [--rates 50 500 2000 5000] [--shapes constant lognormal bimodal]

A paced server draws the time to the first token and between tokens from a seed and logs, per request, when it
arrived and when its tokens left. The load generator offers Poisson arrivals and measures. Printed per run: the
percentile by the server's log, as measured, and their difference; `!` marks more than 1 % or 0.3 ms,
whichever is larger. TTFT and e2e start at the intended start, which is the schedule's; the n-th request that
was sent is the n-th that arrived. Also the largest difference of one single request's service TTFT.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.arrivals import poisson
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.histogram import ceiling_rank
from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.samples import Rows, SampleBatch
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.core.summary import Summary
from pytest_inferslo.loadgen.offer import LoadGenerator, LoadOrder
from pytest_inferslo.storage.samples import read_batches

MS = 1_000_000
SHAPES = {
    "constant": ("20ms", "4ms"),
    "lognormal": ("{lognormal: {median: 20ms, sigma: 0.5}}", "{lognormal: {median: 4ms, sigma: 0.4}}"),
    "bimodal": (
        "{bimodal: {low: 12ms, high: 90ms, share: 3%}}",
        "{bimodal: {low: 3ms, high: 12ms, share: 5%}}",
    ),
}
PERCENTILES = (0.5, 0.99, 0.999)
Ints = npt.NDArray[np.int64]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", type=int, nargs="+", default=[50, 500, 2000, 5000])
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--stamps", choices=("kernel", "clock"), default="kernel")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    print(f"load average {os.getloadavg()[0]:.1f} on {len(cores)} cores; {options.stamps} stamps")
    columns = "".join(f"{f'p{100 * p:g}: true':>12}{'seen':>10}{'diff':>8} " for p in PERCENTILES)
    print(f"{'shape':10}{'rate/s':>7}{'requests':>9}  {'metric, ms':13}{columns}")
    off = 0
    with tempfile.TemporaryDirectory() as scratch, LoadGenerator(Path(scratch) / "loadgen") as generator:
        for shape in options.shapes:
            for rate in options.rates:
                off += measure(generator, Path(scratch), shape, rate, options)
    print(f"{off} percentiles off by more than 1 % or 0.3 ms")
    return 1 if off else 0


def measure(generator: LoadGenerator, scratch: Path, shape: str, rate: int, options: Any) -> int:
    first, every = SHAPES[shape]
    name = f"{shape}-{rate}"
    script, truth_file, run = scratch / f"{name}.yaml", scratch / f"{name}.truth", scratch / name
    step = f"{{answer: {{tokens: {options.tokens}, first: {first}, every: {every}}}}}"
    script.write_text(f"seed: {rate}\nanswers:\n  - steps: [{step}]\n")
    seconds = max(options.seconds, 1_000 / rate)
    scenario = Scenario(
        arrivals=poisson(f"{rate}/s"),
        prompts=synthetic(input_tokens=16),
        duration=seconds,
        warmup="1s",
        drain="2s",
    )
    command = [sys.executable, "-m", "pytest_inferslo.servers.paced", str(script), "--truth", str(truth_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        endpoint = Endpoint(url=url, model="paced").to_dict()
        order = LoadOrder(scenario.to_dict(), [endpoint], [], rate, str(run), stamps=options.stamps)
        result = generator.offer(order)
        server.send_signal(signal.SIGTERM)
        server.wait(10)
    samples = SampleBatch.concatenate(read_batches(run))
    start, end = scenario.window_ns
    fold = Fold({"window": {"start": start, "end": end}})
    fold.add(samples)
    truth = np.fromfile(truth_file, np.int64).reshape(-1, 4)
    truth = truth[np.argsort(truth[:, 0], kind="stable")]
    truth[:, :3] -= result.epoch_monotonic_ns
    return compared(shape, rate, samples.samples, truth, fold.result(), (start, end))


def compared(
    shape: str, rate: int, samples: Rows, truth: Ints, summary: Summary, window: tuple[int, int]
) -> int:
    sent = samples[samples["sent"] >= 0]
    sent = sent[np.argsort(sent["sent"], kind="stable")]
    if len(sent) != len(truth):
        print(f"{shape:10}{rate:>7}: {len(sent)} requests were sent, {len(truth)} arrived")
        return 1
    inside = (sent["intended"] >= window[0]) & (sent["intended"] < window[1])
    received, first, last, tokens = truth[inside].T
    mine = sent[inside]
    truths = {
        "ttft": first - mine["intended"],
        "service_ttft": first - received,
        "tpot": (last - first) / (tokens - 1),
        "e2e": last - mine["intended"],
    }
    off = 0
    for metric, values in truths.items():
        cells = ""
        for p in PERCENTILES:
            true = at(values, p)
            seen = (summary.distribution(metric).percentile(p) or 0.0) / MS
            wrong = abs(seen - true) > max(0.01 * true, 0.3)
            off += wrong
            cells += f"{true:>12.3f}{seen:>10.3f}{seen - true:>+8.3f}{'!' if wrong else ' '}"
        print(f"{shape:10}{rate:>7}{len(mine):>9}  {metric:13}{cells}")
    single = np.abs((mine["first"] - mine["sent"]) - (first - received))
    lag = mine["sent"] - mine["intended"]
    print(
        f"{'':28}one request's service_ttft is off by {at(single, 0.999):.3f} ms at p99.9, "
        f"send lag p99 {at(lag, 0.99):.3f} ms",
        flush=True,
    )
    return off


def at(values: Ints, p: float) -> float:
    """The value at the ceiling rank, in ms."""
    return float(np.sort(values)[ceiling_rank(p, len(values)) - 1]) / MS


if __name__ == "__main__":
    raise SystemExit(main())
