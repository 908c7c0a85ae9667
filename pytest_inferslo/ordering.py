"""From a scenario and the policies that will judge it to the order of a run, or to what cannot be shown by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_inferslo.core.policy import Policy, unmeasurable
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.errors import ScenarioError
from pytest_inferslo.options import Options
from pytest_inferslo.record import Order, adapter_names

if TYPE_CHECKING:
    from pytest_inferslo.loadgen.order import LocustLoad

_CLOSED_NOTE = "closed loop: latency starts when a user is free to ask; a slow server is asked less often"
_LOCUST_NOTE = "closed loop: latency starts at the send; stalls do not show in requests that users never made"


def ordered(
    scenario: Scenario,
    locustfile: LocustLoad | None,
    *,
    name: str,
    source: tuple[str, int],
    policies: Sequence[Policy],
    backends: Sequence[str],
    endpoints: Sequence[str] | None,
    options: Options,
) -> Order:
    """`name` and `source` (file, line) are those of the load, `backends` the names by which policies may call the
    server, and `endpoints` those of its parts where they are known. Raises ScenarioError for promises that the scenario
    cannot show, all of them at once."""
    offered = scenario.shortened(options.load_seconds) if options.load_seconds else scenario
    phases = list(dict.fromkeys(phase.name for phase in offered.phases()))
    faults: list[str] = []
    for policy in policies:
        faults += unmeasurable(
            policy.resolved(name, *backends),
            streaming=any(stream.streaming for stream in offered.streams),
            phases=phases,
            adapters=[*adapter_names(offered), "base"],
            streams=[stream.name for stream in offered.streams],
            endpoints=endpoints,
        )
    if faults:
        raise ScenarioError("\n".join(faults))
    notes = [_LOCUST_NOTE] if locustfile else [] if offered.open_loop else [_CLOSED_NOTE]
    if offered is not scenario:
        notes.append(f"shortened from {scenario.duration:g} s to {offered.duration:g} s by --load-seconds")
    elif options.load_seconds:
        notes.append(
            f"--load-seconds={options.load_seconds:g} leaves its {scenario.duration:g} s as they are"
        )
    return Order(
        scenario=offered,
        name=name,
        source=source,
        policies=tuple(
            {"name": policy.name, "path": policy.file, "sha256": policy.sha256} for policy in policies
        ),
        base=options.directory,
        load_seconds=options.load_seconds if offered is not scenario else None,
        notes=tuple(notes),
        locustfile=locustfile,
        pacing=options.pacing,
        records_baseline=options.record_baseline
        and any(policy.resolved(name, *backends).refers_to("baseline") for policy in policies),
    )
