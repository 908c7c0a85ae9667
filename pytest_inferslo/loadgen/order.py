"""What passes between pytest, the master and the workers, as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

#: Of the messages between master and workers; both sides must speak the same.
PROTOCOL = 2


@dataclass(frozen=True)
class LocustLoad:
    """Locust's own users as the load, for as long as the order's scenario says. `path` is absolute and exists
    on

    every worker's host; `users` over all workers; `spawn_rate` 1/s, 0 for all at once; `shape`: follow the
    file's LoadTestShape instead of `users`.
    """

    path: str
    users: int = 1
    spawn_rate: float = 0.0
    shape: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class LoadOrder:
    """One load to offer.

    `scenario` is Scenario.to_dict(), `endpoints` Endpoint.to_dict() each; `adapters` the run's adapter names,
    which samples refer to by position; `stamps` is `kernel` or `clock`; `spin`: each send is waited for with
    the processor (pacing.SpinPacer); `locustfile` is LocustLoad.to_dict() where Locust's own users are the load.
    """

    scenario: dict[str, Any]
    endpoints: list[dict[str, Any]]
    adapters: list[str]
    seed: int
    run_directory: str
    stamps: str = "kernel"
    spin: bool = False
    locustfile: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LoadOrder:
        return cls(**data)


@dataclass(frozen=True)
class Progress:
    """How far a load is, over all workers. `elapsed_s` counts from the epoch and is negative before it."""

    elapsed_s: float
    intended: int
    sent: int
    succeeded: int
    failed: int
    in_flight: int


@dataclass(frozen=True)
class LoadResult:
    """How a load went. `counts` has intended, issued, succeeded, failed, unfinished, never_sent; `outcomes`
    the

    count and one example of each outcome that is not SUCCESS; `workers` a WorkerRecord each. Anything in
    `errors` makes the run untrustworthy.
    """

    epoch_unix_ns: int
    epoch_monotonic_ns: int
    counts: dict[str, int]
    workers: list[dict[str, Any]]
    outcomes: dict[str, dict[str, Any]]
    stopped_early: str | None = None
    errors: list[str] = field(default_factory=list)


@dataclass
class WorkerRecord:
    """One worker's own account of a load. Times in ns; `cpu_share` of one core, without the time spun."""

    index: int
    host: str
    pid: int
    clock_offset_ns: int = 0
    clock_uncertainty_ns: int = 0
    cpu_share: float = 0.0
    cpu_ns: int = 0
    spun_ns: int = 0
    loop_lag_p99_ns: int = 0
    stamps: str = "clock"
    pacing: str = "libev"
    engine: str = "python"
    intended: int = 0
    issued: int = 0
    recorded: int = 0
    connections: int = 0
    replaced_connections: int = 0
    unsolicited: int = 0
    clock_steps: int = 0
    lost: bool = False
    errors: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def unheard_users(users: list[int], recorded: dict[int, int]) -> list[str]:
    """What is to be said of a closed loop that was not cut short and whose workers recorded fewer requests than
    they had users: each of them asks at least once.

    `users` by worker; `recorded` requests by worker.
    """
    return [
        f"worker {worker} had {count} users and recorded {recorded.get(worker, 0)} requests"
        for worker, count in enumerate(users)
        if recorded.get(worker, 0) < count
    ]
