"""Processes for tests, moved by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pytest_inferslo.telemetry.processes import ProcessSample


@dataclass
class FakeProcesses:
    """A system of processes that a test writes by hand."""

    table: dict[int, ProcessSample] = field(default_factory=dict)
    shares: dict[int, int] = field(default_factory=dict)  # pid -> PSS
    pss_reads: int = 0

    def pids(self) -> list[int]:
        return list(self.table)

    def sample(self, pid: int) -> ProcessSample | None:
        return self.table.get(pid)

    def pss(self, pid: int) -> int | None:
        self.pss_reads += 1
        return self.shares.get(pid)

    def put(self, pid: int, parent: int = 1, *, session: int = 1, rss: int = 0, started: float = 0.0) -> None:
        self.table[pid] = ProcessSample(pid, started, parent, session, 0.0, 0.0, rss)

    def run(self, pid: int, seconds: float) -> None:
        self.table[pid] = replace(self.table[pid], cpu=self.table[pid].cpu + seconds)

    def end(self, pid: int, *, reaper: int | None, unseen: float = 0.0) -> None:
        """The process uses `unseen` more seconds, ends, and `reaper` waits for it (None: nobody collects)."""
        gone = self.table.pop(pid)
        if reaper is not None:
            waiting = self.table[reaper]
            collected = gone.cpu + gone.reaped_cpu + unseen
            self.table[reaper] = replace(waiting, reaped_cpu=waiting.reaped_cpu + collected)
