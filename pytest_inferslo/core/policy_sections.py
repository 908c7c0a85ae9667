"""The sections of a policy file beside its objectives: guards, rubric, error budget, prices."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from pytest_inferslo.core.cost import Prices
from pytest_inferslo.core.document import MapNode, Node, Reader, Scalar, described, number
from pytest_inferslo.core.grammar import currency_of, parse_objective
from pytest_inferslo.core.guards import GUARDS
from pytest_inferslo.core.metrics import Dimension
from pytest_inferslo.core.objective import Objective, ObjectiveError
from pytest_inferslo.core.policy import BurnRule, ErrorBudget
from pytest_inferslo.core.rubric import Penalty, Rubric


def promise(reader: Reader, node: Node, *, condition: bool = False) -> Objective | None:
    text = reader.text(node, "a condition" if condition else "an objective")
    if text is None:
        return None
    try:
        return replace(parse_objective(text, condition=condition), source=reader.place(node))
    except ObjectiveError as error:
        reader.fault(node, str(error), error.offset)
        return None


def confidence(reader: Reader, node: Node | None) -> float | None:
    value = reader.quantity(node, "confidence", Dimension.SHARE)
    if value is not None and node is not None and not 0.5 <= value <= 0.999999:
        reader.fault(node, f"confidence must lie between 50% and 99.9999%, not at {described(node)}")
        return None
    return value


def guards(reader: Reader, node: Node | None) -> dict[str, float | None]:
    if node is None:
        return {}
    guards: dict[str, float | None] = {}
    for name, value in reader.mapping(node, "guards", tuple(GUARDS)).items():
        if isinstance(value, Scalar) and value.text in ("off", "false") and value.kind in ("str", "bool"):
            guards[name] = None
            continue
        threshold = reader.quantity(value, f"guard {name}", GUARDS[name].dimension)
        if threshold is not None:
            guards[name] = threshold
    return guards


def _points(reader: Reader, node: Node | None, what: str) -> float | None:
    text = reader.text(node, what)
    if text is None or node is None:
        return None
    match = re.fullmatch(r"(\S+) points?", text)
    value = number(match[1]) if match else None
    if value is None or value <= 0:
        reader.fault(node, f"{what} must be points over 0, like '7 points', not {described(node)}")
        return None
    return value


def rubric(reader: Reader, node: Node | None) -> Rubric | None:
    if node is None:
        return None
    entries = reader.mapping(node, "rubric", ("fail_at", "pass_at", "penalties"))
    penalties = [_penalty(reader, item) for item in reader.items(entries.get("penalties"), "penalties")]
    fail_at = _points(reader, entries.get("fail_at"), "fail_at")
    pass_at = reader.quantity(entries.get("pass_at"), "pass_at", Dimension.SHARE)
    if pass_at is not None and not 0 < pass_at <= 1:
        reader.fault(entries["pass_at"], "pass_at must lie over 0% and at most at 100%")
    given = [penalty for penalty in penalties if penalty is not None]
    if isinstance(node, MapNode) and not entries and not node.entries:
        reader.fault(node, "an empty rubric changes nothing; leave it out")
    total = sum(penalty.points for penalty in given)
    if given and "fail_at" not in entries:
        reader.fault(node, "penalties need 'fail_at', the points at which the verdict fails")
    if "fail_at" in entries and not penalties:
        reader.fault(entries["fail_at"], "fail_at needs 'penalties' that give points")
    if fail_at is not None and len(given) == len(penalties) and given and total < fail_at:
        reader.fault(entries["fail_at"], f"all penalties together give {total:g} points: this can never fail")
    return Rubric(tuple(given), fail_at, pass_at)


def _penalty(reader: Reader, item: Node) -> Penalty | None:
    if not isinstance(item, MapNode) or len(item.entries) != 1:
        reader.fault(item, "a penalty is 'CONDITION: N points', like 'e2e p99 > 5ms: 7 points'")
        return None
    key, value = item.entries[0]
    points = _points(reader, value, "a penalty")
    broken = promise(reader, key, condition=True)
    return Penalty(key.text.strip(), points, broken) if points is not None and broken is not None else None


def budget(reader: Reader, node: Node | None) -> ErrorBudget | None:
    if node is None:
        return None
    entries = reader.mapping(node, "error_budget", ("objective", "period", "burn"))
    for key in ("objective", "period", "burn"):
        if key not in entries:
            reader.fault(node, f"error_budget needs {key!r}")
    objective = promise(reader, entries["objective"]) if "objective" in entries else None
    if objective is not None and (objective.metric.name != "error_rate" or objective.limit.offset <= 0):
        reader.fault(
            entries["objective"], "the objective of an error budget is a ceiling on error_rate over 0%"
        )
    period = reader.seconds(entries.get("period"), "period")
    items = list(reader.items(entries.get("burn"), "burn"))
    rules = [_burn_rule(reader, item) for item in items]
    given = tuple(rule for rule in rules if rule is not None)
    for item, rule in zip(items, rules, strict=True):
        if rule and objective and rule.rate * objective.limit.offset > 1:
            reader.fault(
                item, f"{rule.rate:g} times the budget are more than 100 % of errors: this can never fail"
            )
    return ErrorBudget(objective, period, given) if objective is not None and period and given else None


def _burn_rule(reader: Reader, item: Node) -> BurnRule | None:
    entries = reader.mapping(item, "a burn rule", ("rate", "long", "short"))
    rate = reader.positive(entries.get("rate"), "rate", 0.0)
    long = reader.seconds(entries.get("long"), "long")
    short = reader.seconds(entries.get("short"), "short")
    if not (rate and long and short):
        reader.fault(
            item, "a burn rule needs 'rate', 'long' and 'short', like {rate: 14.4, long: 1h, short: 5m}"
        )
        return None
    if short > long:
        reader.fault(item, "the short window of a burn rule is longer than its long one")
    return BurnRule(rate, long, short)


def prices(reader: Reader, node: Node | None) -> Prices | None:
    if node is None:
        return None
    entries = reader.mapping(node, "prices", tuple(Prices.__dataclass_fields__))
    given: dict[str, Any] = {}
    for name in _PRICES:
        value = reader.quantity(entries.get(name), f"price {name}", Dimension.MONEY)
        given |= {name: value} if value is not None else {}
    by_token = [name for name in _PRICES[1:] if name in entries]
    for name in by_token if "hour" in entries else ():
        reader.fault(
            entries[name], f"price {name} has no effect beside 'hour': price by the hour or by tokens"
        )
    for name in ("instances", "count") if "hour" not in entries else ():
        if name in entries and by_token:
            reader.fault(entries[name], f"{name} has no effect without 'hour'")
    count = reader.choice(entries.get("count"), "count", ("output", "all"))
    if given and not any(given.values()):
        reader.fault(node, "all prices are 0, so that a limit on the cost can never fail")
    instances = reader.positive(entries.get("instances"), "instances", 1.0)
    if instances % 1:
        reader.fault(entries["instances"], f"instances must be a whole number, not {instances:g}")
    if "hour" not in entries and not {"input", "output"} <= entries.keys():
        reader.fault(node, "prices need 'hour', or both 'input' and 'output'")
    currency = _currency(reader, node, entries)
    return Prices(**given, instances=int(instances), count=count or "output", currency=currency)


_PRICES = ("hour", "input", "cached_input", "output")


def _currency(reader: Reader, node: Node, entries: dict[str, Node]) -> str:
    """The one currency of all prices, as its sign."""
    texts = [entry.text for name in _PRICES if isinstance(entry := entries.get(name), Scalar)]
    said = reader.text(entries.get("currency"), "currency")
    signs = {currency_of(text) for text in [*texts, *([said] if said else [])]}
    if len(signs) > 1:
        reader.fault(node, f"prices in several currencies: {', '.join(sorted(signs))}")
    return next(iter(signs), "$")
