"""Several servers behind one scenario: replicas, a canary beside the stable version, a hybrid of two engines.

    # two replicas on a GPU each, and a server elsewhere that takes a tenth of the requests
    backends:
      - backend: vllm
        model: /models/llama
        replicas: 2
        weight: 90
        args: [--max-num-seqs=256]
        env: {CUDA_VISIBLE_DEVICES: "{replica}"}
      - url: https://canary.example/v1
        name: canary
        weight: 10
        api_key_env: CANARY_KEY

`{replica}` counts from 0 in `args` and `env`. Weights are shares of the requests; replicas divide theirs
evenly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from pytest_inferslo.backends.protocol import Backend, BackendOptions, StartProgress
from pytest_inferslo.backends.readiness import OnProgress
from pytest_inferslo.backends.server import RunningServer
from pytest_inferslo.backends.simulated_pace import SimulatedPace
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.errors import BackendConfigError, BackendStartError


@dataclass(frozen=True)
class Member:
    """One server of a group: `name` is its endpoint's name in results, `weight` its share of the requests."""

    name: str
    backend: Backend
    options: BackendOptions
    weight: float


@dataclass(frozen=True)
class Group:
    """What a group file asks for; `name` is the file's stem."""

    name: str
    members: tuple[Member, ...]


class RunningGroup:
    """Several ready servers that take the requests of one scenario; looks like one RunningServer."""

    def __init__(self, name: str, members: Sequence[Member], servers: Sequence[RunningServer]) -> None:
        self.name = name
        self.servers = tuple(servers)
        self.endpoints: list[Endpoint] = [
            replace(endpoint, name=member.name, weight=member.weight / len(server.endpoints))
            for member, server in zip(members, servers, strict=True)
            for endpoint in server.endpoints
        ]
        self.simulated = any(server.simulated for server in servers)
        self.ready_seconds = max(server.ready_seconds for server in servers)
        self.metrics_url: str | None = None
        self.adapters = [
            name for name in servers[0].adapters if all(name in each.adapters for each in servers)
        ]

    @property
    def pids(self) -> list[int]:
        """Roots of the members' process trees; members that run elsewhere have none."""
        return [pid for server in self.servers for pid in server.pids]

    @property
    def pid(self) -> int | None:
        """The only process tree of the group; None when there are several (see `pids`) or none."""
        return self.pids[0] if len(self.pids) == 1 else None

    @property
    def metrics_urls(self) -> dict[str, str]:
        """Pages of Prometheus text by the endpoint's name."""
        names = [endpoint.name for endpoint in self.endpoints]
        return {
            name: server.metrics_url
            for name, server in zip(names, self.servers, strict=True)
            if server.metrics_url
        }

    @property
    def log_path(self) -> Path | None:
        """The first member's log; the others' lie beside it."""
        return next((server.log_path for server in self.servers if server.log_path), None)

    @property
    def version(self) -> str | None:
        versions = {server.version for server in self.servers if server.version}
        return ", ".join(sorted(versions)) or None

    @property
    def notes(self) -> list[str]:
        return [f"{server.name}: {note}" for server in self.servers for note in server.notes]

    @property
    def record(self) -> dict[str, Any]:
        """The `backend` part of the run record; `members` holds that of each server."""
        return {
            "name": self.name,
            "kind": "group",
            "command": [],
            "version": self.version,
            "simulated": self.simulated,
            "endpoints": [endpoint.to_dict() for endpoint in self.endpoints],
            "ready_seconds": round(self.ready_seconds, 3),
            "members": [server.record for server in self.servers],
        }

    def answers(self, adapters: Sequence[str] = ()) -> list[dict[str, str | None]]:
        """As which models the members answer, see RunningServer."""
        return [
            answer | {"endpoint": server.name}
            for server in self.servers
            for answer in server.answers(adapters)
        ]

    def check(self) -> None:
        """Raises BackendDiedError when any member is gone."""
        for server in self.servers:
            server.check()

    def paces(self) -> dict[str, SimulatedPace]:
        """How late each simulator among them was so far, by its name."""
        return {name: pace for server in self.servers for name, pace in server.paces().items()}

    def reset_between_scenarios(self) -> bool:
        """True when every member emptied its prefix cache."""
        outcomes = [server.reset_between_scenarios() for server in self.servers]  # each, also after a False
        return all(outcomes)

    def stop(self) -> None:
        stop_all(self.servers)

    def __enter__(self) -> RunningGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


StartOne = Callable[[Backend, BackendOptions, OnProgress | None], RunningServer]


def start_group(
    group: Group, options: BackendOptions, on_progress: OnProgress | None, start_one: StartOne
) -> RunningGroup:
    """Starts all members side by side; the first that fails ends the others. Same errors as `start`."""
    log = options.log_path
    started: dict[int, RunningServer] = {}
    abandoned = threading.Event()

    def start_member(index: int, member: Member) -> None:
        member_log = log.with_name(f"{log.stem}-{member.name}{log.suffix}")

        def tell(progress: StartProgress) -> None:
            if abandoned.is_set():
                raise BackendStartError("given up, since another member of the group failed")
            if on_progress is not None:
                on_progress(replace(progress, step=f"{member.name}: {progress.step}"))

        try:
            server = start_one(member.backend, replace(member.options, log_path=member_log), tell)
            server.name = member.name
            started[index] = server
        except (BackendStartError, BackendConfigError) as error:
            raise type(error)(f"{member.name}: {error}") from error

    with ThreadPoolExecutor(max_workers=len(group.members), thread_name_prefix="inferslo-start") as pool:
        futures = [pool.submit(start_member, *numbered) for numbered in enumerate(group.members)]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            abandoned.set()
            pool.shutdown(wait=True)
            stop_all(started.values())
            raise
    return RunningGroup(group.name, group.members, [started[index] for index in range(len(group.members))])


def stop_all(servers: Iterable[RunningServer]) -> None:
    """Stops servers side by side: their graces pass together."""
    together = list(servers)
    with ThreadPoolExecutor(max_workers=max(1, len(together)), thread_name_prefix="inferslo-stop") as pool:
        list(pool.map(lambda server: server.stop(), together))
