"""How often the gate is wrong: simulated runs through the real fold and the real judge.

    python benchmarks/gate_accuracy.py [--runs 1000] [--rate 100] [--seconds 60] [--early-seconds 60 120 300]

Loads are made whose true p99 is known: independent requests, neighbours that are alike (an AR(1) in the
logarithm), and a queue with k servers fed at random (M/G/k), where slow requests come in clusters. Two more
are held out: the constants of the gate were chosen on the others. One is an AR(1) with a tail far heavier than an
exponential one, the other a server that is slow for seconds at a time (a Markov chain of two states). Each run
is judged against limits 2, 5, 10 and 20 % under and over the truth: a limit under the truth is a promise that
does not hold, so PASS is false there; one over the truth is kept, so FAIL is false there. What is left is
INCONCLUSIVE.

A second part stops runs as soon as a verdict is certain, with a limit at half and at twice the truth, and
counts what was saved of the planned load, and how often stopping was wrong at 10 % off the truth.

A run is made from its number alone, so that a long job can be cut into pieces (--loads, --first, --runs 0).
"""

from __future__ import annotations

import argparse
import heapq
import math
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, signal, special

from pytest_inferslo.core.early import decide
from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.grammar import parse_objective
from pytest_inferslo.core.judge import judge, questions
from pytest_inferslo.core.policy import Policy
from pytest_inferslo.core.samples import ABSENT, GAP_DTYPE, SAMPLE_DTYPE, SampleBatch
from pytest_inferslo.core.units import parse_share

SECOND = 1_000_000_000
OFF = (0.80, 0.90, 0.95, 0.98, 1.02, 1.05, 1.10, 1.20)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Load:
    """`make` gives arrival times (s) and latencies (s) of one run; `p99` is the truth in seconds."""

    name: str
    make: Callable[[np.random.Generator], tuple[Floats, Floats]]
    p99: float


def lognormal_load(name: str, rate: float, seconds: float, phi: float, sigma: float = 0.6) -> Load:
    """Latencies around 20 ms whose logarithm is an AR(1) from request to request; phi 0 is independence."""

    def make(rng: np.random.Generator) -> tuple[Floats, Floats]:
        arrivals = poisson_arrivals(rng, rate, seconds)
        noise = rng.standard_normal(len(arrivals)) * math.sqrt(1 - phi**2)
        noise[0] /= math.sqrt(1 - phi**2)
        return arrivals, 0.020 * np.exp(sigma * signal.lfilter([1.0], [1.0, -phi], noise))

    return Load(name, make, 0.020 * math.exp(sigma * float(special.ndtri(0.99))))


def queue_load(name: str, rate: float, seconds: float, servers: int, busy: float) -> Load:
    """M/G/k: Poisson arrivals at `servers` servers that are busy a share `busy` of the time, lognormal service."""
    mean = servers * busy / rate
    settle = 400 * mean  # long enough for the queue to forget that it began empty

    def make(rng: np.random.Generator, seconds: float = seconds) -> tuple[Floats, Floats]:
        arrivals = poisson_arrivals(rng, rate, seconds + settle)
        service = rng.lognormal(math.log(mean) - 0.125, 0.5, len(arrivals))
        latencies = np.array(list(served(arrivals, service, servers)))
        kept = arrivals >= settle
        return arrivals[kept] - settle, latencies[kept]

    truth = [np.quantile(make(np.random.default_rng(seed), 6_000.0)[1], 0.99) for seed in range(4)]
    return Load(name, make, float(np.mean(truth)))


def slow_phases_load(name: str, rate: float, seconds: float, slow: float, calm: float) -> Load:
    """Lognormal latencies around 20 ms that are 2.5 times as long in slow phases.

    Phases last `slow` and `calm` seconds in the mean, exponentially distributed.
    """
    sigma, factor, share = 0.4, 2.5, slow / (slow + calm)

    def make(rng: np.random.Generator) -> tuple[Floats, Floats]:
        arrivals = poisson_arrivals(rng, rate, seconds)
        phases = 10 + int(4 * seconds / min(slow, calm))
        begins_slow = rng.random() < share
        is_slow = (np.arange(phases) % 2 == 0) == begins_slow
        ends = np.cumsum(rng.exponential(np.where(is_slow, slow, calm)))
        level = np.where(is_slow[np.searchsorted(ends, arrivals)], factor, 1.0)
        return arrivals, 0.020 * level * rng.lognormal(0.0, sigma, len(arrivals))

    def over(limit: float) -> float:
        parts = special.ndtr(-np.log(limit / 0.020 / np.array([1.0, factor])) / sigma)
        return float(parts @ [1 - share, share])

    return Load(name, make, float(optimize.brentq(lambda limit: over(limit) - 0.01, 0.02, 1.0)))


def served(arrivals: Floats, service: Floats, servers: int) -> Any:
    free = [0.0] * servers
    for at, takes in zip(arrivals.tolist(), service.tolist(), strict=True):
        done = max(at, free[0]) + takes
        heapq.heapreplace(free, done)
        yield done - at


def poisson_arrivals(rng: np.random.Generator, rate: float, seconds: float) -> Floats:
    arrivals = np.cumsum(rng.exponential(1 / rate, int(rate * seconds * 1.2) + 100))
    return arrivals[arrivals < seconds]


def rows_of(arrivals: Floats, latencies: Floats) -> npt.NDArray[np.void]:
    rows = np.zeros(len(arrivals), SAMPLE_DTYPE)
    rows["index"] = np.arange(len(arrivals))
    rows["intended"] = rows["sent"] = (arrivals * SECOND).astype(np.int64)
    rows["first"] = rows["first_content"] = rows["intended"] + (latencies * SECOND).astype(np.int64)
    rows["last"] = rows["end"] = rows["first"]
    rows["prompt_hash"], rows["adapter"] = np.arange(len(arrivals)) + 1, ABSENT
    return rows


def record_of(seconds: float, requests: int, **definition: Any) -> dict[str, Any]:
    return {
        "scenario": {"name": "simulated", "definition": definition},
        "backend": {"name": "none", "kind": "none", "endpoints": []},
        "window": {"start": 0, "end": int(seconds * SECOND)},
        "counts": {"intended": requests},
    }


def policy_of(limits: list[float], confidence: float) -> Policy:
    promises = (parse_objective(f"ttft p99 <= {limit * 1e9:.0f}ns") for limit in limits)
    return Policy("accuracy", "", tuple(promises), confidence)


def one_run(load: Load, seconds: float, confidence: float, seed: int) -> list[str]:
    """The status for each limit of OFF."""
    arrivals, latencies = load.make(np.random.default_rng(seed))
    policy = policy_of([load.p99 * off for off in OFF], confidence)
    record = record_of(seconds, len(arrivals))
    fold = Fold(record, questions(policy, record), policy.goals())
    fold.add(SampleBatch(rows_of(arrivals, latencies), np.empty(0, GAP_DTYPE)))
    return [found.status.value for found in judge(policy, fold.result(), record).findings]


def one_early(load: Load, seconds: float, confidence: float, off: float, seed: int) -> tuple[str, float]:
    """The status at which the run stopped (or that it ended with), and the share of the load it took."""
    arrivals, latencies = load.make(np.random.default_rng(seed))
    policy = policy_of([load.p99 * off], confidence)
    record = record_of(seconds, len(arrivals), stop_when_certain=True)
    expected = np.bincount(arrivals.astype(int), minlength=int(seconds))
    rows = rows_of(arrivals, latencies)
    rows = rows[np.argsort(rows["end"])]
    fold = Fold(record, questions(policy, record), policy.goals())
    edges = np.searchsorted(rows["end"], np.arange(0, int(seconds) + 1) * SECOND)
    for second in range(int(seconds)):
        fold.add(SampleBatch(rows[edges[second] : edges[second + 1]], np.empty(0, GAP_DTYPE)))
        decision = decide(policy, fold.result(), record, expected)
        if decision.status is not None:
            return decision.status.value, (second + 1) / seconds
    fold.add(SampleBatch(rows[edges[-1] :], np.empty(0, GAP_DTYPE)))
    return judge(policy, fold.result(), record).status.value, 1.0


def loads(rate: float, seconds: float) -> list[Load]:
    return [
        lognormal_load("independent", rate, seconds, 0.0),
        lognormal_load("AR(1) 0.9", rate, seconds, 0.9),
        lognormal_load("AR(1) 0.98", rate, seconds, 0.98),
        queue_load("M/G/8, 70 % busy", rate, seconds, 8, 0.7),
        queue_load("M/G/8, 90 % busy", rate, seconds, 8, 0.9),
        queue_load("M/G/32, 90 % busy", rate, seconds, 32, 0.9),
        lognormal_load("AR(1) 0.95 heavy", rate, seconds, 0.95, sigma=1.0),
        slow_phases_load("slow 4 s of 20", rate, seconds, 4.0, 16.0),
    ]


def mapped(work: Callable[[int], Any], seeds: range) -> list[Any]:
    """`work` of each seed. Processes are forked, so that `work` may be any function."""
    global _work
    _work = work
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(_call, seeds, chunksize=max(1, len(seeds) // 40)))


_work: Callable[[int], Any]


def _call(seed: int) -> Any:
    return _work(seed)


def print_final(made: list[Load], seconds: float, confidence: float, seeds: range) -> None:
    print(f"{'limit / true p99':<20}" + "".join(f"{100 * (off - 1):>+15.0f} %" for off in OFF))
    for load in made:
        found = np.array(mapped(partial(one_run, load, seconds, confidence), seeds))
        cells = []
        for column, off in zip(found.T, OFF, strict=True):
            wrong, right = ("PASS", "FAIL") if off < 1 else ("FAIL", "PASS")
            cells.append(f"{100 * (column == wrong).mean():5.1f} {100 * (column == right).mean():5.1f}")
        print(f"{load.name:<20}" + "".join(f"{cell:>17}" for cell in cells), flush=True)
    print(
        "cells: % wrong (false PASS left of 0, false FAIL right of it), % right; the rest is INCONCLUSIVE\n"
    )


def print_early(made: list[Load], planned: float, confidence: float, seeds: range) -> None:
    print(f"early decisions, {len(seeds)} runs planned for {planned:g} s: % right early, % wrong, % saved")
    for load in made:
        cells = []
        for off, right in ((0.5, "FAIL"), (2.0, "PASS"), (0.9, "FAIL"), (1.1, "PASS")):
            ends = mapped(partial(one_early, load, planned, confidence, off), seeds)
            wrong = sum(status in ("PASS", "FAIL") and status != right for status, _ in ends) / len(ends)
            stopped = sum(status == right and share < 1 for status, share in ends) / len(ends)
            saved = 1 - sum(share for _, share in ends) / len(ends)
            cells.append(f"{off:g}x: {100 * stopped:5.1f} {100 * wrong:4.1f} {100 * saved:4.1f}")
        print(f"{load.name:<20}" + "".join(f"{cell:>24}" for cell in cells), flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000, help="0 leaves out the first part")
    parser.add_argument("--early-runs", type=int, default=1000, help="0 leaves out the second part")
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--early-seconds", type=float, nargs="+", default=[120.0], help="planned lengths of early decisions"
    )
    parser.add_argument("--confidence", default="99%")
    parser.add_argument("--loads", type=int, nargs="+", help="numbers of the loads, from 0 (default: all)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first run")
    arguments = parser.parse_args()
    rate, confidence, first = arguments.rate, parse_share(arguments.confidence), arguments.first

    def made(seconds: float) -> list[Load]:
        every = loads(rate, seconds)
        return [every[number] for number in arguments.loads] if arguments.loads else every

    if arguments.runs:
        seconds = arguments.seconds
        print(f"{arguments.runs} runs of {rate:g}/s for {seconds:g} s, confidence {arguments.confidence}")
        print_final(made(seconds), seconds, confidence, range(first, first + arguments.runs))
    for planned in arguments.early_seconds if arguments.early_runs else ():
        print_early(made(planned), planned, confidence, range(first, first + arguments.early_runs))


if __name__ == "__main__":
    main()
