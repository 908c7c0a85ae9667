"""What a policy wants to know of a run, before its samples are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_inferslo.core.baseline import Baseline
from pytest_inferslo.core.distribution import ALL, Scope
from pytest_inferslo.core.frame import Frame
from pytest_inferslo.core.metrics import Source
from pytest_inferslo.core.objective import SCOPE_KINDS, Objective
from pytest_inferslo.core.policy import Policy, exact_limit, recovery_ceiling
from pytest_inferslo.core.summary import Question

#: The part of a limit at which a proof must be borne out (core/bearing).
LOWER_LIMIT = 0.92**10
#: Lower limits, at which the clustering of slow requests is read when few exceed the limit itself.
_LADDER = (*(0.92**step for step in range(1, 9)), LOWER_LIMIT)


def questions(policy: Policy, record: Mapping[str, Any], baseline: Baseline | None = None) -> list[Question]:
    """One per objective and scope; `policy` is as it stands for this run (Policy.for_record)."""
    frame = Frame.from_record(dict(record))
    asked: list[Question] = []
    ceiling = recovery_ceiling(policy)
    for objective in policy.judged():
        for scope in scopes(objective, frame):
            asked.append(_question(objective, scope, baseline))
            if objective.limit.reference in SCOPE_KINDS:
                asked.append(Question(_sampled(objective), reference_scope(objective, scope)))
        if objective.after is not None and ceiling is not None:
            asked.append(Question("ttft", ALL, (ceiling,)))
    return list(dict.fromkeys(asked))


def _question(objective: Objective, scope: Scope, baseline: Baseline | None) -> Question:
    if objective.metric.source not in (Source.SAMPLE, Source.GAP) or objective.statistic.kind == "mean":
        return Question(_sampled(objective), scope)
    exact = [exact_limit(objective, limit) for limit in limits(objective, scope, baseline)]
    ladder = [limit * step for limit in exact[:1] for step in _LADDER] if objective.upper else []
    return Question(objective.metric.name, scope, (*exact, *ladder))


def _sampled(objective: Objective) -> str:
    """A metric of requests, by which the requests of a scope are counted at all."""
    return objective.metric.name if objective.metric.source in (Source.SAMPLE, Source.GAP) else "e2e"


def limits(objective: Objective, scope: Scope, baseline: Baseline | None) -> tuple[float, ...]:
    """The limits that are known before the run is read: one, or against a baseline two.

    Of those the strict one comes first, which proves when kept, then the lenient one, which refutes.
    """
    limit = objective.limit
    if limit.reference is None:
        return (limit.offset,)
    level = baseline.levels.get(level_name(objective, scope)) if baseline is not None else None
    if level is None or limit.reference != "baseline":
        return ()
    edges = (limit.at(level.low), limit.at(level.high))
    return edges if objective.upper else edges[::-1]


def level_name(objective: Objective, scope: Scope) -> str:
    """What a level is of, whatever its limit and window."""
    where = f"within {scope_text(scope)}" if scope_text(scope) else ""
    return " ".join(part for part in (objective.metric.name, str(objective.statistic), where) if part)


def scope_text(scope: Scope) -> str:
    parts = ((kind, getattr(scope, kind)) for kind in SCOPE_KINDS)
    return ",".join(f"{kind}:{name}" for kind, name in parts if name is not None)


def scopes(objective: Objective, frame: Frame) -> list[Scope]:
    """The scopes of an objective in this run: one, or each that a `*` stands for, which may be none."""
    names = {
        "endpoint": frame.endpoints,
        "adapter": frame.adapters,
        "stream": frame.streams,
        "phase": tuple(name for name, _, end in frame.phases if end > frame.window[0]),
    }
    found: list[dict[str, str]] = [{}]
    for kind in SCOPE_KINDS:
        wanted = getattr(objective.scope, kind)
        if wanted is None:
            continue
        choices = dict.fromkeys(names[kind]) if wanted == "*" else (wanted,)
        found = [{**scope, kind: name} for scope in found for name in choices]
    return [Scope(**scope) for scope in found]


def reference_scope(objective: Objective, scope: Scope) -> Scope:
    """Where the level to compare with is taken: `scope` with the one name that the limit gives."""
    fixed = {kind: getattr(scope, kind) for kind in SCOPE_KINDS}
    return Scope(**(fixed | {str(objective.limit.reference): objective.limit.reference_name}))
