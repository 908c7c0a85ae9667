"""What a policy inherits by `extends`, and where its parents contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_inferslo.core.cost import Prices
from pytest_inferslo.core.document import ListNode, Node, Reader
from pytest_inferslo.core.objective import Objective
from pytest_inferslo.core.policy import (
    DEFAULT_CONFIDENCE,
    ErrorBudget,
    Override,
    Policy,
    identity,
    merged,
)
from pytest_inferslo.core.rubric import Rubric
from pytest_inferslo.errors import PolicyError


@dataclass
class Parts:
    """What `extends` gave so far."""

    objectives: tuple[Objective, ...] = ()
    confidence: float = DEFAULT_CONFIDENCE
    guards: dict[str, float | None] = field(default_factory=dict)
    rubric: Rubric = field(default_factory=Rubric)
    budget: ErrorBudget | None = None
    prices: Prices | None = None
    overrides: dict[tuple[str, str], Override] = field(default_factory=dict)
    digests: list[str] = field(default_factory=list)
    disputed: dict[tuple[str, bool, str, str], str] = field(default_factory=dict)  # objectives, by identity
    disputed_sections: list[str] = field(default_factory=list)


def parents(reader: Reader, node: Node | None, parent: Callable[[str], Policy]) -> Parts:
    parts = Parts()
    nodes = node.items if isinstance(node, ListNode) else () if node is None else (node,)
    for one in nodes:
        name = reader.text(one, "extends")
        if name is None:
            continue
        try:
            base = parent(name)
        except PolicyError as error:
            reader.fault(one, f"extends {name!r}, which cannot be used: {error.problems[0]}")
            continue
        _note_disputes(parts, base)
        parts.objectives = merged(parts.objectives, base.objectives)
        # Of several the strictest: one that says nothing must not loosen what another says.
        parts.confidence = max(parts.confidence, base.confidence) if parts.digests else base.confidence
        for guard, limit in base.guards.items():
            known = parts.guards.get(guard, limit)
            parts.guards[guard] = known if limit is None else limit if known is None else min(known, limit)
        parts.rubric, parts.budget = base.rubric or parts.rubric, base.budget or parts.budget
        parts.prices = base.prices or parts.prices
        parts.overrides = joined(parts.overrides, base.overrides)
        parts.digests.append(base.sha256)
    return parts


def _note_disputes(parts: Parts, base: Policy) -> None:
    """What `base` and a parent before it say differently: to take the later one would drop the other's promise."""
    known = {identity(objective): replace(objective, source="") for objective in parts.objectives}
    for objective in base.objectives:
        before = known.get(identity(objective))
        if before is not None and before != replace(objective, source=""):
            parts.disputed[identity(objective)] = f"{before.text!r} and {objective.text!r}"
    pairs = (
        ("rubric", parts.rubric, base.rubric),
        ("error_budget", parts.budget, base.budget),
        ("prices", parts.prices, base.prices),
    )
    parts.disputed_sections += [key for key, one, other in pairs if one and other and one != other]


def refuse_disputes(
    reader: Reader, entries: dict[str, Node], parts: Parts, own: Sequence[Objective], remove: Sequence[str]
) -> None:
    """Parents that contradict each other, unless this policy settles the matter."""
    settled = {identity(objective) for objective in own}
    for disputed, texts in parts.disputed.items():
        if disputed not in settled and disputed[0] not in remove:
            reader.fault(entries["extends"], f"the parents promise {texts}: say here which one holds")
    for key in parts.disputed_sections:
        if key not in entries:
            reader.fault(
                entries["extends"], f"several parents bring a section {key!r}: say here which one holds"
            )


def joined(
    one: Mapping[tuple[str, str], Override], other: Mapping[tuple[str, str], Override]
) -> dict[tuple[str, str], Override]:
    """Both; where they change the same scenario or backend, what `other` says goes before what `one` says."""
    both = dict(one)
    for key, change in other.items():
        before = both.get(key, Override())
        both[key] = Override(
            objectives=merged(before.objectives, change.objectives),
            remove=(*before.remove, *change.remove),
            guards={**before.guards, **change.guards},
            confidence=change.confidence or before.confidence,
        )
    return both
