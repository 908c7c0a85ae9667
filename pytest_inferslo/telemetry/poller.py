"""Telemetry of a run: a thread that reads the server's processes, the GPUs and the load generator.

The pytest process only waits while load is offered, so a thread in it disturbs nothing: the load is made in
other processes. One tick costs well under a millisecond for a server of a few processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pytest_inferslo.core.readings import IDLE, Reading
from pytest_inferslo.telemetry.gpu import GPU_METRICS, GpuProbe, load_nvml
from pytest_inferslo.telemetry.processes import Processes, PsutilProcesses
from pytest_inferslo.telemetry.server import SERVER_METRICS, LoadGeneratorProbe, ServerProbe

#: Hz below which the readings are too thin for a peak.
_LOWEST_RATE = 5.0
_DRAIN_NS = 2_000_000_000


@dataclass(frozen=True)
class TelemetryRecord:
    """What was read. `absent`: metric -> why it was not; `gpus`: the devices that were read; `notes`: for
    people."""

    readings: list[Reading]
    absent: dict[str, str]
    gpus: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)


class _Raw(NamedTuple):
    monotonic_ns: int
    phase: str
    metric: str
    source: str
    value: float


class Telemetry:
    """Reads from `start` to `stop`, in the phase that `phase` named last (idle at first).

    - `server_pids`: the roots of the server's trees, none when it is not on this machine; asked at every tick.
    - `interval_s`: time between readings.
    - `gpu`: False reads none; None reads those of a server that runs here; True reads all where that is not
      known.
    - `loadgen_pids`: the load generator's processes.
    - `sink`: takes the readings, every two seconds, as soon as the epoch is known. `TelemetryRecord.readings`
      is empty then, and memory stays bounded however long the run.
    - `proc_root`, `nvml`, `processes`, `clock`: for tests; the system's own by default. The clock gives
      monotonic ns.
    """

    def __init__(
        self,
        server_pids: Callable[[], list[int]],
        *,
        interval_s: float = 0.1,
        gpu: bool | None = None,
        proc_root: str = "/proc",
        nvml: Any = None,
        clock: Callable[[], int] = time.monotonic_ns,
        processes: Processes | None = None,
        loadgen_pids: Callable[[], list[int]] = list,
        sink: Callable[[list[Reading]], None] | None = None,
    ) -> None:
        self._gpu, self._nvml = gpu, nvml
        self._interval_ns = int(interval_s * 1e9)
        self._clock, self._sink = clock, sink
        self._processes = processes or PsutilProcesses()
        self._server = ServerProbe(server_pids, self._processes, clock, Path(proc_root).parent)
        self._loadgen = LoadGeneratorProbe(loadgen_pids, self._processes, clock)
        self._gpus: GpuProbe | None = None
        self._absent: dict[str, str] = {}
        self._broken: dict[str, str] = {}
        self._phase = self._next_phase = IDLE
        self._epoch: int | None = None
        self._raw: list[_Raw] = []
        self._started = self._last_read = clock()
        self._reads = self._longest_pause = 0
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin reading. The server should be ready: what it does from now until the load is its idle
        state."""
        self._thread = threading.Thread(target=self._run, name="inferslo-telemetry", daemon=True)
        self._thread.start()

    def phase(self, name: str) -> None:
        """What is read from now on belongs to `name`; what was under way still belongs to the phase
        before."""
        self._next_phase = name
        self._wake.set()

    def set_epoch(self, monotonic_ns: int) -> None:
        """The instant of the schedule's zero, on the monotonic clock: readings count from it."""
        self._epoch = monotonic_ns

    def stop(self) -> TelemetryRecord:
        """End the reading and hand over what was seen."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        absent, notes, gpus = self._server.absent(), self._server.notes() + self._pace_notes(), []
        if self._gpus is not None:
            self._gpus.close()
            absent |= self._gpus.absent
            notes += self._gpus.notes
            gpus = self._gpus.gpus
        if self._epoch is None:
            self._epoch = self._clock()
            notes.append("no load was offered: readings are timed from the end of the telemetry")
        readings = self._drain()
        if self._sink is not None and not self._broken:
            self._sink(readings)
            readings = []
        return TelemetryRecord(readings, absent | self._absent | self._broken, gpus, notes)

    def _open_gpus(self) -> None:
        here = bool(self._server.pids)
        nvml, cause = self._nvml, ""
        if self._gpu is False:
            cause = "GPU telemetry is switched off"
        elif not here and not self._gpu:
            cause = "the server was not started here: its GPUs cannot be told"
        elif nvml is None:
            nvml, cause = load_nvml()
        if cause:
            self._absent.update(dict.fromkeys(GPU_METRICS, cause))
            return
        self._gpus = GpuProbe(nvml, self._server.pids, self._processes.pids(), read_all=bool(self._gpu))

    def _run(self) -> None:
        try:
            self._read()
            self._open_gpus()
            self._loop()
        except Exception as error:
            # Whatever it is, the objectives on these metrics must not be judged on half a run.
            cause = f"telemetry broke after {(self._clock() - self._started) / 1e9:.1f} s: {error!r}"
            self._broken = dict.fromkeys((*SERVER_METRICS, *GPU_METRICS, "loadgen_cpu"), cause)

    def _loop(self) -> None:
        due = drained = self._clock()
        while not self._stopping:
            now = self._clock()
            due = due + self._interval_ns if due + self._interval_ns > now else now + self._interval_ns
            early = self._wake.wait((due - now) / 1e9)
            self._wake.clear()
            # A sliver of an interval is measured in too few clock ticks to be worth keeping.
            self._read(keep=not early or self._clock() - self._last_read > self._interval_ns // 2)
            self._phase = self._next_phase
            if self._sink is not None and self._epoch is not None and self._clock() - drained > _DRAIN_NS:
                drained = self._clock()
                self._sink(self._drain())

    def _read(self, *, keep: bool = True) -> None:
        values = self._server.read() + self._loadgen.read()
        if self._gpus is not None:
            values += self._gpus.read()
        now = self._clock()
        self._longest_pause = max(self._longest_pause, now - self._last_read)
        self._last_read = now
        self._reads += 1
        if keep:
            self._raw += [_Raw(now, self._phase, *value) for value in values]

    def _drain(self) -> list[Reading]:
        assert self._epoch is not None
        raw, self._raw = self._raw, []
        return [Reading(r.monotonic_ns - self._epoch, r.phase, r.metric, r.source, r.value) for r in raw]

    def _pace_notes(self) -> list[str]:
        seconds = (self._last_read - self._started) / 1e9
        if seconds < 1 or self._reads / seconds >= _LOWEST_RATE:
            return []
        return [
            f"telemetry read {self._reads / seconds:.1f} times a second (longest pause "
            f"{self._longest_pause / 1e9:.1f} s): peaks between readings were not seen"
        ]
