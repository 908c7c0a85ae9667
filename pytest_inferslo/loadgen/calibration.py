"""`inferslo calibrate`: what this machine's load generator can offer, measured against the null server."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np

from pytest_inferslo.core.arrivals import Arrivals, concurrency, constant
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.samples import Outcome, Rows
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.errors import LoadError
from pytest_inferslo.loadgen import envelope as envelopes
from pytest_inferslo.loadgen.envelope import Envelope
from pytest_inferslo.loadgen.offer import LoadGenerator, LoadOrder, LoadResult
from pytest_inferslo.storage.samples import read_batches

_EVENTS = 64
_USERS = 64
#: High enough to be work, low enough for any machine; arrivals that come closer together cost less each.
_RATE = "4000/s"
_SEED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="length of each of the three loads (default 2)"
    )
    parser.add_argument("--show", action="store_true", help="print the cached envelope instead of measuring")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")


def run(args: argparse.Namespace) -> int:
    envelope = envelopes.cached() if args.show else None
    if args.show and envelope is None:
        print("this machine has not been calibrated: run `inferslo calibrate`", file=sys.stderr)
        return 4
    if envelope is None:
        envelope = measure(args.seconds)
        print(f"kept in {envelopes.save(envelope)}")
    print(describe(envelope))
    if args.json:
        args.json.write_text(json.dumps(asdict(envelope), indent=2) + "\n")
    return 0


def ensure() -> Envelope:
    """The cached envelope, or a fresh one; some eight seconds the first time."""
    envelope = envelopes.cached()
    if envelope is None:
        envelope = measure()
        envelopes.save(envelope)
    return envelope


def measure(seconds: float = 2.0) -> Envelope:
    """Three loads: many short requests, few of them, and long streams. Raises LoadError."""
    with (
        tempfile.TemporaryDirectory(prefix="inferslo-") as folder,
        LoadGenerator(Path(folder) / "logs") as generator,
    ):
        loads = _Loads(generator, Path(folder), seconds)
        with null_server(chunks=1) as url:
            busy, _ = loads.offer(url, "requests", constant(_RATE))
            _, light = loads.offer(url, "light", constant("200/s"))
        with null_server(chunks=_EVENTS, gap_ms=1.0) as url:
            streams, rows = loads.offer(url, "streams", concurrency(_USERS))
    request_ns = _cpu_ns(busy) / busy.counts["succeeded"]
    events = int(rows["chunks"].sum())
    event_ns = (_cpu_ns(streams) - request_ns * streams.counts["succeeded"]) / max(1, events - len(rows))
    lag = light["sent"] - light["intended"]
    ttft = light["first"] - light["sent"]
    return Envelope(
        envelopes.fingerprint(),
        request_ns,
        max(event_ns, 1.0),
        float(np.percentile(lag, 50)),
        float(np.percentile(lag, 99)),
        float(np.percentile(ttft, 50)),
    )


def describe(envelope: Envelope) -> str:
    """The figures, for people."""
    return "\n".join(
        (
            envelope.fingerprint,
            f"  requests of one event   {envelope.requests_per_second:>10,.0f} /s per worker"
            f"   ({envelope.request_ns / 1e3:.1f} us of CPU each)",
            f"  stream events           {envelope.events_per_second:>10,.0f} /s per worker"
            f"   ({envelope.event_ns / 1e3:.1f} us of CPU each)",
            f"  send lag floor          {envelope.send_lag_p50_ns / 1e3:>10,.0f} us p50"
            f"         {envelope.send_lag_p99_ns / 1e3:,.0f} us p99",
            f"  ttft floor              {envelope.ttft_p50_ns / 1e3:>10,.0f} us p50",
            f"  (a worker may use {envelopes.USABLE_SHARE:.0%} of a core)",
        )
    )


@contextmanager
def null_server(*, chunks: int, gap_ms: float = 0.0) -> Iterator[str]:
    """A null server in a process of its own; yields its address."""
    command = [
        sys.executable,
        "-m",
        "pytest_inferslo.servers.null",
        "--chunks",
        str(chunks),
        "--gap-ms",
        str(gap_ms),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = server.stdout.readline().strip()
            if not port:
                raise LoadError(f"the null server did not start: {' '.join(command)}")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


class _Loads:
    def __init__(self, generator: LoadGenerator, folder: Path, seconds: float) -> None:
        self._generator = generator
        self._folder = folder
        self._seconds = seconds

    def offer(self, url: str, name: str, arrivals: Arrivals) -> tuple[LoadResult, Rows]:
        """The result, and the samples that succeeded."""
        scenario = Scenario(arrivals=arrivals, prompts=synthetic(64, 1), duration=self._seconds, drain=5)
        directory = self._folder / name
        order = LoadOrder(scenario.to_dict(), [Endpoint(url, "null").to_dict()], [], _SEED, str(directory))
        result = self._generator.offer(order)
        rows = np.concatenate([batch.samples for batch in read_batches(directory)])
        succeeded = rows[rows["outcome"] == Outcome.SUCCESS]
        if not len(succeeded) or result.errors:
            raise LoadError(f"calibration failed: {result.outcomes} {result.errors}")
        return result, succeeded


def _cpu_ns(result: LoadResult) -> float:
    return float(sum(worker["cpu_ns"] for worker in result.workers))
