"""From a document to a Policy, or to every fault that stands in the way.

policy: NAME                     mandatory
extends: NAME | [NAME, ...]      policies whose objectives, guards, rubric ... hold here too
owner, description: TEXT
confidence: 99%                  50 % to 99.9999 %; 99 % where nothing is said
objectives:                      lines of core/grammar, or mappings
  - ttft p99 <= 250ms
  - {objective: gpu_memory peak <= 90%, optional: true, severity: warn, weight: 2, key: true}
remove: [ttft p99]               left sides that `extends` brought and this policy drops
guards: {send_lag: 20ms, duplicate_prompts: off}
rubric:
  fail_at: 10 points
  pass_at: 90%                   of the objectives' weights, instead of a veto of each
  penalties:
    - e2e p99 > 5ms: 7 points
error_budget:
  objective: error_rate <= 0.1%
  period: 30d
  burn:
    - {rate: 14.4, long: 1h, short: 5m}
prices: {hour: $3.27, instances: 6, input: $1, cached_input: $0.10, output: $2, count: output}
scenarios: [bursty, soak]        must all have been evaluated
overrides:
  scenarios: {soak: {objectives: [...], remove: [...], guards: {...}, confidence: 95%}}
  backends: {sim: {...}}
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pytest_inferslo.core.cost import Prices
from pytest_inferslo.core.document import MapNode, Node, Reader
from pytest_inferslo.core.grammar import SETTINGS
from pytest_inferslo.core.metrics import Dimension
from pytest_inferslo.core.objective import Objective
from pytest_inferslo.core.policy import (
    Override,
    Policy,
    identity,
    merged,
)
from pytest_inferslo.core.policy_parents import joined, parents, refuse_disputes
from pytest_inferslo.core.policy_sections import budget, confidence, guards, prices, promise, rubric
from pytest_inferslo.core.units import nearest
from pytest_inferslo.errors import PolicyError

KEYS = ("policy", "extends", "owner", "description", "confidence", "objectives", "remove", "guards", "rubric",
        "error_budget", "prices", "scenarios", "overrides")  # fmt: skip
_OVERRIDE_KEYS = ("objectives", "remove", "guards", "confidence")
_OBJECTIVE_KEYS = ("objective", *SETTINGS)


def parse_policy(
    document: Node, file: str, sha256: str, parent: Callable[[str], Policy], reader: Reader | None = None
) -> Policy:
    """The policy that `document` holds; `parent` loads one that it extends, or raises PolicyError.

    Raises PolicyError with all faults of the file, in file order.
    """
    reader = reader or Reader(file)
    entries = reader.mapping(document, "the policy", KEYS)
    name = _name(reader, entries, document)
    parts = parents(reader, entries.get("extends"), parent)
    own = _objectives(reader, entries.get("objectives"))
    remove = _removed(reader, entries.get("remove"), parts.objectives)
    refuse_disputes(reader, entries, parts, own, remove)
    policy = Policy(
        name=name,
        file=file,
        objectives=merged(parts.objectives, own, remove),
        confidence=confidence(reader, entries.get("confidence")) or parts.confidence,
        owner=reader.text(entries.get("owner"), "owner") or "",
        description=reader.text(entries.get("description"), "description") or "",
        guards={**parts.guards, **guards(reader, entries.get("guards"))},
        rubric=rubric(reader, entries.get("rubric")) or parts.rubric,
        budget=budget(reader, entries.get("error_budget")) or parts.budget,
        prices=prices(reader, entries.get("prices")) or parts.prices,
        scenarios=reader.names(entries.get("scenarios"), "scenarios"),
        sha256=_digest([sha256, *parts.digests]),
    )
    overrides = _overrides(reader, entries.get("overrides"), policy.objectives)
    policy = replace(policy, overrides=joined(parts.overrides, overrides))
    if (
        not policy.objectives
        and not policy.rubric.penalties
        and policy.budget is None
        and not reader.problems
    ):
        where = entries.get("objectives", document)
        reader.fault(
            where, "a policy without objectives promises nothing; add at least one under 'objectives'"
        )
    if policy.prices is not None:
        _refuse_other_currencies(reader, policy.prices, policy, document)
    if not reader.problems:
        _refuse_toothless(reader, policy, entries, document)
    if reader.problems:
        raise PolicyError(sorted(reader.problems, key=lambda problem: (problem.line, problem.column)))
    return policy


def _refuse_toothless(reader: Reader, policy: Policy, entries: dict[str, Node], document: Node) -> None:
    """A fault where nothing is left that could fail: in the policy itself, or under one of its overrides."""
    if not policy.can_fail():
        where = entries.get("objectives", document)
        reader.fault(
            where, "all objectives only warn, so that this policy can never fail; let at least one decide"
        )
        return
    names: dict[str, list[str]] = {"scenario": [""], "backend": [""]}
    for kind, name in policy.overrides:
        names[kind].append(name)
    for scenario, backend in itertools.product(names["scenario"], names["backend"]):
        if not policy.resolved(scenario, backend).can_fail():
            whom = " on ".join(repr(name) for name in (scenario, backend) if name)
            where = entries.get("overrides", document)
            reader.fault(where, f"under the overrides for {whom} nothing is left that could fail")
            return


def _refuse_other_currencies(reader: Reader, prices: Prices, policy: Policy, document: Node) -> None:
    changed = (objective for change in policy.overrides.values() for objective in change.objectives)
    for objective in (*policy.judged(), *changed):
        if objective.metric.dimension is Dimension.MONEY and objective.limit.currency != prices.currency:
            reader.fault(
                document,
                f"{objective.text!r} ({objective.source}) is in {objective.limit.currency}, and the prices are in "
                f"{prices.currency}",
            )


def _digest(digests: Sequence[str]) -> str:
    """The file's own digest, or one of it and of all that it extends."""
    return digests[0] if len(digests) == 1 else hashlib.sha256(":".join(digests).encode()).hexdigest()


def _name(reader: Reader, entries: dict[str, Node], document: Node) -> str:
    if isinstance(document, MapNode) and "policy" not in entries:
        reader.fault(document, "the policy has no name; begin the file with 'policy: NAME'")
    name = reader.text(entries.get("policy"), "policy") or ""
    if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        reader.fault(entries["policy"], f"the name {name!r} may hold letters, digits, '.', '_' and '-' alone")
    return name


def _objectives(reader: Reader, node: Node | None, what: str = "objectives") -> list[Objective]:
    objectives: list[Objective] = []
    lines: dict[tuple[str, bool, str, str], int] = {}
    for item in reader.items(node, what):
        objective = _objective(reader, item)
        if objective is None:
            continue
        known = identity(objective)
        if known in lines:
            reader.fault(
                item, f"{objective.left!r} is promised twice: in line {lines[known]} and in line {item.line}"
            )
        lines.setdefault(known, item.line)
        objectives.append(objective)
    return objectives


def _objective(reader: Reader, item: Node) -> Objective | None:
    if not isinstance(item, MapNode):
        return promise(reader, item)
    entries = reader.mapping(item, "an objective", _OBJECTIVE_KEYS)
    if "objective" not in entries:
        reader.fault(item, "an objective is a text, or a mapping with the key 'objective'")
        return None
    objective = promise(reader, entries["objective"])
    settings: dict[str, Any] = {
        "optional": reader.flag(entries.get("optional"), "optional"),
        "severity": reader.choice(entries.get("severity"), "severity", ("fail", "warn")) or "fail",
        "weight": reader.positive(entries.get("weight"), "weight", 1.0),
        "key": reader.flag(entries.get("key"), "key"),
    }
    return replace(objective, **settings) if objective else None


def _removed(reader: Reader, node: Node | None, inherited: Sequence[Objective]) -> tuple[str, ...]:
    known = [objective.left for objective in inherited]
    removed = []
    for item in reader.items(node, "remove"):
        text = reader.text(item, "an entry of remove")
        if text is not None and text not in known:
            reader.fault(item, f"there is no objective {text!r} to remove{nearest(text, known)}")
        elif text is not None:
            removed.append(text)
    return tuple(removed)


def _overrides(
    reader: Reader, node: Node | None, inherited: Sequence[Objective]
) -> dict[tuple[str, str], Override]:
    if node is None:
        return {}
    overrides: dict[tuple[str, str], Override] = {}
    kinds = reader.mapping(node, "overrides", ("scenarios", "backends"))
    for kinds_name, kind in (("scenarios", "scenario"), ("backends", "backend")):
        if kinds_name not in kinds:
            continue
        for name, change in reader.mapping(kinds[kinds_name], f"overrides of {kinds_name}").items():
            overrides[kind, name] = _override(reader, change, f"the override of {name!r}", inherited)
    return overrides


def _override(reader: Reader, node: Node, what: str, inherited: Sequence[Objective]) -> Override:
    entries = reader.mapping(node, what, _OVERRIDE_KEYS)
    return Override(
        objectives=tuple(_objectives(reader, entries.get("objectives"))),
        remove=_removed(reader, entries.get("remove"), inherited),
        guards=guards(reader, entries.get("guards")),
        confidence=confidence(reader, entries.get("confidence")),
    )
