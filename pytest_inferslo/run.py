"""One measured run, start to finish.

The server is ready and the scenario was accepted; what is left is to watch, to offer, to write down. Judging is a
step of its own (judgement.py) that works from what was written, so that a saved run gets the same verdict later.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_inferslo.core.readings import DRAIN, LOAD
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.errors import BackendDiedError
from pytest_inferslo.loadgen.offer import LoadGenerator, LoadOrder, LoadResult, Progress
from pytest_inferslo.storage.readings import ReadingWriter
from pytest_inferslo.storage.run_directory import RunDirectory
from pytest_inferslo.telemetry.host import fingerprint
from pytest_inferslo.telemetry.poller import Telemetry, TelemetryRecord

if TYPE_CHECKING:
    from pytest_inferslo.backends import RunningGroup, RunningServer

    Server = RunningServer | RunningGroup

#: How long the ready server is watched before the load, for `server_cpu_increase`.
IDLE_SECONDS = 2.0
_CHECK_SECONDS = 0.5
_LOG_BYTES = 64 << 20
_PACKAGES = (
    "pytest-inferslo",
    "pytest",
    "locust",
    "gevent",
    "httptools",
    "numpy",
    "scipy",
    "pyarrow",
    "hdrhistogram",
)


@dataclass(frozen=True)
class Order:
    """What one run is to measure. `name` and `source` (file, line) say which scenario of the user's it is."""

    scenario: Scenario
    name: str
    source: tuple[str, int]
    policies: tuple[dict[str, Any], ...]
    base: Path
    load_seconds: float | None = None
    seed: int = 0
    notes: tuple[str, ...] = ()
    should_stop: Callable[[RunDirectory, Progress], str | None] = field(
        default=lambda directory, progress: None
    )


def measure(
    order: Order,
    server: Server,
    generator: LoadGenerator,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunDirectory:
    """Offers the load and returns the directory that holds everything seen.

    Raises LoadError when no load could be offered at all. A server that dies, a worker that is lost and a load that
    was cut short are in the record (`errors`), where the validity guards find them.
    """
    directory = RunDirectory.create(order.base, order.name)
    with ReadingWriter(directory.path) as writer:
        telemetry = Telemetry(lambda: server.pid, sink=writer.append, loadgen_pids=generator.pids)
        telemetry.start()
        try:
            time.sleep(IDLE_SECONDS)
            watch = _Watch(order, directory, server, telemetry, on_progress)
            result = generator.offer(
                _load_order(order, server, directory),
                on_progress=watch.progress,
                should_stop=watch.should_stop,
            )
        finally:
            seen = telemetry.stop()
            _copy_log(server.log_path, directory.server_log)
    directory.write_record(_record(order, server, result, seen, watch.errors))
    return directory


class _Watch:
    """Looks at the run while it goes: the phase of the telemetry, the life of the server, early decisions."""

    def __init__(
        self,
        order: Order,
        directory: RunDirectory,
        server: Server,
        telemetry: Telemetry,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.errors: list[str] = []
        self._order = order
        self._directory = directory
        self._server = server
        self._telemetry = telemetry
        self._on_progress = on_progress
        self._end_s = order.scenario.window_ns[1] / 1e9
        self._phase = ""
        self._checked = 0.0
        self._latest: Progress | None = None

    def progress(self, progress: Progress) -> None:
        if self._latest is None:
            # Near enough for readings a tenth of a second apart, and memory stays bounded in long runs.
            self._telemetry.set_epoch(time.monotonic_ns() - round(progress.elapsed_s * 1e9))
        self._latest = progress
        phase = (
            LOAD
            if 0 <= progress.elapsed_s < self._end_s
            else DRAIN
            if progress.elapsed_s >= self._end_s
            else ""
        )
        if phase and phase != self._phase:
            self._phase = phase
            self._telemetry.phase(phase)
        if self._on_progress is not None:
            self._on_progress(progress)

    def should_stop(self) -> str | None:
        now = time.monotonic()
        if now - self._checked >= _CHECK_SECONDS:
            self._checked = now
            try:
                self._server.check()
            except BackendDiedError as error:
                self.errors.append(str(error))
                return f"the server died: {str(error).splitlines()[0]}"
        if self._latest is None:
            return None
        return self._order.should_stop(self._directory, self._latest)


def _copy_log(source: Path | None, target: Path) -> None:
    """What the server wrote since it started; of a longer log the last part."""
    if source is None or not source.exists():
        return
    with source.open("rb") as log, target.open("wb") as copy:
        log.seek(max(0, source.stat().st_size - _LOG_BYTES))
        shutil.copyfileobj(log, copy)


def _load_order(order: Order, server: Server, directory: RunDirectory) -> LoadOrder:
    adapters = order.scenario.adapters.names if order.scenario.adapters else ()
    return LoadOrder(
        scenario=order.scenario.to_dict(),
        endpoints=[endpoint.to_dict() for endpoint in server.endpoints],
        adapters=list(adapters),
        seed=order.seed,
        run_directory=str(directory.path.resolve()),
    )


def _record(
    order: Order, server: Server, result: LoadResult, seen: TelemetryRecord, errors: list[str]
) -> dict[str, Any]:
    scenario = order.scenario
    start, end = scenario.window_ns
    notes = [*order.notes, *seen.notes, *server.notes]
    if server.simulated:
        notes.insert(0, "simulated: no figure of this run says anything about a real engine")
    return {
        "scenario": {
            "name": order.name,
            "file": order.source[0],
            "line": order.source[1],
            "definition": scenario.to_dict(),
        },
        "policy": order.policies[0] if order.policies else None,
        "backend": server.record,
        "host": fingerprint(),
        "command": sys.argv,
        "versions": _versions(),
        "seed": order.seed,
        "window": {"start": start, "end": end},
        "phases": [{"name": p.name, "start": p.start_ns, "end": p.end_ns} for p in scenario.phases()],
        "epoch": {"unix_ns": result.epoch_unix_ns, "monotonic_ns": result.epoch_monotonic_ns},
        "counts": result.counts,
        "outcomes": result.outcomes,
        "workers": result.workers,
        "adapters": list(scenario.adapters.names) if scenario.adapters else [],
        "absent": seen.absent,
        "load_seconds": order.load_seconds,
        "open_loop": scenario.open_loop,
        "gpus": seen.gpus,
        "prices": None,
        "notes": notes,
        "stopped_early": result.stopped_early,
        "errors": [*errors, *result.errors],
    }


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
