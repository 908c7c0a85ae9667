"""CPU and memory of the server's process tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_inferslo.telemetry.limits import limits_of
from pytest_inferslo.telemetry.processes import Processes, ProcessTree

SERVER_METRICS = ("server_cpu", "server_cpu_cores", "server_cpu_increase", "server_memory")
SOURCE = "server"

#: Reading PSS walks a process's page tables; it may take one part in so many of the time.
_PSS_DUTY = 200


class ServerProbe:
    """Reads one server after another, should it be started anew: `server_pids` says which are its roots now."""

    def __init__(
        self, server_pids: Callable[[], list[int]], processes: Processes, clock: Callable[[], int], root: Path
    ) -> None:
        self._server_pids, self._processes, self._clock, self._root = server_pids, processes, clock, root
        self._tree: ProcessTree | None = None
        self._last: tuple[int, float] | None = None
        self._cpus = 0.0
        self._memory = _TreeMemory(processes, clock)
        self._readings = 0
        self._seen = False

    @property
    def pids(self) -> list[int]:
        return list(self._tree.members) if self._tree else []

    def read(self) -> list[tuple[str, str, float]]:
        """(metric, source, value) over the time since the last read. The first read of a tree gives no CPU
        value: it only begins the interval."""
        pids = self._server_pids()
        if not pids:
            self._tree = self._last = None
            return []
        if self._tree is None or self._tree.roots != frozenset(pids):
            self._tree, self._last = ProcessTree(self._processes, *pids), None
            self._cpus = max(limits_of(pid, root=self._root).cpus for pid in pids)
        cpu, now = self._tree.read(), self._clock()
        if cpu is None:
            self._last = None
            return []
        self._seen = True
        values = [("server_memory", SOURCE, float(self._memory.read(self._tree, now)))]
        if self._last is not None and now > self._last[0]:
            cores = (cpu - self._last[1]) / ((now - self._last[0]) / 1e9)
            values += [("server_cpu_cores", SOURCE, cores), ("server_cpu", SOURCE, cores / self._cpus)]
            self._readings += 1
        self._last = now, cpu
        return values

    def absent(self) -> dict[str, str]:
        if self._readings:
            return {}
        if not self._seen and not self._server_pids():
            cause = "the server was not started here: its processes cannot be read (see --server-pid)"
        elif not self._seen:
            cause = "no process of the server could be read"
        else:
            return dict.fromkeys(SERVER_METRICS[:3], "fewer than two readings of the server's processes")
        return dict.fromkeys(SERVER_METRICS, cause)

    def notes(self) -> list[str]:
        return self._memory.notes()


class _TreeMemory:
    """PSS of a tree. Between two readings of a process's PSS it moves with the process's RSS, which costs
    nothing to read; where PSS may not be read, RSS stands in for it and counts shared pages more than
    once."""

    def __init__(self, processes: Processes, clock: Callable[[], int]) -> None:
        self._processes, self._clock = processes, clock
        self._shared: dict[tuple[int, float], int] = {}  # RSS - PSS, at the latest reading of PSS
        self._next_ns = 0
        self._by_rss: set[int] = set()

    def read(self, tree: ProcessTree, now: int) -> int:
        """Bytes."""
        due = now >= self._next_ns
        known, self._shared = self._shared, {}
        before = self._clock()
        total = 0
        for sample in tree.members.values():
            key = sample.pid, sample.started
            if due or key not in known:
                pss = self._processes.pss(sample.pid)
                if pss is None and sample.rss:
                    self._by_rss.add(sample.pid)
                self._shared[key] = sample.rss - pss if pss is not None else 0
            else:
                self._shared[key] = known[key]
            total += max(0, sample.rss - self._shared[key])
        if due:
            self._next_ns = now + _PSS_DUTY * (self._clock() - before)
        return total

    def notes(self) -> list[str]:
        if not self._by_rss:
            return []
        return [f"server_memory counts RSS, not PSS, for {len(self._by_rss)} processes (not readable as PSS)"]


class LoadGeneratorProbe:
    """CPU of the load generator's own processes, each as a share of one core."""

    def __init__(self, pids: Callable[[], list[int]], processes: Processes, clock: Callable[[], int]) -> None:
        self._pids, self._processes, self._clock = pids, processes, clock
        self._last: dict[tuple[int, float], tuple[int, float]] = {}

    def read(self) -> list[tuple[str, str, float]]:
        values = []
        current: dict[tuple[int, float], tuple[int, float]] = {}
        for pid in self._pids():
            sample = self._processes.sample(pid)
            if sample is None:
                continue
            now, key = self._clock(), (pid, sample.started)
            if key in self._last and now > self._last[key][0]:
                then, cpu = self._last[key]
                values.append(("loadgen_cpu", f"loadgen:{pid}", (sample.cpu - cpu) / ((now - then) / 1e9)))
            current[key] = now, sample.cpu
        self._last = current
        return values
