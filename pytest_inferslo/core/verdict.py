"""What a judged run says: one finding per objective, and the verdict over all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Status(Enum):
    """PASS: the evidence proves the promise. FAIL: it refutes it. INCONCLUSIVE: it does neither at the declared
    confidence. INVALID: the measurement cannot be trusted."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"

    @property
    def exit_code(self) -> int:
        return {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 8, "INVALID": 9}[self.value]


@dataclass(frozen=True)
class Finding:
    """One objective, judged.

    `limit`, `observed` and `interval` are in the metric's base unit (ns, shares as 0..1, bytes, ...); `observed`
    is None when it was not measured and inf when failures reach that rank. The `*_text` fields are for people.
    `severity` is `fail` or `warn`; a `warn` finding never decides a verdict. `optional` findings that were not
    measured are left out of it too, and say so in `reason`.
    """

    objective: str
    metric: str
    statistic: str
    scope: str
    limit: float | None
    limit_text: str
    observed: float | None
    observed_text: str
    interval: tuple[float, float] | None
    interval_text: str
    samples: int
    effective_samples: float
    status: Status
    reason: str = ""
    severity: str = "fail"
    optional: bool = False
    source: str = ""  # policy file:line


@dataclass(frozen=True)
class GuardFinding:
    """One validity guard: `ok` or not, what was seen against which threshold. A broken guard makes the run INVALID."""

    name: str
    ok: bool
    observed_text: str
    threshold_text: str
    reason: str = ""


@dataclass(frozen=True)
class Verdict:
    """The answer of one policy on one run (or on several repeats judged together)."""

    status: Status
    policy: str
    policy_sha256: str
    confidence: float
    findings: tuple[Finding, ...]
    guards: tuple[GuardFinding, ...]
    notes: tuple[str, ...] = ()
    rubric: dict[str, Any] | None = None
    run_ids: tuple[str, ...] = field(default_factory=tuple)
