"""One measured run, start to finish.

The server is ready and the scenario was accepted; what is left is to watch, to offer, to write down. Judging is a
step of its own (judgement.py) that works from what was written, so that a saved run gets the same verdict later.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_inferslo.backends.simulated_pace import between
from pytest_inferslo.core.baseline import Baseline
from pytest_inferslo.core.policy import Policy
from pytest_inferslo.core.readings import DRAIN, LOAD
from pytest_inferslo.early_stop import EarlyStop
from pytest_inferslo.errors import BackendDiedError, RecordError
from pytest_inferslo.loadgen.offer import LoadGenerator, LoadInterrupted, LoadOrder, LoadResult, Progress
from pytest_inferslo.prompt_lengths import length_notes
from pytest_inferslo.record import Order, Record, adapter_names, completed, planned
from pytest_inferslo.storage.readings import ReadingWriter
from pytest_inferslo.storage.run_directory import RunDirectory
from pytest_inferslo.telemetry.poller import Telemetry

if TYPE_CHECKING:
    from pytest_inferslo.record import Server

#: How long the ready server is watched before the load, for `server_cpu_increase`.
IDLE_SECONDS = 2.0
_CHECK_SECONDS = 0.5
_LOG_BYTES = 64 << 20
_INTERRUPTED = "interrupted (Ctrl-C)"

OnProgress = Callable[[Progress], None]


def measure(
    order: Order,
    server: Server,
    generator: LoadGenerator,
    *,
    judges: Sequence[tuple[Policy, Baseline | None]] = (),
    on_progress: OnProgress | None = None,
    on_created: Callable[[Path], None] | None = None,
) -> RunDirectory:
    """Offers the load and returns the directory that holds everything seen.

    `on_created` is told the directory before the load.
    With `judges` a scenario that allows it (`stop_when_certain`) ends once their verdict is certain.
    Raises LoadError when no load could be offered at all, and KeyboardInterrupt when it was interrupted. The record's
    `errors` say of every run that was ended before its time why that was, where the validity guards find it: a server
    that died, a worker that was lost, an interrupt, whatever was raised.
    """
    directory = RunDirectory.create(order.base, order.name)
    plan = planned(order, server)
    directory.write_record(plan)
    if on_created is not None:
        on_created(directory.path)
    early = EarlyStop(judges, plan, order.scenario) if judges and order.scenario.stop_when_certain else None
    with contextlib.ExitStack() as opened:
        writer = opened.enter_context(ReadingWriter(directory.path))
        telemetry = Telemetry(lambda: server.pids, sink=writer.append, loadgen_pids=generator.pids)
        watch = _Watch(order, server, telemetry, early, on_progress)
        opened.enter_context(_cause_recorded(directory, plan, watch))
        telemetry.start()
        try:
            time.sleep(IDLE_SECONDS)
            if early is not None:
                early.follow(directory.path)
            paces = server.paces()
            result, interrupted = _offered(generator, _load_order(order, server, directory), watch)
            simulator = {"simulator": between(paces, server.paces())} if server.simulated else {}
        finally:
            seen = telemetry.stop()
            if early is not None:
                early.close()
            _copy_log(server.log_path, directory.server_log)
    until = early.until_ns if early is not None else None
    if order.locustfile is None:
        plan = {**plan, "notes": [*plan["notes"], *length_notes(order.scenario, directory.path)]}
    directory.write_record(completed(plan, server, result, seen, watch.errors, until) | simulator)
    if interrupted is not None:
        raise KeyboardInterrupt from interrupted
    return directory


def _offered(
    generator: LoadGenerator, order: LoadOrder, watch: _Watch
) -> tuple[LoadResult, LoadInterrupted | None]:
    """What came of the load, also where Ctrl-C ended it."""
    try:
        offered = generator.offer(order, on_progress=watch.progress, should_stop=watch.should_stop)
    except LoadInterrupted as interrupted:
        watch.errors.append(f"{watch.when}: {_INTERRUPTED}")
        return interrupted.result, interrupted
    return offered, None


@contextlib.contextmanager
def _cause_recorded(directory: RunDirectory, plan: Record, watch: _Watch) -> Iterator[None]:
    """Whatever ends the block early is what the record says of it."""
    try:
        yield
    except BaseException as error:
        lines = str(error).strip().splitlines()
        told = lines[0].rstrip(".") if lines else repr(error)
        cause = _INTERRUPTED if isinstance(error, KeyboardInterrupt) else told
        with contextlib.suppress(RecordError, OSError):  # the full disk may be what ended it
            directory.write_record({**plan, "errors": [f"{watch.when}: {cause}"]})
        raise


class _Watch:
    """Looks at the run while it goes: the phase of the telemetry, the life of the server, early decisions."""

    def __init__(
        self,
        order: Order,
        server: Server,
        telemetry: Telemetry,
        early: EarlyStop | None,
        on_progress: OnProgress | None,
    ) -> None:
        self.errors: list[str] = []
        self._server = server
        self._telemetry = telemetry
        self._early = early
        self._on_progress = on_progress
        self._end_s = order.scenario.window_ns[1] / 1e9
        self._phase: str | None = None
        self._checked = 0.0
        self._elapsed_s = -1.0

    @property
    def when(self) -> str:
        """How far the load was when it was last heard of."""
        if self._elapsed_s < 0:
            return "before the load began"
        return f"{self._elapsed_s:.1f} s into a load of {self._end_s:g} s"

    def progress(self, progress: Progress) -> None:
        self._elapsed_s = progress.elapsed_s
        if progress.elapsed_s >= 0:
            self._tell_phase(progress.elapsed_s)
        if self._on_progress is not None:
            self._on_progress(progress)

    def _tell_phase(self, elapsed_s: float) -> None:
        if self._phase is None:
            # Near enough for readings a tenth of a second apart, and memory stays bounded in long runs.
            self._telemetry.set_epoch(time.monotonic_ns() - round(elapsed_s * 1e9))
        phase = LOAD if elapsed_s < self._end_s else DRAIN
        if phase != self._phase:
            self._phase = phase
            self._telemetry.phase(phase)

    def should_stop(self) -> str | None:
        now = time.monotonic()
        if now - self._checked >= _CHECK_SECONDS:
            self._checked = now
            try:
                self._server.check()
            except BackendDiedError as error:
                self.errors.append(str(error))
                return f"the server died: {str(error).splitlines()[0]}"
        return self._early.reason if self._early is not None else None


def _copy_log(source: Path | None, target: Path) -> None:
    """What the server wrote since it started; of a longer log the last part."""
    if source is None or not source.exists():
        return
    with source.open("rb") as log, target.open("wb") as copy:
        log.seek(max(0, source.stat().st_size - _LOG_BYTES))
        shutil.copyfileobj(log, copy)


def _load_order(order: Order, server: Server, directory: RunDirectory) -> LoadOrder:
    scenario = order.scenario
    return LoadOrder(
        scenario=scenario.to_dict(),
        endpoints=[endpoint.to_dict() for endpoint in server.endpoints],
        adapters=adapter_names(scenario),
        seed=scenario.seed,
        run_directory=str(directory.path.resolve()),
        spin=order.pacing == "spin",
        locustfile=order.locustfile.to_dict() if order.locustfile else None,
    )
