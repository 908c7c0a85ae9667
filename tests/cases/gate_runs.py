"""What a gate in miniature has seen: one load, judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.samples import Outcome, SampleBatch
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import Finding, Verdict
from pytest_inferslo.loadgen.offer import LoadResult
from pytest_inferslo.servers.play import Played

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Seen:
    """One load, judged."""

    verdict: Verdict
    summary: Summary
    samples: SampleBatch
    result: LoadResult
    played: list[Played]

    def finding(self, metric: str) -> Finding:
        return next(finding for finding in self.verdict.findings if finding.metric == metric)

    @property
    def outcomes(self) -> dict[Outcome, int]:
        return self.summary.counts().outcomes


Gate = Callable[..., Seen]


def record_of(scenario: Scenario, endpoint: Endpoint, result: LoadResult) -> dict[str, Any]:
    start, end = scenario.window_ns
    return {
        "run_id": "run",
        "scenario": {"name": "case", "definition": scenario.to_dict()},
        "backend": {"name": "script", "kind": "script", "endpoints": [endpoint.to_dict()]},
        "window": {"start": start, "end": end},
        "phases": [{"name": p.name, "start": p.start_ns, "end": p.end_ns} for p in scenario.phases()],
        "counts": result.counts,
        "workers": result.workers,
        "errors": result.errors,
        "adapters": [],
        "absent": {},
    }
