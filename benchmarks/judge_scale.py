"""Judging ten million samples by twenty objectives: time and memory.

    python benchmarks/judge_scale.py [--samples 10000000] [--keep DIR]

Writes a run of synthetic samples (10,000 requests/s, 1 % failures, chunk gaps) the way the load generator does,
then folds and judges it in a process of its own: wall time, CPU time and the peak of that process's memory.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.histogram import fold_gaps
from pytest_inferslo.core.judge import judge
from pytest_inferslo.core.questions import questions
from pytest_inferslo.core.samples import ABSENT, SAMPLE_DTYPE, Outcome, SampleBatch
from pytest_inferslo.policies import load_policy
from pytest_inferslo.storage.samples import SampleWriter, read_batches

RATE = 10_000
PER_BATCH = 2_500  # four batches a second, as the workers send them
METRICS = ("ttft", "e2e", "tpot", "icl", "max_stall", "service_ttft", "ttfo", "normalized")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--keep", type=Path, help="write the samples here, or use those that are there")
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge is not None:
        return judge_run(options.judge, options.samples)
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.keep or Path(scratch)
        if not (directory / "samples.arrow").exists():
            write_run(directory, options.samples)
        command = [sys.executable, __file__, "--samples", str(options.samples), "--judge", str(directory)]
        return subprocess.run(command, check=False).returncode


def write_run(directory: Path, samples: int) -> None:
    random = np.random.default_rng(1)
    with SampleWriter(directory) as writer:
        for first in range(0, samples, PER_BATCH):
            writer.append(batch(random, first, min(PER_BATCH, samples - first)))


def batch(random: np.random.Generator, first: int, n: int) -> SampleBatch:
    rows = np.zeros(n, SAMPLE_DTYPE)
    rows["index"] = np.arange(first, first + n)
    rows["intended"] = rows["index"] * (1_000_000_000 // RATE)
    rows["sent"] = rows["intended"] + random.integers(20_000, 90_000, n)
    rows["first"] = rows["first_content"] = rows["sent"] + random.lognormal(17.0, 0.4, n).astype(np.int64)
    tokens = random.integers(2, 128, n)
    rows["last"] = rows["end"] = rows["first"] + tokens * random.integers(4_000_000, 6_000_000, n)
    rows["max_stall"] = 9_000_000
    rows["prompt_hash"] = random.integers(1 << 62, size=n)
    rows["prompt_tokens"], rows["output_tokens"], rows["chunks"] = 128, tokens, tokens
    rows["reasoning_tokens"] = rows["adapter"] = ABSENT
    rows["status"] = 200
    failed = random.random(n) < 0.01
    rows["outcome"][failed] = Outcome.HTTP_SERVER_ERROR
    for name in ("first", "first_content", "last", "max_stall", "output_tokens", "prompt_tokens"):
        rows[name][failed] = ABSENT
    answered = rows[~failed]
    gaps = random.lognormal(15.4, 0.2, 16 * len(answered)).astype(np.int64)
    return SampleBatch(rows, fold_gaps(answered, np.full(len(answered), 16), gaps))


def judge_run(directory: Path, samples: int) -> int:
    lines = [f"  - {metric} {statistic}" for metric in METRICS for statistic in ("p99 <= 30s", "p50 <= 20s")]
    more = ["error_rate <= 2%", "goodput >= 90%", "throughput >= 9000/s", "output_tokens_per_second >= 1/s"]
    policy_file = directory / "policy.yaml"
    policy_file.write_text(
        "policy: scale\nobjectives:\n" + "\n".join(lines + [f"  - {line}" for line in more]) + "\n"
    )
    end = samples * (1_000_000_000 // RATE)
    record = {
        "window": {"start": 0, "end": end},
        "backend": {"endpoints": [{"name": "default"}]},
        "counts": {"intended": samples},
    }
    policy = load_policy(policy_file)
    begin, cpu = time.perf_counter(), time.process_time()
    fold = Fold(record, questions(policy, record), policy.goals())
    for part in read_batches(directory):
        fold.add(part)
    summary = fold.result()
    folded = time.perf_counter()
    verdict = judge(policy, summary, record)
    seconds, used = time.perf_counter() - begin, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{samples:,} samples, {len(verdict.findings)} objectives: {seconds:.1f} s ({folded - begin:.1f} s to read and "
        f"fold), {used:.1f} s of CPU, peak {peak:.0f} MiB; {verdict.status.value}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
