"""`offer_load(locustfile=...)`: Locust's own users and shapes under a policy."""

from __future__ import annotations

from pathlib import Path

from pytest_inferslo.core.arrivals import concurrency
from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.errors import ScenarioError
from pytest_inferslo.loadgen.order import LocustLoad


def locust_order(
    locustfile: str | Path,
    *,
    near: Path,
    duration: str | float,
    users: int = 1,
    spawn_rate: float = 0.0,
    shape: bool = False,
    warmup: str | float = 0.0,
) -> tuple[Scenario, LocustLoad]:
    """The load of a locustfile for `duration`, and the scenario that stands for it in the record.

    `locustfile` is looked for from `near` (the test's folder), then from the working directory. `users` run at once
    over all workers, `spawn_rate` of them start in a second (0: all at once); with `shape` the file's LoadTestShape
    says both instead. Every `events.request` becomes a sample whose latency starts at the send; `ttft` (ms),
    `output_tokens` and `prompt_tokens` in its `context` are recorded too. Users take the backend's address as `host`.

    Raises ScenarioError for a file that is not there and for times as Scenario does.
    """
    path = next((found for found in (near / locustfile, Path(locustfile)) if found.is_file()), None)
    if path is None:
        raise ScenarioError(
            f"locustfile={str(locustfile)!r}: there is no such file in {near} or {Path.cwd()}"
        )
    scenario = Scenario(
        arrivals=concurrency(users),
        prompts=synthetic(input_tokens=1, output_tokens=1, unique=False),
        duration=duration,
        warmup=warmup,
        max_in_flight=max(1, users),  # Locust's users know no caps
        max_connections=max(1, users),
    )
    return scenario, LocustLoad(str(path.resolve()), users=users, spawn_rate=spawn_rate, shape=shape)
