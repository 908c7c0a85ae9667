"""The process between pytest and a server: all that the server starts stays below it, and dies with pytest.

Run by its path in a Python of its own (`python -I supervisor.py`), so it imports the standard library alone.
It is the *subreaper* of everything below it: a child that calls `setsid`, double-forks or loses its parent is
handed to the supervisor by the kernel, never to init, so that the server's family is exactly the supervisor's
descendants.

It obeys JSON lines on stdin and answers with JSON lines on stdout:

    -> {"command": [...], "cwd": ..., "log": PATH, "environment": {...}}     the first line: what to start
    <- {"event": "started", "pid": N}  or  {"event": "refused", "reason": TEXT}
    <- {"event": "exited", "status": N}                  the server itself ended; N < 0 is the signal's number
    -> {"stop": GRACE_SECONDS}
    <- {"event": "gone", "killed": [[pid, name]...], "survivors": [...]}           and the supervisor ends

End of file on stdin, the end of the pytest process, or SIGTERM mean "stop everything at once and end".
The server writes straight into its log file: there is no pump between them that could block either.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

#: Once the server itself is gone, its children have this long to follow before they are killed.
ORPHAN_GRACE_S = 1.0
#: After SIGKILL only a process stuck in the kernel remains; it is named instead of waited for.
KILL_WAIT_S = 5.0
#: What a server gets when nobody is left to wait for it.
ABANDONED_GRACE_S = 2.0

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Process(NamedTuple):
    """One row of the process table. (pid, started) names a process for ever, a pid alone is reused."""

    pid: int
    parent: int
    started: int  # clock ticks since boot
    zombie: bool


def process_table(proc_root: str = "/proc") -> dict[int, Process]:
    """All processes that can be seen now, by pid."""
    table: dict[int, Process] = {}
    for entry in os.listdir(proc_root):  # noqa: PTH208 - names alone, many times a second while stopping
        if entry.isdigit() and (process := read_process(int(entry), proc_root)) is not None:
            table[process.pid] = process
    return table


def read_process(pid: int, proc_root: str = "/proc") -> Process | None:
    """The row of one pid; None when there is no such process (any more)."""
    try:
        with Path(f"{proc_root}/{pid}/stat").open("rb") as file:
            # The name in parentheses may hold spaces and parentheses itself: fields count from the last one.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return Process(pid, int(fields[1]), int(fields[19]), fields[0] in (b"Z", b"X"))


def is_alive(pid: int, proc_root: str = "/proc") -> bool:
    """Whether there is such a process, and no mere zombie of it."""
    process = read_process(pid, proc_root)
    return process is not None and not process.zombie


def is_same(before: Process | None, now: Process | None) -> bool:
    """Whether `now` is the living process that `before` was: pids are reused, and zombies do not live."""
    return before is not None and now is not None and before.started == now.started and not now.zombie


def descendants(root: int, proc_root: str = "/proc") -> list[Process]:
    """Children of `root`, their children and so on; without `root`, without zombies, parents first."""
    children: dict[int, list[Process]] = {}
    for process in process_table(proc_root).values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            waiting.append(child.pid)
            found.append(child)
    return [process for process in found if not process.zombie]


def name_of(pid: int, proc_root: str = "/proc") -> str:
    """The command line of a process in at most 120 characters, or the kernel's short name for it."""
    with contextlib.suppress(OSError):
        with Path(f"{proc_root}/{pid}/cmdline").open("rb") as file:
            words = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        if words:
            return words if len(words) <= 120 else words[:117] + "..."
        return Path(f"{proc_root}/{pid}/comm").read_text().strip()
    return "?"


def kill_family(root: int, grace_s: float, leader: int | None, reap: Any) -> dict[str, list[tuple[int, str]]]:
    """Ends every descendant of `root`: SIGTERM to `leader`, `grace_s` to follow, then SIGKILL.

    `leader` (the server itself) is asked first and alone, since it knows how to end its own children; those
    that outlive it are asked too. `reap()` is called again and again to collect children that have ended.
    """
    killed: dict[int, str] = {}
    now = time.monotonic()
    deadline, abandoned_at, asked_orphans = now + grace_s, now + grace_s + KILL_WAIT_S, False
    if leader is not None:
        send_signal(leader, signal.SIGTERM)
    while True:
        reap()
        family = descendants(root)
        now = time.monotonic()
        if not family or now >= abandoned_at:
            break
        if not asked_orphans and not any(process.pid == leader for process in family):
            asked_orphans, deadline = True, min(deadline, now + ORPHAN_GRACE_S)
            for process in family:
                send_signal(process.pid, signal.SIGTERM)
        if now >= deadline:
            for process in family:
                killed.setdefault(process.pid, name_of(process.pid))
                send_signal(process.pid, signal.SIGKILL)
        time.sleep(0.02)
    reap()  # no zombie may stay behind: in a container there is often no init that would collect it
    left = [(process.pid, name_of(process.pid)) for process in family]
    gone = [(pid, name) for pid, name in killed.items() if pid not in dict(left)]
    return {"killed": gone, "survivors": left}


def send_signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


class Supervisor:
    """Owns one server from its start to the end of its last descendant."""

    def __init__(self, libc: Any) -> None:
        self._libc = libc
        self._server: int | None = None
        self._wake_read, wake_write = os.pipe()
        for end in (self._wake_read, wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_write)
        # Handlers, not SIG_IGN: the server must not inherit an ignored signal.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(self, order: dict[str, Any]) -> None:
        with Path(order["log"]).open("ab", buffering=0) as log:
            try:
                child = subprocess.Popen(
                    order["command"],
                    cwd=order["cwd"],
                    env=order["environment"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    preexec_fn=lambda: self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
                )
            except OSError as error:
                say(event="refused", reason=str(error))
                raise SystemExit(0) from None
        self._server = child.pid
        say(event="started", pid=child.pid)

    def reap(self) -> None:
        """Collects every ended child, ours or adopted; reports the server's own end."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._server:
                    self._server = None
                    say(event="exited", status=os.waitstatus_to_exitcode(ended[1]))

    def watch(self, parent: int) -> float:
        """Waits for an order to stop, or for the end of pytest; returns the seconds of grace."""
        poller = select.poll()
        poller.register(0, select.POLLIN | select.POLLHUP)
        poller.register(self._wake_read, select.POLLIN)
        with contextlib.suppress(OSError, AttributeError):
            poller.register(os.pidfd_open(parent), select.POLLIN)
        while True:
            self.reap()
            if os.getppid() != parent:
                return ABANDONED_GRACE_S
            ready = {fd for fd, _ in poller.poll(500)}
            if self._wake_read in ready and signal.SIGTERM in os.read(self._wake_read, 4096):
                return ABANDONED_GRACE_S
            if 0 in ready:
                line = sys.stdin.readline()
                return float(json.loads(line)["stop"]) if line.strip() else ABANDONED_GRACE_S

    def stop(self, grace_s: float) -> None:
        say(event="gone", **kill_family(os.getpid(), grace_s, self._server, self.reap))


def say(**event: Any) -> None:
    """Tells pytest; that nobody listens any more is no reason to stop the clean-up."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(event).encode() + b"\n")


def main() -> None:
    parent = int(sys.argv[1])
    supervisor = Supervisor(ctypes.CDLL(None, use_errno=True))
    order = sys.stdin.readline()
    if not order:
        return
    supervisor.start(json.loads(order))
    supervisor.stop(supervisor.watch(parent))


if __name__ == "__main__":
    main()
