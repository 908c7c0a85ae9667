"""A gate in miniature: a scripted server, a real load, and the verdict of a policy that is written in the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gate_runs import SCRIPTS, Gate, Seen, record_of

from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.judge import judge
from pytest_inferslo.core.policy import Policy
from pytest_inferslo.core.questions import questions
from pytest_inferslo.core.samples import SampleBatch
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.loadgen.offer import LoadGenerator, LoadOrder
from pytest_inferslo.policies import load_policy
from pytest_inferslo.servers.scripted import scripted
from pytest_inferslo.servers.scripted_cli import load_script
from pytest_inferslo.storage.samples import read_batches


@pytest.fixture(scope="session")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadGenerator]:
    with LoadGenerator(tmp_path_factory.mktemp("loadgen")) as running:
        yield running


@pytest.fixture
def policy(tmp_path: Path) -> Callable[[str], Policy]:
    """A policy of these objectives, one a line."""

    def written(*objectives: str, more: str = "") -> Policy:
        path = tmp_path / "gate.yaml"
        lines = "".join(f"  - {objective}\n" for objective in objectives)
        path.write_text(f"policy: gate\nobjectives:\n{lines}{more}")
        return load_policy(path)

    return written


@pytest.fixture
def gate(tmp_path: Path, generator: LoadGenerator, policy: Callable[..., Policy]) -> Gate:
    """Offers a scenario to the script of that name, and judges it by these objectives."""

    def judged(script: str | Path, scenario: Scenario, *objectives: str, more: str = "") -> Seen:
        path = script if isinstance(script, Path) else SCRIPTS / f"{script}.yaml"
        with scripted(load_script(path)) as server:
            endpoint = Endpoint(url=server.url, model="scripted")
            order = LoadOrder(scenario.to_dict(), [endpoint.to_dict()], [], scenario.seed, str(tmp_path))
            result = generator.offer(order)
            played = list(server.log)
        record = record_of(scenario, endpoint, result)
        mine = policy(*objectives, more=more).for_record(record)
        fold = Fold(record, questions(mine, record), mine.goals())
        samples = SampleBatch.concatenate(read_batches(tmp_path))
        fold.add(samples)
        summary = fold.result()
        return Seen(judge(mine, summary, record), summary, samples, result, played)

    return judged
