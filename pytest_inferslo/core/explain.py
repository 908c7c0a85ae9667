"""A policy in plain words: what each promise means, and what it takes to prove it."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_inferslo.core.metrics import Dimension, Source
from pytest_inferslo.core.objective import Objective
from pytest_inferslo.core.policy import Policy
from pytest_inferslo.core.share_evidence import CENSUS_SHARE, required_share
from pytest_inferslo.core.statistics import required_samples
from pytest_inferslo.core.units import format_quantity


def explained(policy: Policy, rate: float | None = None) -> Iterator[str]:
    """Lines of text; with `rate` (requests/s) also how long a run must be."""
    yield f"{policy.name} ({policy.file}): proved or refuted at {100 * policy.confidence:.6g} % confidence"
    if policy.description:
        yield policy.description
    for objective in policy.objectives:
        yield ""
        yield objective.text + _settings(objective)
        yield f"  {_meaning(objective)}"
        yield f"  {_needs(objective, policy.confidence, rate)}"
    yield from _rest(policy)


def _settings(objective: Objective) -> str:
    words = ["optional"] if objective.optional else []
    words += ["a warning only"] if objective.severity == "warn" else []
    words += ["key"] if objective.key else []
    words += [f"weight {objective.weight:g}"] if objective.weight != 1 else []
    return f"  ({', '.join(words)})" if words else ""


def _meaning(objective: Objective) -> str:
    what = f"{objective.metric.name} ({objective.metric.meaning})"
    limit = f"{'at most' if objective.op == '<=' else 'at least' if objective.op == '>=' else _STRICT[objective.op]}"
    limit += f" {objective.limit.text}"
    match objective.statistic.kind:
        case "percentile":
            share = float(objective.statistic.share if objective.upper else 1 - objective.statistic.share)
            text = f"{100 * share:.9g} % of the {_things(objective)} have {_article(what)} {what} of {limit}"
        case "max" | "min":
            text = f"every one of the {_things(objective)} has {_article(what)} {what} of {limit}"
        case "mean":
            text = f"the mean over the {_things(objective)} of {what} is {limit}"
        case _:
            text = f"the {what} is {limit}"
    if str(objective.scope):
        text += f", for {objective.scope} by itself"
    if objective.window_ns:
        text += f", in every window of {objective.window_ns // 10**9}s"
    if objective.after:
        text += f", counted from the end of phase {objective.after}"
    if objective.condition:
        text += f", in phases with {objective.condition.metric.name} {objective.condition.op} "
        text += objective.condition.limit.text
    return text[0].upper() + text[1:] + "."


_STRICT = {"<": "less than", ">": "more than"}


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeio" else "a"


def _things(objective: Objective) -> str:
    return {Source.READING: "readings", Source.GAP: "gaps"}.get(objective.metric.source, "requests")


def _needs(objective: Objective, confidence: float, rate: float | None) -> str:
    if objective.metric.source is Source.READING:
        return "Needs readings under load; without any it fails" + (
            ", unless optional." if objective.optional else "."
        )
    if objective.metric.source is Source.TOTAL or objective.statistic.kind == "mean":
        return "Needs a run of a minute or so, to see how it moves."
    share = float(required_share(objective, objective.limit.offset))
    if objective.limit.reference is not None:
        return "Needs enough requests on both sides of the comparison to tell the two apart."
    if share == 1:
        n = required_samples(CENSUS_SHARE, 0, confidence)
        return f"Speaks of the requests of a run alone, of which there must be {n:,}{_time(n, rate)}."
    clean, one, five = (required_samples(share, over, confidence) for over in (0, 1, 5))
    where = " in each window" if objective.window_ns else ""
    return (
        f"Needs at least {clean:,} {_things(objective)}{where} if none {_misses(objective)}{_time(clean, rate)}, "
        f"{one:,} with one, {five:,} with five; more where neighbours are alike."
    )


def _misses(objective: Objective) -> str:
    """What a request does that speaks against the promise."""
    match objective.metric.name:
        case "error_rate":
            return "fails"
        case "goodput":
            return "fails or misses its limits"
    return "is above the limit" if objective.upper else "is below the limit"


def _time(requests: int, rate: float | None) -> str:
    return f" ({format_quantity(requests / rate * 1e9, Dimension.TIME)} at {rate:g}/s)" if rate else ""


def _rest(policy: Policy) -> Iterator[str]:
    if policy.rubric.penalties:
        yield ""
        yield f"The verdict also fails at {policy.rubric.fail_at:g} points:"
        yield from (f"  {penalty.points:g} points if {penalty.text}" for penalty in policy.rubric.penalties)
    if policy.rubric.pass_at is not None:
        yield ""
        yield f"Objectives are weighed: {100 * policy.rubric.pass_at:g} % of the weight must pass."
    if policy.budget is not None:
        yield ""
        yield f"Error budget of {policy.budget.objective.text}; the verdict fails where it burns"
        for rule in policy.budget.rules:
            yield f"  {rule.rate:g} times too fast over {rule.long}s and {rule.short}s"
    if policy.scenarios:
        yield ""
        yield f"Must be evaluated in every session: {', '.join(policy.scenarios)}"
    for (kind, name), change in policy.overrides.items():
        yield ""
        yield f"For {kind} {name}:"
        yield from (f"  {objective.text}" for objective in change.objectives)
        yield from (f"  without {left}" for left in change.remove)
