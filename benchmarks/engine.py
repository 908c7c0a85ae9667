"""The load engine's figures, beside its peers: `make bench`, or `python benchmarks/engine.py [SECTION ...]`.

One core for the generator, one for the server (the null server that ships), runs interleaved A B A B, medians and
ratios. Peers that are not installed are left out and named. `--soak SECONDS` sets the length of the memory section.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import closed_loop
import numpy as np
import psutil
from closed_loop import USERS
from side_by_side import GENERATOR_CORE, MASTER_CORE, SERVER_CORE, Ours, null_server, pinned

from pytest_inferslo.core.arrivals import constant, poisson
from pytest_inferslo.loadgen.build import engine_build
from pytest_inferslo.loadgen.offer import Progress

PEERS = Path(__file__).parent / "peers"
PATH = "/v1/chat/completions"
ROUNDS = 3
SECONDS = 3.0

Figure = dict[str, float]


@dataclass
class Bench:
    """The generator of this installation, and the interpreter of another one to be measured beside it."""

    ours: Ours
    plain: str | None

    def closed_loops(self, url: str) -> dict[str, Callable[[], Figure]]:
        name = f"pytest-inferslo ({engine_build()})"
        found: dict[str, Callable[[], Figure]] = {name: lambda: closed_loop.measure(self.ours, url)}
        if self.plain is not None:
            command = [self.plain, str(Path(closed_loop.__file__)), url]
            found["pytest-inferslo (--plain)"] = lambda: last_line(command)
        return found


def last_line(command: list[str]) -> dict[str, Any]:
    """The JSON that a command prints last. Raises RuntimeError with what it said when it fails."""
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    if out.returncode:
        raise RuntimeError(out.stderr.strip().splitlines()[-1] if out.stderr else f"{command[1]} failed")
    found: dict[str, Any] = json.loads(out.stdout.splitlines()[-1])
    return found


def wrk_closed(url: str, chunks: int) -> Figure:
    script = Path(tempfile.gettempdir()) / "inferslo-wrk.lua"
    body = json.dumps(
        {
            "model": "m",
            "max_tokens": 1,
            "stream": True,
            "messages": [{"role": "user", "content": "hello " * 64}],
        }
    )
    body = body.replace('"stream": true', '"stream":true')
    script.write_text(
        f'wrk.method="POST"\nwrk.body=[[{body}]]\nwrk.headers["Content-Type"]="application/json"\n'
    )
    command = pinned(
        GENERATOR_CORE, "wrk", "-t1", f"-c{USERS}", f"-d{SECONDS:g}s", "-s", str(script), url + PATH
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    requests = int(next(line for line in text.splitlines() if "requests in" in line).split()[0])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "us/request": cpu / requests * 1e6,
        "us/chunk": cpu / requests / chunks * 1e6,
        "requests/s": requests / SECONDS,
    }


def peer(script: str, url: str, *options: str) -> dict[str, Any]:
    return last_line(pinned(GENERATOR_CORE, sys.executable, str(PEERS / script), url + PATH, *options))


def peer_closed(script: str, url: str, *options: str) -> Figure:
    found = peer(script, url, "--users", str(USERS), "--seconds", str(SECONDS), *options)
    return {
        "us/request": found["cpu_s"] / found["requests"] * 1e6,
        "requests/s": found["requests"] / found["wall_s"],
    }


def interleaved(runs: dict[str, Callable[[], Figure]]) -> dict[str, dict[str, list[float]]]:
    """Every run once a round, rounds one after another; a run that cannot be made is left out, and said."""
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(ROUNDS):
        for name, run in list(runs.items()):
            try:
                figures = run()
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                print(f"   {name}: left out ({error})")
                del runs[name]
                continue
            for key, value in figures.items():
                found.setdefault(name, {}).setdefault(key, []).append(value)
    return found


def table(found: dict[str, dict[str, list[float]]], key: str, base: str) -> None:
    if base not in found:
        base = next(iter(found))
    unit = statistics.median(found[base][key])
    for name, figures in found.items():
        if key in figures:
            middle = statistics.median(figures[key])
            spread = f"{min(figures[key]):.1f}..{max(figures[key]):.1f}"
            rate = statistics.median(figures.get("requests/s", [0.0]))
            print(
                f"   {name:<28}{middle:>9.1f} {key:<11}{middle / unit:>7.2f} x {base}   [{spread}]"
                f"   {rate:>9,.0f} requests/s"
            )


def requests_section(bench: Bench) -> None:
    print("CPU per request: streams of one token, closed loop of 50 connections")
    _requests(bench)


def tls_section(bench: Bench) -> None:
    print("The same over TLS")
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = Path(folder) / "key", Path(folder) / "certificate"
        command = [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "1", "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        certificate.write_text(key.read_text() + certificate.read_text())
        _requests(bench, "--certificate", str(certificate))


def _requests(bench: Bench, *server: str) -> None:
    with null_server(*server) as (url, _):
        found = interleaved(
            {
                "wrk": lambda: wrk_closed(url, 1),
                **bench.closed_loops(url),
                "Locust FastHttpUser": lambda: peer_closed("locust_users.py", url),
                "aiohttp": lambda: peer_closed("aiohttp_client.py", url),
            }
        )
    table(found, "us/request", "wrk")


def chunks_section(bench: Bench) -> None:
    print("CPU per chunk: streams of 64 chunks, each in a segment of its own, closed loop of 50 connections")
    with null_server("--chunks", "64", "--gap-ms", "0.01") as (url, _):
        found = interleaved({"wrk": lambda: wrk_closed(url, 64), **bench.closed_loops(url)})
    table(found, "us/chunk", "wrk")


def streams_section(ours: Ours) -> None:
    print("Streams of 16 chunks (first after 20 ms, then every 5 ms), open loop, one core")
    with null_server("--chunks", "16", "--first-ms", "20", "--gap-ms", "5") as (url, server):
        for rate in (1000, 2000, 3000, 4000, 5000, 6000, 7000):
            busy = sum(server.cpu_times()[:2])
            result, rows = ours.offer(url, constant(rate), SECONDS)
            busy = (sum(server.cpu_times()[:2]) - busy) / SECONDS
            lag = np.percentile(rows["sent"] - rows["intended"], [50, 99]) / 1e6
            ttft = np.percentile(rows["first"] - rows["sent"], [50, 99]) / 1e6
            cpu = result.workers[0]["cpu_share"]
            print(
                f"   {rate:>6}/s  send lag p50 {lag[0]:.3f} p99 {lag[1]:.3f} ms   service ttft p50 {ttft[0]:.2f}"
                f" p99 {ttft[1]:.2f} ms   worker {cpu:.0%}, server {busy:.0%} of a core"
            )
            if lag[0] > 2 or cpu > 0.97:
                break


def error_section(ours: Ours) -> None:
    print(
        "What the client adds: p50 and p99 of service ttft less those of the server's own log, ms (server: 20 ms)"
    )
    for rate in (500, 2000, 5000):
        users = ["--users", str(max(10, rate // 20))]
        runs: dict[str, Callable[[str], Any]] = {
            "kernel stamps": lambda url, rate=rate: _service(ours, url, rate, "kernel"),
            "clock stamps": lambda url, rate=rate: _service(ours, url, rate, "clock"),
            "Locust HttpUser": lambda url, rate=rate, users=users: peer(
                "locust_users.py",
                url,
                "--kind",
                "http",
                "--rate",
                str(rate),
                "--seconds",
                str(SECONDS),
                *users,
            )["service_ns"],
            "Locust FastHttpUser": lambda url, rate=rate, users=users: peer(
                "locust_users.py", url, "--rate", str(rate), "--seconds", str(SECONDS), *users
            )["service_ns"],
            "aiohttp": lambda url, rate=rate: peer(
                "aiohttp_client.py", url, "--rate", str(rate), "--seconds", str(SECONDS)
            )["service_ns"],
        }
        for name, run in runs.items():
            try:
                added = np.array([_added(run, "--first-ms", "20") for _ in range(ROUNDS)])
            except RuntimeError as error:
                print(f"   {rate:>5}/s {name:<20} left out ({error})")
                continue
            print(f"   {rate:>5}/s {name:<20} {_spread(added)}")


def busy_section(ours: Ours) -> None:
    print(
        "What the client adds at 80,000 chunks/s: streams of 64 chunks, the first after 20 ms, then every 5 ms"
    )
    server = ("--first-ms", "20", "--chunks", "64", "--gap-ms", "5")
    for stamps in ("kernel", "clock"):
        added = np.array(
            [_added(lambda url, s=stamps: _service(ours, url, 1250, s), *server) for _ in range(ROUNDS)]
        )
        print(f"   {stamps:<20} {_spread(added)}")


def _spread(added: Any) -> str:
    """Of rounds (rows) of p50 and p99: medians and ranges."""
    return "   ".join(
        f"{name} {np.median(column):+8.3f} [{column.min():+.3f}..{column.max():+.3f}]"
        for name, column in zip(("p50", "p99"), added.T, strict=True)
    )


def _service(ours: Ours, url: str, rate: int, stamps: str) -> Any:
    _, rows = ours.offer(url, poisson(rate), SECONDS, stamps=stamps)
    return rows["first"] - rows["sent"]


def _added(run: Callable[[str], Any], *server: str) -> Any:
    with tempfile.NamedTemporaryFile() as log:
        with null_server(*server, "--truth", log.name) as (url, _):
            measured = np.array(run(url), np.float64)
        pairs = np.fromfile(log.name, np.int64).reshape(-1, 2)
    truth = (pairs[:, 1] - pairs[:, 0]).astype(np.float64)
    return (np.percentile(measured, [50, 99]) - np.percentile(truth, [50, 99])) / 1e6


def rate_section(ours: Ours) -> None:
    seconds = 60.0
    print(f"10,000/s for {seconds:g} s through master and worker")
    for spin in (False, True):
        with null_server() as (url, _):
            result, rows = ours.offer(url, constant(10_000), seconds, spin=spin)
        worker = result.workers[0]
        lag = np.percentile(rows["sent"] - rows["intended"], [50, 99, 99.9]) / 1e6
        print(
            f"   {worker['pacing']:<14} delivered {len(rows) / 10_000 / seconds:.2%}, {result.counts['succeeded']}"
            f" succeeded; send lag p50 {lag[0]:.4f} p99 {lag[1]:.4f} p99.9 {lag[2]:.3f} ms; worker"
            f" {worker['cpu_share']:.0%} of a core, {worker['spun_ns'] / 1e9 / seconds:.0%} spun"
        )


def stall_section(ours: Ours) -> None:
    print("A stall of 1 s in every 10 s at 100/s: p99 from the intended start against the schedule's truth")
    with null_server("--stall-every-ms", "10000", "--stall-ms", "1000") as (url, _):
        _, rows = ours.offer(url, constant(100), 30)
    e2e = (rows["last"] - rows["intended"]) / 1e6
    # of 1,000 requests in 10 s, 100 meet the stall and wait for 1000, 990, ... ms of it: p99 is the tenth longest
    print(
        f"   p99 {np.percentile(e2e, 99, method='inverted_cdf'):.1f} ms; truth 900 to 910 ms; max {e2e.max():.1f} ms"
    )


def memory_section(ours: Ours, seconds: float) -> None:
    print(f"Memory at 10,000/s for {seconds:g} s, MiB resident")
    seen: list[tuple[float, ...]] = []

    def look(progress: Progress) -> None:
        if progress.elapsed_s >= 10 * len(seen):
            sizes = (psutil.Process(pid).memory_info().rss / 2**20 for pid in ours.generator.pids())
            seen.append((progress.elapsed_s, *sizes))

    with null_server() as (url, _):
        result, _ = ours.offer(url, constant(10_000), seconds, on_progress=look, keep=False)
    for elapsed, master, worker in seen:
        print(f"   {elapsed:6.0f} s   master {master:7.1f}   worker {worker:7.1f}")
    print(f"   {result.counts['succeeded']:,} succeeded of {result.counts['intended']:,}")


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "requests": requests_section,
    "tls": tls_section,
    "chunks": chunks_section,
    "streams": lambda bench: streams_section(bench.ours),
    "error": lambda bench: error_section(bench.ours),
    "busy": lambda bench: busy_section(bench.ours),
    "rate": lambda bench: rate_section(bench.ours),
    "stall": lambda bench: stall_section(bench.ours),
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all when none is named"
    )
    parser.add_argument(
        "--soak", type=float, default=0.0, metavar="SECONDS", help="also watch the memory for so long"
    )
    parser.add_argument(
        "--plain", metavar="PYTHON", help="of an installation to measure beside this one: not compiled, say"
    )
    args = parser.parse_args()
    unknown = [name for name in args.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"unknown section {unknown[0]!r}")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} CPUs, load average before: {load}; {time.strftime('%Y-%m-%d %H:%M')}")
    print(f"engine: {engine_build()}, Python {platform.python_version()}")
    print(f"server on CPU {SERVER_CORE}, generator on CPU {GENERATOR_CORE}, its master on CPU {MASTER_CORE}")
    with tempfile.TemporaryDirectory(prefix="inferslo-bench-") as folder:
        ours = Ours(Path(folder))
        try:
            for name in args.sections or SECTIONS:
                SECTIONS[name](Bench(ours, args.plain))
            if args.soak:
                memory_section(ours, args.soak)
        finally:
            ours.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
