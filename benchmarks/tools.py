"""The load engine beside the tools that LLM servers are measured with: `python benchmarks/tools.py sustained error`.

Install them first: `bash benchmarks/install_peers.sh`. What is not installed is left out and named.

All are judged alike, by the log of the null server (the kernel's receive times), with every process of a tool on
one core and the server on another one; the first second of each run is left out, and the last.

sustained   streams of 16 chunks (first after 20 ms, then every 5 ms) at ever higher rates, until two in a row fail.
            A rate is held when at least 98 % of it arrived. Send lag: how late the requests arrived, against an
            even schedule that is laid so that 1 % of them are early; of a tool whose gaps are not even, what it
            says itself.
error       a 20 ms server's own ttft, less the (service) ttft that the tool reports.

CPU is that of all processes on the generator's core while requests arrived, and of the kernel on their behalf.
It takes half an hour; in pieces: `--only TOOL`, `--rates N,N`, `--rounds N`, and `--record FILE`, to which runs
are added and from whose runs the tables are made.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from observe import observe
from peers.commands import TOOLS, Load, Report, Tool
from side_by_side import GENERATOR_CORE, MASTER_CORE, SERVER_CORE, Ours, pinned

from pytest_inferslo.core.arrivals import constant

RATES = {
    "sustained": (100, 150, 200, 300, 400, 500, 600, 700, 800, 1000, 1250, 1500, 1750, 2000, 2500, 3000, 4000, 5000,
                  6000, 7000, 8000),
    "error": (500, 2000, 5000),
}  # fmt: skip
HELD = 0.98
SECONDS = 6
LONGEST = 90.0
#: By name, where the master runs: on the core of its worker, as all of a tool does, or with the server.
OURS = {"pytest-inferslo": GENERATOR_CORE, "pytest-inferslo, worker alone": MASTER_CORE}
STREAMS = ("--chunks", "16", "--first-ms", "20", "--gap-ms", "5")
ANSWERS = ("--first-ms", "20")
MODEL_SCRIPT = Path(__file__).parent.parent / "tests" / "engines" / "make_model.py"

Run = dict[str, Any]


def offered_by(tool: Tool, rate: int, model: Path) -> Callable[[str], Report]:
    def offer(url: str) -> Report:
        with tempfile.TemporaryDirectory(prefix="inferslo-peer-") as folder:
            load = Load(url, rate, SECONDS, Path(folder), model)
            command = pinned(GENERATOR_CORE, *tool.command(load))
            _run(command, folder, {**os.environ, **tool.environment})
            return tool.report(Path(folder))

    return offer


def _run(command: list[str], folder: str, environment: dict[str, str]) -> None:
    """Ends the whole group of processes where it takes too long. RuntimeError where it failed."""
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        ) as process:
            try:
                code = process.wait(LONGEST)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise RuntimeError(f"not done in {LONGEST:g} s") from None
        if code:
            output.seek(0)
            lines = [line.strip() for line in output if "Error" in line] or ["no error was printed"]
            raise RuntimeError(f"exit code {code}: {lines[-1][:200]}")


def offered_by_ours(ours: Ours, rate: int) -> Callable[[str], Report]:
    def offer(url: str) -> Report:
        _, rows = ours.offer(url, constant(rate), SECONDS)
        lag = np.percentile(rows["sent"] - rows["intended"], 99) / 1e6
        ttft = np.percentile(rows["first"] - rows["sent"], [50, 99]) / 1e6
        return Report(float(ttft[0]), float(ttft[1]), float(lag))

    return offer


Offering = Callable[[int], Callable[[str], Report]]


@contextmanager
def generator(who: str, folder: Path, model: Path) -> Iterator[Offering]:
    """What makes, of a rate, a load to offer. Ours runs only for so long, so as not to disturb the others."""
    if who in OURS:
        ours = Ours(folder / str(time.monotonic_ns()), master_core=OURS[who])
        try:
            yield lambda rate: offered_by_ours(ours, rate)
        finally:
            ours.close()
    else:
        tool = next(tool for tool in TOOLS if tool.name == who)
        yield lambda rate: offered_by(tool, rate, model)


def measured(section: str, name: str, offer: Callable[[str], Report], rate: int) -> Run:
    report, seen = observe(offer, SECONDS, *(STREAMS if section == "sustained" else ANSWERS))
    even = all(tool.even for tool in TOOLS if tool.name == name)
    lag = seen.send_lag_p99(rate) if even else report.send_lag_p99
    truth = np.percentile(seen.spent, [50, 99]) / 1e6
    run = {
        "section": section, "name": name, "rate": rate, "arrived": seen.rate(), "send_lag_p99": lag,
        "us": seen.cpu_per_request(), "ttft_p99": report.ttft_p99,
        "added_p50": report.ttft_p50 - truth[0], "added_p99": report.ttft_p99 - truth[1],
    }  # fmt: skip
    said = "" if report.send_lag_p99 is None else f" (it says {report.send_lag_p99:.3f})"
    print(
        f"   {name:<17}{rate:>6}/s  arrived {run['arrived']:>8,.1f}/s  send lag p99 {lag:>9.3f}{said} ms  ttft p99"
        f" {report.ttft_p99:>9.2f} ms  added p50 {run['added_p50']:+.3f} p99 {run['added_p99']:+.3f} ms"
        f"  {run['us']:>7.1f} us CPU",
        flush=True,
    )
    return run


def _held(run: Run) -> bool:
    return bool(run["arrived"] >= HELD * run["rate"])


def one_round(section: str, who: str, offering: Offering, rates: Sequence[int]) -> list[Run]:
    """Rates upward until it can no more."""
    runs: list[Run] = []
    failed, patience = 0, 2 if section == "sustained" else 1
    for rate in rates:
        try:
            runs.append(measured(section, who, offering(rate), rate))
        except (RuntimeError, OSError, KeyError, TypeError) as error:
            print(f"   {who:<17}{rate:>6}/s  {type(error).__name__}: {error}", flush=True)
            failed += 1
        else:
            failed = 0 if _held(runs[-1]) else failed + 1
        if failed == patience:
            break
    return runs


def _spread(values: list[float], form: str) -> str:
    if not values:
        return "-"
    return f"{statistics.median_low(values):{form}} [{min(values):{form}}..{max(values):{form}}]"


def sustained_table(runs: list[Run]) -> None:
    """The highest rate in each round that was held with no more than so much send lag; and how it was there."""
    print(
        "| tool | send lag p99 <= 1 ms | <= 10 ms | held at all | there: send lag p99, ms | ttft p99, ms | us of CPU |"
    )
    for name in dict.fromkeys(run["name"] for run in runs):
        own = [run for run in runs if run["name"] == name]
        rounds = [[run for run in own if run["round"] == number] for number in {run["round"] for run in own}]
        highest = [
            [
                max((r["rate"] for r in some if _held(r) and r["send_lag_p99"] <= limit), default=0)
                for some in rounds
            ]
            for limit in (1, 10, math.inf)
        ]
        there = [run for run in own if run["rate"] == statistics.median_low(highest[-1]) and _held(run)]
        columns = [_spread(rates, ",.0f") for rates in highest]
        for key, form in (("send_lag_p99", ",.1f"), ("ttft_p99", ",.1f"), ("us", ",.0f")):
            columns.append(_spread([run[key] for run in there], form))
        print("|", name, "|", " | ".join(columns), "|")


def error_table(runs: list[Run]) -> None:
    print("| tool | rate | arrived | added p50, ms | added p99, ms | us of CPU per request |")
    for name, rate in dict.fromkeys((run["name"], run["rate"]) for run in runs):
        own = [run for run in runs if (run["name"], run["rate"]) == (name, rate)]
        print(
            f"| {name} | {rate:,} | {_spread([run['arrived'] for run in own], ',.0f')} |"
            f" {_spread([run['added_p50'] for run in own], '+,.3f')} |"
            f" {_spread([run['added_p99'] for run in own], '+,.3f')} |"
            f" {_spread([run['us'] for run in own], ',.0f')} |"
        )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "sections", nargs="*", choices=[*RATES, []], metavar="SECTION", help="sustained, error"
    )
    parser.add_argument("--only", action="append", metavar="TOOL")
    parser.add_argument("--rates", metavar="N,N,...", help="in place of the usual ones, upward")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", type=Path, metavar="FILE")
    return parser.parse_args()


def main() -> int:
    args = parsed()
    installed = [tool for tool in TOOLS if tool.python.exists()]
    for tool in TOOLS:
        print(f"   {tool.name}: {tool.version() if tool in installed else 'not installed, left out'}")
    runs = [json.loads(line) for line in args.record.open()] if args.record and args.record.exists() else []
    os.sched_setaffinity(0, {SERVER_CORE})
    with tempfile.TemporaryDirectory(prefix="inferslo-bench-") as folder:
        model = Path(folder) / "model"
        if installed:
            subprocess.run([installed[0].python, MODEL_SCRIPT, model], check=True)
        everyone = args.only or [*OURS, *(tool.name for tool in installed)]
        for _, section, who in itertools.product(range(args.rounds), args.sections, everyone):
            rates = [int(rate) for rate in args.rates.split(",")] if args.rates else RATES[section]
            with generator(who, Path(folder), model) as offering:
                found = one_round(section, who, offering, rates)
            before = [run["round"] for run in runs if (run["name"], run["section"]) == (who, section)]
            runs += (fresh := [{**run, "round": 1 + max(before, default=0)} for run in found])
            if args.record:
                with args.record.open("a") as record:
                    record.writelines(json.dumps(run) + "\n" for run in fresh)
    for section, table in (("sustained", sustained_table), ("error", error_table)):
        if chosen := [run for run in runs if run["section"] == section]:
            table(chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
