"""A server that is ready: what the rest of a run needs to know about it, and its end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from pytest_inferslo.backends.completions import complete
from pytest_inferslo.backends.leftovers import GpuMemory, Leftovers
from pytest_inferslo.backends.probe import Probe
from pytest_inferslo.backends.process import ServerProcess, StopReport
from pytest_inferslo.backends.protocol import BackendOptions, Launch
from pytest_inferslo.backends.readiness import Ready, described, redacted
from pytest_inferslo.backends.simulated_pace import SimulatedPace, read_pace
from pytest_inferslo.backends.supervisor import is_same, read_process
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.errors import BackendDiedError, BackendError

_HEALTH_TIMEOUT_S = 1.0
_IDLE_TIMEOUT_S = 10.0
_STAYS_HEALTHY_S = 5.0
_MOST_ASKED = 32  # of a server that knows none of a scenario's adapters
_SIMULATED_SUFFIX = "+simulated"  # of the version that the embedded simulator reports, wherever it runs


class RunningServer:
    """One server, started by us or attached to; a context manager that stops what was started.

    `name`: what messages and records call it: the adapter's name, in a group the member's.
    `endpoints`: where requests go. `pid`: the root of the tree of all its processes, None for a server elsewhere.
    `metrics_url`: a page of Prometheus text, None when there is none. `adapters`: LoRA adapters it lists.
    `notes`: what a reader of the result should know, e.g. what stopping left behind.
    """

    def __init__(
        self,
        name: str,
        launch: Launch,
        options: BackendOptions,
        process: ServerProcess | None,
        ready: list[Ready],
        ready_s: float,
        leftovers: Leftovers | None = None,
        gpu_memory: GpuMemory | None = None,
    ) -> None:
        self.name = self.adapter = name
        self.endpoints: list[Endpoint] = [each.endpoint for each in ready]
        self.pid = process.root() if process else options.server_pid
        self.log_path = options.log_path if process else None
        self.ready_seconds = ready_s
        self.notes: list[str] = []
        self.stop_report: StopReport | None = None
        self._launch = launch
        self._process = process
        self._ready = ready
        self._leftovers = leftovers
        self._gpu_memory = gpu_memory
        self._lost_since: dict[int, float] = {}
        self._probe = Probe(self.endpoints[0])
        self._attached = read_process(self.pid) if self.pid is not None else None
        self._at_ready = {member.pid: member for member in process.family()} if process else {}
        self.version = self._ask_version()
        self.simulated = launch.simulated or (self.version or "").endswith(_SIMULATED_SUFFIX)
        self.metrics_url = self._find_metrics()
        self.adapters = list(ready[0].adapters or launch.adapters)

    @property
    def pids(self) -> list[int]:
        """Roots of the process trees that together are this server."""
        return [] if self.pid is None else [self.pid]

    @property
    def metrics_urls(self) -> dict[str, str]:
        """Pages of Prometheus text by the endpoint's name."""
        return {self.endpoints[0].name: self.metrics_url} if self.metrics_url else {}

    @property
    def record(self) -> dict[str, Any]:
        """The `backend` part of the run record; without secrets."""
        return {
            "name": self.name,
            "adapter": self.adapter,
            "kind": "attached" if self._process is None else "launched",
            "command": redacted(self._launch.command),
            "version": self.version,
            "simulated": self.simulated,
            "endpoints": [endpoint.to_dict() for endpoint in self.endpoints],
            "ready_seconds": round(self.ready_seconds, 3),
            "proved_by": self._ready[0].proved_by,
        }

    def answers(self, adapters: Sequence[str] = ()) -> list[dict[str, str | None]]:
        """As which model it answered the first completion, and answers each of `adapters` that it does not list.

        `endpoint`, `asked`, and `answered`: None where the answer named no model, or none came. What it lists is not
        asked: that would load adapters which a scenario may want to find cold.
        """
        endpoint = self.endpoints[0]
        found = [(endpoint.model, self._ready[0].answered_as)]
        for name in [name for name in adapters if name not in self.adapters][:_MOST_ASKED]:
            found.append((name, complete(self._probe, name, _IDLE_TIMEOUT_S).answered_as))
        return [{"endpoint": endpoint.name, "asked": asked, "answered": named} for asked, named in found]

    def check(self) -> None:
        """Raises BackendDiedError when the server, or a process that it needs, is gone.

        Cheap: call it often.
        """
        if self._process is None:
            if self.pid is not None and not is_same(self._attached, read_process(self.pid)):
                raise BackendDiedError(f"{self.name}: process {self.pid} (--server-pid) is gone")
            return
        self._check_family(self._process)
        if (status := self._process.poll()) is not None:
            raise BackendDiedError(
                f"{self.name}: the server exited with {described(status)}\n{self._process.log_tail()}"
            )

    def _check_family(self, process: ServerProcess) -> None:
        """A vanished child is a death only if the server, too, no longer calls itself healthy.

        Under load a health page may be late: no answer is no verdict. And a server may be late to notice the end of
        its engine: it must stay healthy for a while before the child is forgotten.
        """
        lost = [pid for pid, member in self._at_ready.items() if not is_same(member, read_process(pid))]
        if not lost or process.pid in lost:
            return
        if self._launch.health_path is not None:
            answer = self._probe.get(self._launch.health_path, _HEALTH_TIMEOUT_S)
            if answer.refused or answer.status not in (0, 200):
                raise BackendDiedError(
                    f"{self.name}: its process {lost[0]} is gone and its health page says {answer}\n"
                    f"{process.log_tail()}"
                )
        since = self._lost_since.setdefault(lost[0], time.monotonic())
        if time.monotonic() - since >= _STAYS_HEALTHY_S:
            self.notes.append(f"process {lost[0]} of the server ended while it stayed healthy")
            del self._at_ready[lost[0]]

    def paces(self) -> dict[str, SimulatedPace]:
        """How late a simulator was so far, by the server's name; nothing of a real engine."""
        if not self.simulated or self.metrics_url is None:
            return {}
        pace = read_pace(self._probe.get_url(self.metrics_url, _IDLE_TIMEOUT_S).text)
        return {self.name: pace} if pace is not None else {}

    def reset_between_scenarios(self) -> bool:
        """Empties the prefix cache; False when the server offers no way to.

        Raises BackendDiedError when the server is gone, or not healthy any more.
        """
        self.check()
        if self._process is not None and self._launch.health_path is not None:
            answer = self._probe.get(self._launch.health_path, _IDLE_TIMEOUT_S)
            if answer.status != 200:
                raise BackendDiedError(
                    f"{self.name}: its health page says {answer}\n{self._process.log_tail()}"
                )
        if self._launch.reset_cache_path is None:
            return False
        return self._probe.post(self._launch.reset_cache_path, {}, 30.0).status == 200

    def load_adapter(self, name: str, path: str) -> float:
        """Loads a LoRA adapter at run time; returns the seconds it took.

        Raises BackendError when it is refused.
        """
        body = {"lora_name": name, "lora_path": path}
        seconds = self._adapter_request("load", self._lora_path("load"), body, name)
        self.adapters.append(name)
        return seconds

    def unload_adapter(self, name: str) -> float:
        """Unloads a LoRA adapter; returns the seconds it took. Raises BackendError when it is refused."""
        seconds = self._adapter_request("unload", self._lora_path("unload"), {"lora_name": name}, name)
        self.adapters = [other for other in self.adapters if other != name]
        return seconds

    def _lora_path(self, which: str) -> str:
        if self._launch.lora_paths is None:
            raise BackendError(f"{self.name} was not started for adapters at run time (lora_runtime)")
        return str(getattr(self._launch.lora_paths, which))

    def _adapter_request(self, verb: str, path: str, body: Mapping[str, str], name: str) -> float:
        begun = time.monotonic()
        answer = self._probe.post(path, dict(body), 120.0)
        if answer.status != 200:
            raise BackendError(f"{self.name}: cannot {verb} adapter {name!r}: {answer}")
        return time.monotonic() - begun

    def _ask_version(self) -> str | None:
        if self._launch.version_path is None:
            return self._launch.version
        body = self._probe.get(self._launch.version_path, 5.0).json()
        version = body.get("version") if isinstance(body, dict) else None
        return version if isinstance(version, str) else self._launch.version

    def _find_metrics(self) -> str | None:
        if self._launch.metrics_url is None:
            return None
        answer = self._probe.get_url(self._launch.metrics_url, 5.0)
        is_prometheus = answer.status == 200 and "# TYPE " in answer.text
        return self._launch.metrics_url if is_prometheus else None

    def stop(self) -> None:
        """Ends what was started and waits until all of it is gone; an attached server is left alone."""
        if self._process is None or self.stop_report is not None:
            self._probe.close()
            return
        family = [member.pid for member in self._process.family()]
        if self._leftovers is not None:
            self._leftovers.see(family)
        self.stop_report = self._process.stop(self._launch.stop_grace_s)
        self._probe.close()
        if self.stop_report.survivors:
            self.notes.append(f"processes that could not be killed: {list(self.stop_report.survivors)}")
        if self._leftovers is not None and (left := self._leftovers.left()):
            self.notes.append(f"the server left behind: {', '.join(left)}")
        if self._gpu_memory is not None and (unsettled := self._gpu_memory.wait_settled()):
            self.notes.append(unsettled)

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
