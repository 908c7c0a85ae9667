"""Reads damaged answers until something is wrong: a million of them by default.

    python benchmarks/fuzz_streams.py [--count 1000000] [--seed 0] [--processes 2]

Recorded streams of real servers and answers of every API are damaged (events dropped, doubled, moved, changed
in meaning; bytes flipped, cut, inserted; any framing, any reads) and read by the load generator's reader. It
must not crash, must come to an outcome, and may say SUCCESS only where a plain reader written from the
specifications agrees, with the same events and token counts. Prints the outcomes; exits 1 at a fault.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fuzz"))

from mutations import fault, mutants, read

_SHARE = 10_000


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    begin = time.perf_counter()
    shares = [
        (options.seed + n, min(_SHARE, options.count - n * _SHARE))
        for n in range(-(-options.count // _SHARE))
    ]
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    with multiprocessing.Pool(options.processes) as pool:
        for seen, wrong in pool.imap_unordered(share, shares):
            outcomes += seen
            faults += wrong
    seconds = time.perf_counter() - begin
    print(
        f"{options.count:,} answers in {seconds:.0f} s on {options.processes} processes, {len(faults)} faults"
    )
    for name, count in outcomes.most_common():
        print(f"{name:24}{count:>10,}")
    for wrong in faults[:20]:
        print(wrong)
    return 1 if faults else 0


def share(work: tuple[int, int]) -> tuple[Counter[str], list[str]]:
    seed, count = work
    outcomes: Counter[str] = Counter()
    faults = []
    for number, mutant in enumerate(mutants(seed, count)):
        wrong = fault(mutant)
        outcome = read(mutant).outcome if number % 10 == 0 else None  # a tenth of them for the table
        if outcome is not None:
            outcomes[outcome.name] += 10
        if wrong is not None:
            faults.append(f"seed {seed}, mutant {number} of {mutant.base.name}: {wrong}\n  {mutant.data!r}")
    return outcomes, faults


if __name__ == "__main__":
    raise SystemExit(main())
