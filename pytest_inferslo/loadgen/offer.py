"""The pytest side of the load generator: starts its processes, gives it orders, and never imports Locust."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_inferslo.errors import LoadError
from pytest_inferslo.loadgen.order import LoadOrder, LoadResult, Progress

__all__ = ["LoadGenerator", "LoadOrder", "LoadResult", "Progress"]

_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_ROUND_SECONDS = 0.1
#: Without a word of the master for so long the load is over: while workers prepare (it gives them two minutes), and
#: once it reports (four times a second).
_PREPARING_SECONDS = 180.0
_SILENCE_SECONDS = 10.0
_PROGRESS_KEYS = ("elapsed_s", "intended", "sent", "succeeded", "failed", "in_flight")

OnProgress = Callable[[Progress], None]
ShouldStop = Callable[[], str | None]


class LoadRefused(LoadError):
    """The master refused an order; it and its workers can take the next one."""


class LoadInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a load; `result` is what had come of it, and its samples are written."""

    def __init__(self, result: LoadResult) -> None:
        super().__init__()
        self.result = result


class LoadGenerator:
    """One Locust master and its workers, for as many loads as a session has; a context manager.

    `directory` takes the logs of its processes. `workers` run here; `expect_workers` more are waited for from
    other hosts, which connect to `bind`:`port` (see docs/distributed.md: the protocol has no authentication).
    The processes start at once, beside whatever comes next, and are waited for by the first `offer`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        workers: int = 1,
        expect_workers: int = 0,
        bind: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        if workers < 0 or expect_workers < 0 or workers + expect_workers < 1:
            raise LoadError(f"{workers} local and {expect_workers} expected workers: at least one is needed")
        self._directory = directory
        self._workers = workers
        self._expected = workers + expect_workers
        self._bind, self._port = bind, port
        self._processes: list[subprocess.Popen[bytes]] = []
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._ready = False
        self._stopping = False
        self._patience, self._silent_rounds = _PREPARING_SECONDS, 0
        directory.mkdir(parents=True, exist_ok=True)
        #: what earlier sessions wrote is no news of this one
        self._old = {log: log.stat().st_size for log in directory.glob("*.log")}
        self._start()

    def __enter__(self) -> LoadGenerator:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """Where workers of other hosts connect to."""
        return f"{self._bind}:{self._port}"

    def pids(self) -> list[int]:
        """The master and the workers on this host."""
        return [process.pid for process in self._processes if process.poll() is None]

    def offer(
        self,
        order: LoadOrder,
        *,
        on_progress: OnProgress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> LoadResult:
        """Offers one load and blocks until every request is recorded in `order.run_directory`.

        `should_stop` is asked several times a second; a text ends the load early. KeyboardInterrupt ends it
        too, and LoadInterrupted is raised when the samples are written. Raises LoadError when the generator itself
        fails; a worker lost in mid-run ends the load at once and stands in the result's `errors`.
        """
        if not self._processes:
            self._start()
        self.wait_until_ready()
        self._stopping = False
        self._patience, self._silent_rounds = _PREPARING_SECONDS, 0
        self._tell({"do": "offer", "order": order.to_dict()})
        interrupted: KeyboardInterrupt | None = None
        while True:
            try:
                result = self._round(on_progress, should_stop)
            except KeyboardInterrupt as error:
                if interrupted is not None:
                    self.close()
                    raise
                interrupted = error
                on_progress, should_stop = None, lambda: "interrupted"
                continue
            except LoadRefused:
                raise
            except BaseException:
                self.close()
                raise
            if result is None:
                continue
            if any(worker["lost"] for worker in result.workers):
                self.close()
            if interrupted is not None:
                raise LoadInterrupted(result) from interrupted
            return result

    def _round(self, on_progress: OnProgress | None, should_stop: ShouldStop | None) -> LoadResult | None:
        """Hears the master once, at most; the result when that was it."""
        message = self._next(_ROUND_SECONDS)
        self._watch_workers()
        reason = should_stop() if should_stop is not None and not self._stopping else None
        if reason:
            self._stopping = True
            self._tell({"do": "stop", "reason": reason})
        if not message:
            self._silent()
            return None
        self._silent_rounds = 0
        match message.pop("event"):
            case "progress":
                self._patience = _SILENCE_SECONDS
                if on_progress is None:
                    return None
                on_progress(Progress(*(message[key] for key in _PROGRESS_KEYS)))
            case "refused":
                raise LoadRefused(message["text"])
            case "result":
                return LoadResult(**message)
        return None

    def _silent(self) -> None:
        """Counts rounds, not time: a machine that stood still has not heard anything either."""
        self._silent_rounds += 1
        if self._silent_rounds * _ROUND_SECONDS >= self._patience:
            raise self._broken(f"nothing was heard of the load generator's master for {self._patience:g} s")

    def wait_until_ready(self) -> None:
        """Until master and workers run, which `offer` waits for too. Raises LoadError when one of them does not."""
        deadline = time.monotonic() + _START_SECONDS
        while not self._ready:
            message = self._next(max(0.01, min(_ROUND_SECONDS, deadline - time.monotonic())))
            for process in self._processes[1:]:
                if process.poll() is not None:
                    raise self._broken(f"a worker ended with status {process.returncode} before any load")
            if message and message["event"] == "listening":
                self._port = message["port"]
                self._start_workers()
            elif message and message["event"] == "ready":
                self._ready = True
            elif time.monotonic() > deadline:
                raise self._broken(
                    f"not all of {self._expected} workers connected to {self.address} in {_START_SECONDS:g} s"
                )

    def close(self) -> None:
        """Ends master and workers; returns when they are gone."""
        processes, self._processes = self._processes, []
        self._ready = False
        for process in processes:
            if process.stdin is not None:
                try:
                    process.stdin.close()
                except OSError:
                    pass
        deadline = time.monotonic() + _STOP_SECONDS
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        self._messages = queue.Queue()
        master = self._spawn(
            "master",
            ["master", "--bind", self._bind, "--port", str(self._port), "--workers", str(self._expected)],
            stdout=subprocess.PIPE,
        )
        threading.Thread(target=_read_lines, args=(master.stdout, self._messages), daemon=True).start()

    def _spawn(self, name: str, argv: list[str], stdout: int | None = None) -> subprocess.Popen[bytes]:
        """Children get a session of their own, so that a terminal's Ctrl-C reaches them through us alone."""
        with (self._directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", f"pytest_inferslo.loadgen.{argv[0]}", *argv[1:]],
                stdin=subprocess.PIPE,
                stdout=stdout if stdout is not None else log,
                stderr=log,
                start_new_session=True,
                env=_clean_environment(),
            )
        self._processes.append(process)
        return process

    def _start_workers(self) -> None:
        host = "127.0.0.1" if self._bind in ("0.0.0.0", "*") else self._bind
        for number in range(self._workers):
            self._spawn(f"worker-{number}", ["worker", "--child", "--master", f"{host}:{self._port}"])

    def _watch_workers(self) -> None:
        for process in list(self._processes[1:]):
            if process.poll() is not None:
                self._processes.remove(process)
                self._tell({"do": "lost", "pid": process.pid})

    def _next(self, timeout: float) -> dict[str, Any] | None:
        try:
            message = self._messages.get(timeout=timeout)
        except queue.Empty:
            return None
        if message is None:
            raise self._broken("the load generator's master ended")
        return message

    def _tell(self, command: dict[str, Any]) -> None:
        stdin = self._processes[0].stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(command).encode() + b"\n")
            stdin.flush()
        except OSError as error:
            raise self._broken(f"the load generator's master ended ({error})") from error

    def _broken(self, what: str) -> LoadError:
        self.close()
        logs = sorted(self._directory.glob("*.log"))
        tails = [text for log in logs if (text := _tail(log, self._old.get(log, 0)))]
        return LoadError("\n".join([f"{what}; logs in {self._directory}", *tails]))


def _read_lines(stdout: Any, messages: queue.Queue[dict[str, Any] | None]) -> None:
    for line in stdout:
        messages.put(json.loads(line))
    messages.put(None)


def _tail(log: Path, since: int) -> str:
    lines = log.read_bytes()[since:].decode(errors="replace").splitlines()[-15:]
    return "\n".join([f"--- {log.name}", *lines]) if lines else ""


def _clean_environment() -> dict[str, str]:
    """No proxies and no Locust settings: the load goes straight to its endpoints."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith("LOCUST_")
    }
