"""What a judged run says: one finding per objective, and the verdict over all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any


class Status(Enum):
    """PASS: the evidence proves the promise. FAIL: it refutes it. INCONCLUSIVE: it does neither at the
    declared confidence. INVALID: the measurement cannot be trusted."""

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

    `limit`, `observed` and `interval` are in the metric's base unit (ns, shares as 0..1, bytes, ...);
    `observed` is None when it was not measured and inf when failures reach that rank. The `*_text` fields
    are for people. `severity` is `fail` or `warn`; a `warn` finding never decides a verdict. `optional`
    findings that were not measured are left out of it too, and say so in `reason`.
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
    """One validity guard: whether it is `ok`, and what was seen. A broken guard makes the run INVALID.

    `follows` names the broken guard that this one was bound to follow, if there is one: it is no fault of its own.
    """

    name: str
    ok: bool
    observed_text: str
    threshold_text: str
    reason: str = ""
    follows: str = ""


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

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it: statuses by name, `inf` as the string "inf" (JSON has no infinity)."""
        return {
            "schema_version": 1,
            "exit_code": self.status.exit_code,
            **{item.name: encoded(getattr(self, item.name)) for item in fields(self)},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        """The verdict that `to_dict` gave, after a trip through JSON too."""
        return cls(
            status=Status(data["status"]),
            policy=data["policy"],
            policy_sha256=data["policy_sha256"],
            confidence=data["confidence"],
            findings=tuple(_finding(item) for item in data["findings"]),
            guards=tuple(GuardFinding(**_known(GuardFinding, item)) for item in data["guards"]),
            notes=tuple(data["notes"]),
            rubric=data.get("rubric"),  # its numbers are finite
            run_ids=tuple(data["run_ids"]),
        )


def _finding(data: Mapping[str, Any]) -> Finding:
    values = _known(Finding, data)
    for name in ("limit", "observed", "interval", "effective_samples"):
        values[name] = _decoded(values[name])
    interval = values["interval"]
    return Finding(
        **values
        | {"status": Status(values["status"]), "interval": tuple(interval) if interval is not None else None}
    )


def _known(kind: type[Finding] | type[GuardFinding], data: Mapping[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(kind)}
    return {name: value for name, value in data.items() if name in names}


def encoded(value: Any) -> Any:
    """As JSON can hold it: statuses by name, and what is not finite as "inf", "-inf" or "nan"."""
    if isinstance(value, Status):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (Finding, GuardFinding)):
        return {item.name: encoded(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encoded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encoded(item) for item in value]
    return value


_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        return _NUMBERS.get(value, value)
    return [_decoded(item) for item in value] if isinstance(value, list) else value
