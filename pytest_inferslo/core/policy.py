"""A policy: the promises of one file, and what they need to know about a run."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_inferslo.core.cost import Prices
from pytest_inferslo.core.metrics import PER_REQUEST, Dimension
from pytest_inferslo.core.objective import Objective
from pytest_inferslo.core.rubric import Rubric

DEFAULT_CONFIDENCE = 0.99


@dataclass(frozen=True)
class BurnRule:
    """Fails when the error budget burns `rate` times too fast in both windows (seconds)."""

    rate: float
    long: int
    short: int


@dataclass(frozen=True)
class ErrorBudget:
    """What `objective`, a ceiling on error_rate, leaves to spend over `period` seconds, and how fast."""

    objective: Objective
    period: int
    rules: tuple[BurnRule, ...]


@dataclass(frozen=True)
class Override:
    """What one scenario or one backend changes."""

    objectives: tuple[Objective, ...] = ()
    remove: tuple[str, ...] = ()
    guards: Mapping[str, float | None] = field(default_factory=dict)
    confidence: float | None = None


@dataclass(frozen=True)
class Policy:
    """`guards` are thresholds in base units by guard name, None for a guard that is switched off.

    `scenarios` must all have been evaluated when a session ends. `overrides` are by "scenario" or "backend"
    and name. `sha256` is of the file and of those it extends.
    """

    name: str
    file: str
    objectives: tuple[Objective, ...]
    confidence: float = DEFAULT_CONFIDENCE
    owner: str = ""
    description: str = ""
    guards: Mapping[str, float | None] = field(default_factory=dict)
    rubric: Rubric = field(default_factory=Rubric)
    budget: ErrorBudget | None = None
    prices: Prices | None = None
    scenarios: tuple[str, ...] = ()
    overrides: Mapping[tuple[str, str], Override] = field(default_factory=dict)
    sha256: str = ""

    def resolved(self, scenario: str, *backends: str) -> Policy:
        """This policy for a scenario on a backend (by all of its names); the scenario has the last word."""
        policy = self
        for key in (*(("backend", name) for name in dict.fromkeys(backends)), ("scenario", scenario)):
            change = self.overrides.get(key)
            if change is not None:
                policy = replace(
                    policy,
                    objectives=merged(policy.objectives, change.objectives, change.remove),
                    guards={**policy.guards, **change.guards},
                    confidence=change.confidence or policy.confidence,
                )
        return replace(policy, overrides={})

    def for_record(self, record: Mapping[str, Any]) -> Policy:
        """This policy for the scenario and backend of a run record."""
        backend = record.get("backend") or {}
        scenario = (record.get("scenario") or {}).get("name") or ""
        kind, name = backend.get("kind") or "", backend.get("name") or ""
        urls = [endpoint.get("url") or "" for endpoint in backend.get("endpoints") or ()]
        return self.resolved(scenario, kind, name, *(urls if kind == "attached" else ()))

    def judged(self) -> Iterator[Objective]:
        """Every promise to measure: the objectives, the rubric's conditions and the error budget's."""
        yield from self.objectives
        yield from (penalty.promise for penalty in self.rubric.penalties)
        if self.budget is not None:
            yield self.budget.objective

    def refers_to(self, reference: str) -> bool:
        """Whether any limit, overrides included, is relative to `reference`: "baseline", "idle" or a scope kind."""
        changed = (objective for change in self.overrides.values() for objective in change.objectives)
        return any(objective.limit.reference == reference for objective in (*self.judged(), *changed))

    def can_fail(self) -> bool:
        """Whether anything in it decides: an objective that does more than warn, a penalty or a budget."""
        deciding = any(objective.severity == "fail" for objective in self.objectives)
        return deciding or bool(self.rubric.penalties) or self.budget is not None

    def goals(self) -> list[tuple[str, float]]:
        """The ceilings that make a request good: the tightest of each latency over all requests."""
        tightest: dict[str, float] = {}
        for objective in self.objectives:
            if _is_goal(objective):
                name, limit = objective.metric.name, exact_limit(objective, objective.limit.offset)
                tightest[name] = min(limit, tightest.get(name, math.inf))
        return list(tightest.items())


def _is_goal(objective: Objective) -> bool:
    return (
        objective.metric.name in PER_REQUEST
        and objective.metric.dimension is Dimension.TIME
        and objective.statistic.kind in ("percentile", "max")
        and objective.limit.reference is None
        and objective.severity == "fail"
        and not str(objective.scope)
    )


def exact_limit(objective: Objective, limit: float) -> float:
    """The number that a value must exceed to be over the limit: just below it where `<` forbids the limit.

    For a floor, the number that a value must exceed to be within.
    """
    return math.nextafter(limit, -math.inf) if objective.op in ("<", ">=") else limit


def merged(
    base: Sequence[Objective], changes: Sequence[Objective], remove: Sequence[str] = ()
) -> tuple[Objective, ...]:
    """`base` without `remove`, objectives replaced by the change of their identity; new ones behind."""
    kept = {identity(objective): objective for objective in base if objective.left not in remove}
    return tuple((kept | {identity(change): change for change in changes}).values())


def identity(objective: Objective) -> tuple[str, bool, str, str]:
    """Two objectives of one identity cannot both stand.

    The same left side, direction and severity, and compared with the same thing: a fixed limit and one that
    follows a baseline are two promises.
    """
    limit = objective.limit
    return objective.left, objective.upper, objective.severity, f"{limit.reference}:{limit.reference_name}"


def recovery_ceiling(policy: Policy) -> float | None:
    """The ceiling that ttft p99 must come back under: of the policy's own objective over all requests."""
    for objective in policy.objectives:
        if objective.left == "ttft p99" and objective.limit.reference is None:
            return exact_limit(objective, objective.limit.offset)
    return None


def lacking(policy: Policy, objective: Objective) -> str | None:
    """What an objective needs beside it and its policy does not say; None where nothing is missing."""
    match objective.metric.name:
        case "goodput" | "goodput_rate" if not policy.goals():
            return "no objective says what a good request is; add one like ttft p99 <= 250ms"
        case "recovery_time" if recovery_ceiling(policy) is None:
            return "no objective says what it recovers to; add one like ttft p99 <= 250ms"
        case "cost_per_million_tokens" if policy.prices is None:
            return "the policy has no 'prices'"
    return None


def unmeasurable(
    policy: Policy,
    *,
    streaming: bool,
    phases: Sequence[str],
    adapters: Sequence[str] | None = None,
    streams: Sequence[str] | None = None,
    endpoints: Sequence[str] | None = None,
) -> list[str]:
    """What a policy asks of a scenario that the scenario cannot show: `file:line: why`, one line each.

    `adapters` (the base model is `base`), `streams` and `endpoints` by name, None where they are not known.
    """
    found = []
    known = {"phase": phases, "adapter": adapters, "stream": streams, "endpoint": endpoints}
    for objective in policy.judged():
        why = lacking(policy, objective)
        if objective.metric.streaming and not streaming:
            why = f"{objective.metric.name} needs a streamed answer, and the scenario does not stream"
        limit = objective.limit
        asked = [(kind, getattr(objective.scope, kind)) for kind in known]
        asked += [("phase", objective.after), (limit.reference or "", limit.reference_name)]
        for kind, name in asked:
            names = known.get(kind)
            if names is not None and name not in (None, "*", *names):
                whose = "backend" if kind == "endpoint" else "scenario"
                why = f"the {whose} has no {kind} {name!r} (it has {', '.join(names) or 'none'})"
        if why and not objective.optional:
            found.append(f"{objective.source}: {objective.text}: {why}")
    return found


def misnamed_backends(policy: Policy, known: Sequence[str]) -> list[str]:
    """A sentence for each backend that a policy overrides and that is nearly, but not quite, one of `known`."""
    found = []
    for kind, name in policy.overrides:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.8) if kind == "backend" else []
        if near and name not in known and not name.startswith(near[0]):
            found.append(f"{policy.file}: overrides for backend {name!r}: did you mean {near[0]!r}?")
    return found
