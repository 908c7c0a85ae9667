"""What a worker does between connecting and leaving: takes orders, runs the engine, ships samples."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import gevent.event
import numpy as np
from gevent.fileobject import FileObjectPosix

from pytest_inferslo.core.samples import SAMPLE_DTYPE
from pytest_inferslo.errors import InfersloError
from pytest_inferslo.loadgen.build import engine_build
from pytest_inferslo.loadgen.closed_loop import ClosedLoopEngine
from pytest_inferslo.loadgen.engine import Engine
from pytest_inferslo.loadgen.locust_setup import EngineUser
from pytest_inferslo.loadgen.locust_stats import add_to_locust
from pytest_inferslo.loadgen.locustfile import LocustRun
from pytest_inferslo.loadgen.order import LoadOrder, WorkerRecord
from pytest_inferslo.loadgen.recorder import Recorder
from pytest_inferslo.loadgen.workload import Workload

_WARM_SECONDS = 2.0
#: Heartbeats come every second.
_MASTER_SILENCE_SECONDS = 5.0


class WorkerSession:
    """One load at a time; `env` and `runner` are Locust's."""

    def __init__(self, env: Any, runner: Any) -> None:
        self._env = env
        self._runner = runner
        self._master_heard = 0.0
        self._engine: Engine | LocustRun | None = None
        self._recorder: Recorder | None = None
        self._start = gevent.event.AsyncResult()
        for name, listener in (
            ("inferslo.ping", self._ping),
            ("inferslo.prepare", self._prepare),
            ("inferslo.start", self._started),
            ("inferslo.stop", self._stop),
        ):
            runner.register_message(name, listener)
        env.events.report_to_master.add_listener(self._report)
        env.events.heartbeat_received.add_listener(self._heartbeat)

    def leave_with_parent(self) -> None:
        """Ends this process when its stdin does, or when its parent is another one."""
        gevent.spawn(_exit_at_end_of_stdin)
        gevent.spawn(_exit_when_orphaned, os.getppid())

    def _heartbeat(self, **_: Any) -> None:
        self._master_heard = time.monotonic()

    def _ping(self, environment: Any, msg: Any) -> None:
        self._runner.send_message("inferslo.pong", {"id": msg.data["id"], "clock": time.monotonic_ns()})

    def _prepare(self, environment: Any, msg: Any) -> None:
        data = msg.data
        self._start = gevent.event.AsyncResult()
        EngineUser.work.put(lambda: self._offer(data))

    def _started(self, environment: Any, msg: Any) -> None:
        self._start.set(msg.data["epoch"])

    def _stop(self, environment: Any, msg: Any) -> None:
        if self._engine is not None and not self._start.ready():
            self._start.set(None)
        elif self._engine is not None:
            self._engine.stop(msg.data["reason"])

    def _offer(self, data: dict[str, Any]) -> None:
        """One load, start to finish, in the greenlet of the EngineUser."""
        index, run = data["worker"], data["run"]
        record = WorkerRecord(index, socket.gethostname(), os.getpid())
        try:
            order = LoadOrder.from_dict(json.loads(data["order"]))
            self._recorder = Recorder(index)
            ended = gevent.event.Event()
            self._engine = self._make(order, record, ended.set, data["workers"])
            self._warm(self._engine)
        except Exception as error:
            text = str(error) if isinstance(error, InfersloError) else traceback.format_exc()
            self._engine = None
            self._runner.send_message("inferslo.prepared", {"run": run, "worker": index, "error": text})
            return
        self._runner.send_message("inferslo.prepared", {"run": run, "worker": index, "error": ""})
        self._run(self._engine, ended)
        self._runner._send_stats()
        self._engine = self._recorder = None
        self._runner.send_message("inferslo.finished", {"run": run, "record": record.to_dict()})

    def _make(
        self, order: LoadOrder, record: WorkerRecord, on_end: Callable[[], None], workers: int
    ) -> Engine | LocustRun:
        assert self._recorder is not None
        if order.locustfile is not None:
            self._name = Path(order.locustfile["path"]).name
            return LocustRun(order, self._recorder, record, on_end, workers)
        workload = Workload(order, record.index, workers)
        workload.prepare(breathe=lambda: gevent.sleep(0))
        self._name = workload.kinds[0][0].path(workload.targets[0].endpoint.model)
        kind = Engine if workload.scenario.open_loop else ClosedLoopEngine
        record.engine = engine_build()
        loop = gevent.get_hub().loop
        kernel = order.stamps == "kernel"
        return kind(
            loop,
            workload,
            self._recorder,
            record,
            on_end,
            share=workers,
            kernel_stamps=kernel,
            spin=order.spin,
        )

    def _warm(self, engine: Engine | LocustRun) -> None:
        engine.warm()
        deadline = time.monotonic() + _WARM_SECONDS
        while engine.warming() and time.monotonic() < deadline:
            gevent.sleep(0.005)

    def _run(self, engine: Engine | LocustRun, ended: Any) -> None:
        epoch = self._start.get()
        self._master_heard = time.monotonic()
        if epoch is None:
            engine.stop("stopped before the load")
        else:
            engine.start(epoch)
            while not ended.wait(0.25):
                engine.measure_clock()
                self._stop_without_master(engine)

    def _stop_without_master(self, engine: Engine | LocustRun) -> None:
        """A master that is out of reach has given this worker up: no load goes on that nobody counts."""
        if time.monotonic() - self._master_heard > _MASTER_SILENCE_SECONDS:
            engine.stop("the master was out of reach")
            gevent.spawn(self._runner.quit)

    def _report(self, client_id: str, data: dict[str, Any]) -> None:
        engine, recorder = self._engine, self._recorder
        if engine is None or recorder is None:
            return
        try:
            taken = recorder.take()
        except Exception:
            engine.error(f"samples could not be taken: {traceback.format_exc()}")
            return
        engine.record.recorded = recorder.recorded
        add_to_locust(
            self._env.stats, self._name, np.frombuffer(taken.samples, SAMPLE_DTYPE), recorder.examples
        )
        data["inferslo"] = {
            "worker": engine.record.index,
            "batch": taken,
            "sent": engine.sent,
            "in_flight": engine.in_flight,
            "counts": recorder.counts,
            "examples": recorder.examples,
            "errors": engine.record.errors,
        }


def _exit_at_end_of_stdin() -> None:
    stdin = FileObjectPosix(sys.stdin.fileno(), "rb")
    while stdin.read(4096):
        pass
    os._exit(3)


def _exit_when_orphaned(parent: int) -> None:
    while os.getppid() == parent:
        gevent.sleep(1.0)
    os._exit(3)
