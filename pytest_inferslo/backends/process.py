"""A server as a process: started under a supervisor, watched, and ended with everything it ever started."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_inferslo.backends import supervisor
from pytest_inferslo.backends.supervisor import Process, descendants, is_alive, name_of
from pytest_inferslo.errors import BackendConfigError, BackendStartError

#: Stands in the environment of the server and, unless they clear it, of all its descendants.
MARKER = "INFERSLO_SERVER_ID"

_TAIL_BYTES, _LINE_CHARACTERS, _ERROR_LINES = 65_536, 400, 5
_SPEAKS_OF_ERROR = re.compile(r"error|exception|fatal|out of memory", re.IGNORECASE)


@dataclass(frozen=True)
class StopReport:
    """How a server ended: `killed` had to be killed, `survivors` could not even be.

    `(pid, command line)` pairs.
    """

    seconds: float
    killed: tuple[tuple[int, str], ...] = ()
    survivors: tuple[tuple[int, str], ...] = ()


class ServerProcess:
    """One running server command. `pid` is the server's own, the root of its process tree.

    Raises BackendConfigError when the command cannot be executed at all.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log_path: Path,
        cwd: Path | None = None,
    ) -> None:
        if not Path("/proc/self/stat").exists():
            raise BackendConfigError(
                "starting a server needs Linux; start it yourself and pass its URL as --backend"
            )
        program, *arguments = command
        # The supervisor works in "/": paths that are meant from here must say so. Links in them stay, since a
        # virtual environment is found by the path of its interpreter.
        self.command = (os.path.abspath(program) if os.sep in program else program, *arguments)  # noqa: PTH100
        self.log_path = log_path.absolute()
        self.status: int | None = None
        self._marker = f"{MARKER}={uuid.uuid4().hex}"
        self._events = b""
        self._family: dict[int, Process] = {}
        self._stopped: StopReport | None = None
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._supervisor = self._start_supervisor()
        name, _, value = self._marker.partition("=")
        order = {
            "command": self.command,
            "cwd": str((cwd or Path()).absolute()),
            "log": str(self.log_path),
            "environment": {**environment, name: value},
        }
        self._tell(order)
        self.pid = self._await_start()

    def _start_supervisor(self) -> subprocess.Popen[bytes]:
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", supervisor.__file__, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                start_new_session=True,  # out of the terminal's Ctrl-C: it ends the server in order instead
            )

    def _await_start(self) -> int:
        event = self._next_event(30.0)
        if event is not None and event["event"] == "started":
            return int(event["pid"])
        self._supervisor.kill()
        self._supervisor.wait()
        if event is None:
            raise BackendStartError(f"the supervisor of {self.command[0]} did not start\n{self.log_tail()}")
        raise BackendConfigError(f"cannot run {self.command[0]!r}: {event['reason']}")

    def poll(self) -> int | None:
        """The server's exit status once it has ended (negative: by that signal), None while it runs."""
        while self._read_event(0.0) is not None:
            pass
        if self.status is None and not is_alive(self.pid):
            # Its end is on its way from the supervisor, unless that was killed too.
            self._next_event(1.0)
            self.status = self.status if self.status is not None else -9
        return self.status

    def root(self) -> int:
        """The pid below which every process of the server is found now.

        That is the server's own, or its supervisor's (9 MB, no CPU to speak of) when processes have left the server's
        tree, as MPI daemons and their ranks do.
        """
        own = {self.pid, *(process.pid for process in descendants(self.pid))}
        return self.pid if all(process.pid in own for process in self.family()) else self._supervisor.pid

    def family(self) -> list[Process]:
        """The server and all processes that it has started, as far as they live, wherever they moved."""
        if self._supervisor.poll() is None:
            family = descendants(self._supervisor.pid)
        else:
            family = self._orphans()
        self._family.update((process.pid, process) for process in family)
        return family

    def _orphans(self) -> list[Process]:
        """What lives of the family after its supervisor was killed.

        By memory and by the mark in the environment.
        """
        return [
            process
            for process in supervisor.process_table().values()
            if not process.zombie and (self._remembers(process) or self._is_marked(process.pid))
        ]

    def _remembers(self, process: Process) -> bool:
        return supervisor.is_same(self._family.get(process.pid), process)

    def _is_marked(self, pid: int) -> bool:
        try:
            return self._marker.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def stop(self, grace_s: float) -> StopReport:
        """Ends the whole family and waits until the last of it is gone. Safe to call twice."""
        if self._stopped is not None:
            return self._stopped
        begun = time.monotonic()
        self.family()
        self._tell({"stop": grace_s})
        patience = begun + grace_s + supervisor.ORPHAN_GRACE_S + supervisor.KILL_WAIT_S + 5.0
        outcome: dict[str, Any] | None = None
        while outcome is None and time.monotonic() < patience:
            event = self._read_event(0.2)
            if event is not None and event["event"] == "gone":
                outcome = event
            elif event is None and self._supervisor.poll() is not None and self._read_event(0.0) is None:
                break
        if outcome is None:
            self._supervisor.kill()
            self._supervisor.wait()
            outcome = self._kill_orphans()
        self._supervisor.wait()
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        self.status = self.status if self.status is not None else -9
        self._stopped = StopReport(
            seconds=time.monotonic() - begun,
            killed=tuple((pid, name) for pid, name in outcome["killed"]),
            survivors=tuple((pid, name) for pid, name in outcome["survivors"]),
        )
        return self._stopped

    def _kill_orphans(self) -> dict[str, Any]:
        killed: dict[int, str] = {}
        deadline = time.monotonic() + supervisor.KILL_WAIT_S
        while (orphans := self._orphans()) and time.monotonic() < deadline:
            for process in orphans:
                killed.setdefault(process.pid, name_of(process.pid))
                supervisor.send_signal(process.pid, 9)
            time.sleep(0.02)
        survivors = [(process.pid, name_of(process.pid)) for process in orphans]
        return {"killed": [*killed.items()], "survivors": survivors}

    def log_tail(self, lines: int = 20) -> str:
        """The last lines that this server wrote, after earlier ones that speak of errors.

        A sentence for an empty log.
        """
        try:
            with self.log_path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - _TAIL_BYTES))
                written = log.read().decode(errors="replace").splitlines()
        except OSError as error:
            return f"(its log cannot be read: {error})"
        if not written:
            return f"it wrote nothing to {self.log_path}"
        errors = [line for line in written[:-lines] if _SPEAKS_OF_ERROR.search(line)][-_ERROR_LINES:]
        quoted = [*errors, *(["[...]"] if errors else []), *written[-lines:]]
        return f"last lines of {self.log_path}:\n" + "\n".join(line[:_LINE_CHARACTERS] for line in quoted)

    def _tell(self, order: dict[str, Any]) -> None:
        assert self._supervisor.stdin is not None
        try:
            self._supervisor.stdin.write(json.dumps(order).encode() + b"\n")
            self._supervisor.stdin.flush()
        except BrokenPipeError:
            pass

    def _next_event(self, timeout_s: float) -> dict[str, Any] | None:
        deadline = time.monotonic() + timeout_s
        while (event := self._read_event(0.1)) is None:
            if time.monotonic() > deadline or self._supervisor.poll() is not None:
                return self._read_event(0.0)
        return event

    def _read_event(self, timeout_s: float) -> dict[str, Any] | None:
        """One line from the supervisor, or None when none came in time.

        Keeps the exit status as it passes by.
        """
        assert self._supervisor.stdout is not None
        if b"\n" not in self._events and not self._supervisor.stdout.closed:
            poller = select.poll()
            poller.register(self._supervisor.stdout, select.POLLIN)
            if poller.poll(timeout_s * 1000):
                self._events += os.read(self._supervisor.stdout.fileno(), 65_536)
        line, newline, rest = self._events.partition(b"\n")
        if not newline:
            return None
        self._events = rest
        event: dict[str, Any] = json.loads(line)
        if event["event"] == "exited":
            self.status = int(event["status"])
        return event
