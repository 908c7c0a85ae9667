"""Evidence as a finding: the same numbers, and the words for people."""

from __future__ import annotations

import math

from pytest_inferslo.core.distribution import Scope
from pytest_inferslo.core.evidence import Evidence
from pytest_inferslo.core.objective import Objective
from pytest_inferslo.core.questions import scope_text
from pytest_inferslo.core.units import format_quantity
from pytest_inferslo.core.verdict import Finding, Status


def finding(objective: Objective, scope: Scope, evidence: Evidence) -> Finding:
    limit, dimension = objective.limit, objective.limit.dimension
    resolved = limit.offset if limit.reference is None else evidence.limit

    def shown(value: float) -> str:
        return format_quantity(value, dimension, apart_from=resolved, currency=limit.currency)

    limit_text = limit.text
    if limit.reference is not None:
        limit_text += f" ({'unknown' if resolved is None else shown(resolved)})"
    reason = evidence.reason
    if objective.optional and evidence.observed is None and evidence.status is not Status.PASS:
        reason = f"{reason} (optional: left out of the verdict)"
    return Finding(
        objective=objective.text,
        metric=objective.metric.name,
        statistic=str(objective.statistic),
        scope=scope_text(scope),
        limit=resolved,
        limit_text=limit_text,
        observed=evidence.observed,
        observed_text="not measured" if evidence.observed is None else shown(evidence.observed),
        interval=evidence.interval,
        interval_text=" to ".join(shown(edge) for edge in evidence.interval) if evidence.interval else "",
        samples=evidence.samples,
        effective_samples=evidence.effective if math.isfinite(evidence.effective) else 0.0,
        status=evidence.status,
        reason=reason,
        severity=objective.severity,
        optional=objective.optional,
        source=objective.source,
    )
