"""The language of a policy's lines.

    objective = METRIC [STATISTIC] OP LIMIT {clause}
    OP        = "<" | "<=" | ">" | ">="
    STATISTIC = "p" NUMBER | "median" | "mean" | "max" | "peak" | "min"
                requests and readings need one; ratios (error_rate, goodput) and totals have none
    LIMIT     = QUANTITY                      250ms, 0.1%, 23GiB, $0.12, 200 tokens/s: see core/units
              | PERCENT "of" REFERENCE        120% of baseline
              | QUANTITY "above" REFERENCE    1ms above phase:single
    REFERENCE = "baseline" | "idle" | SCOPE   the same metric and statistic there; a name, never "*"
    clause    = "for" DURATION                holds in every sliding window of this length
              | "within" SCOPE {"," SCOPE}    judged on these requests alone; "*" makes one objective for each
              | "after" PHASE                 recovery_time alone, which needs it
              | "while" METRIC OP QUANTITY    judged in the phases whose mean reading of METRIC is so
    SCOPE     = ("endpoint" | "adapter" | "phase" | "stream") ":" (NAME | "*")

`parse_objective` reads this text and nothing else. It refuses what cannot be meant: a unit of another kind,
a limit that can never fail or never hold, a ceiling on what should be large, a statistic that a metric lacks.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

from pytest_inferslo.core.metrics import METRICS, Dimension, Metric, Source
from pytest_inferslo.core.objective import (
    BOUNDED,
    SCOPE_KINDS,
    SLOT_NS,
    Condition,
    Limit,
    Objective,
    ObjectiveError,
    ScopePattern,
    Statistic,
)
from pytest_inferslo.core.units import QuantityError, nearest, parse_quantity

_NO_METRIC = "names no metric; write METRIC STATISTIC OP LIMIT, like ttft p99 <= 250ms"
#: What an objective may carry beside its text.
SETTINGS = ("optional", "severity", "weight", "key")
_CLAUSES = ("for", "within", "after", "while")


def parse_objective(text: str, *, condition: bool = False) -> Objective:
    """The objective that `text` says; with `condition`, the promise that a penalty's condition breaks.

    Raises ObjectiveError with the offset of what is wrong.
    """
    operator = re.search(r"<=|>=|≤|≥|==|!=|<|>|=", text)
    if operator is None:
        first = re.search(r"\S+", text)
        if first is None:
            raise ObjectiveError(_NO_METRIC)
        _metric(first[0], first.start())
        raise ObjectiveError("has no limit; write METRIC STATISTIC OP LIMIT, like ttft p99 <= 250ms")
    op = {"≤": "<=", "≥": ">="}.get(operator[0], operator[0])
    if op not in ("<", "<=", ">", ">="):
        raise ObjectiveError(f"{op!r} is no comparison of a promise; use <, <=, > or >=", operator.start())
    metric, statistic = _left_side(text[: operator.start()])
    limit_text, clauses = _clauses(text, operator.end())
    limit = _limit(limit_text, operator.end(), metric)
    objective = Objective(text.strip(), metric, statistic, op, limit)
    for keyword, (value, offset) in clauses.items():
        objective = _READERS[keyword](objective, value, offset)
    if not condition:
        _refuse_senseless(objective, operator.start())
        return objective
    try:
        _refuse_senseless(objective.negated(), operator.start())
    except ObjectiveError as error:
        raise ObjectiveError(f"a condition is what breaks a promise: {error}", error.offset) from None
    return objective.negated()


def _left_side(text: str) -> tuple[Metric, Statistic]:
    words = [(word[0], word.start()) for word in re.finditer(r"\S+", text)]
    if not words:
        raise ObjectiveError(_NO_METRIC)
    metric = _metric(*words[0])
    if len(words) > 2:
        raise ObjectiveError(f"{words[2][0]!r} is one word too many before the comparison", words[2][1])
    if len(words) == 1:
        if metric.source in (Source.RATIO, Source.TOTAL):
            return metric, Statistic("whole")
        raise ObjectiveError(
            f"{metric.name} needs a statistic, like {metric.name} p99 or {metric.name} mean", len(text)
        )
    word, offset = words[1]
    if metric.source in (Source.RATIO, Source.TOTAL):
        raise ObjectiveError(f"{metric.name} is one number and has no {word!r}; leave it out", offset)
    return metric, _statistic(word, offset)


def _metric(name: str, offset: int) -> Metric:
    if name not in METRICS:
        raise ObjectiveError(f"unknown metric {name!r}{nearest(name, METRICS)}", offset)
    return METRICS[name]


def _statistic(word: str, offset: int) -> Statistic:
    plain = {"mean": "mean", "max": "max", "peak": "max", "min": "min"}
    if word in plain:
        return Statistic(plain[word])
    if word == "median":
        return Statistic("percentile", Fraction(1, 2))
    if re.fullmatch(r"p[0-9]{1,3}(\.[0-9]{1,9})?", word):
        share = Fraction(word[1:]) / 100
        if not 0 < share < 1:
            raise ObjectiveError(
                f"{word} is no percentile between p0 and p100; for the extremes say max or min", offset
            )
        return Statistic("percentile", share)
    known = (*plain, "median", "p50", "p90", "p95", "p99", "p99.9")
    raise ObjectiveError(
        f"unknown statistic {word!r}{nearest(word, known)}; use pNN, mean, max or min", offset
    )


def _limit(text: str, offset: int, metric: Metric) -> Limit:
    stripped = text.strip()
    offset += len(text) - len(text.lstrip())
    relative = re.fullmatch(r"(.*?)\s+(of|above)\s+(\S+)", stripped)
    if relative is None:
        return _absolute(stripped, offset, metric)
    amount, word, reference = relative[1], relative[2], relative[3]
    kind, name = _reference(reference, offset + relative.start(3))
    if kind == "idle" and metric.source is not Source.READING:
        raise ObjectiveError(f"{metric.name} is not measured before the load", offset + relative.start(3))
    if word == "above":
        limit = _absolute(amount, offset, metric)
        return replace(limit, text=stripped, factor=1.0, reference=kind, reference_name=name)
    try:
        factor = parse_quantity(amount, Dimension.SHARE)
    except QuantityError as error:
        raise ObjectiveError(str(error), offset) from None
    if factor == 0:
        raise ObjectiveError(f"{stripped!r} is a limit of nothing", offset)
    return Limit(stripped, metric.dimension, 0.0, factor, kind, name)


def _absolute(text: str, offset: int, metric: Metric) -> Limit:
    dimension = metric.dimension
    if metric.name == "gpu_memory" and text.endswith("%"):
        dimension = Dimension.SHARE
    try:
        value = parse_quantity(text, dimension)
    except QuantityError as error:
        if setting := re.search(rf"\b({'|'.join(SETTINGS)})\b", text):
            raise ObjectiveError(
                f"{setting[0]!r} is no part of the text: write {{objective: ..., {setting[0]}: ...}}",
                offset + setting.start(),
            ) from None
        share = ", or 90% of the device's" if metric.name == "gpu_memory" else ""
        raise ObjectiveError(f"{metric.name}: {error}{share}", offset) from None
    return Limit(text, dimension, value, currency=currency_of(text))


def currency_of(text: str) -> str:
    """The sign of the currency of an amount of money; "$" where it names none."""
    found = re.search(r"[$€£]|USD|EUR|GBP", text)
    return {"USD": "$", "EUR": "€", "GBP": "£"}.get(found[0], found[0]) if found else "$"


def _reference(text: str, offset: int) -> tuple[str, str]:
    if text in ("baseline", "idle"):
        return text, ""
    kind, _, name = text.partition(":")
    if kind not in SCOPE_KINDS or not name:
        known = ("baseline", "idle", *(f"{kind}:NAME" for kind in SCOPE_KINDS))
        hint = nearest(text, known)
        raise ObjectiveError(f"{text!r} is nothing to compare with{hint}; use {', '.join(known)}", offset)
    if name == "*":
        raise ObjectiveError(f"{text!r}: a comparison needs one name, not *", offset)
    return kind, name


def _clauses(text: str, start: int) -> tuple[str, dict[str, tuple[str, int]]]:
    """The limit's text, and each clause's text and offset by its keyword."""
    marks = [m for m in re.finditer(r"\S+", text) if m.start() >= start and m[0] in _CLAUSES]
    ends = [*(m.start() for m in marks[1:]), len(text)][: len(marks)]
    clauses: dict[str, tuple[str, int]] = {}
    for mark, end in zip(marks, ends, strict=True):
        value = text[mark.end() : end]
        if mark[0] in clauses:
            raise ObjectiveError(f"{mark[0]!r} stands twice", mark.start())
        if not value.strip():
            raise ObjectiveError(f"{mark[0]!r} is not followed by anything", mark.start())
        clauses[mark[0]] = (value.strip(), mark.end() + len(value) - len(value.lstrip()))
    limit = text[start : marks[0].start() if marks else len(text)]
    if not limit.strip():
        raise ObjectiveError("has no limit after the comparison", start)
    return limit, clauses


def _read_for(objective: Objective, text: str, offset: int) -> Objective:
    metric = objective.metric
    if objective.limit.reference not in (None, "baseline"):
        raise ObjectiveError("'for' takes a fixed limit or the baseline to compare with", offset)
    windowed = objective.statistic.kind in ("percentile", "whole")
    if metric.source in (Source.TOTAL, Source.READING) or not windowed:
        raise ObjectiveError(
            f"'for' takes percentiles of requests, error_rate and goodput, not {objective.left}", offset
        )
    try:
        window = parse_quantity(text, Dimension.TIME)
    except QuantityError as error:
        raise ObjectiveError(str(error), offset) from None
    if window < SLOT_NS or window % SLOT_NS:
        raise ObjectiveError(f"'for {text}': windows are whole seconds, at least 1s", offset)
    return replace(objective, window_ns=int(window))


def _read_within(objective: Objective, text: str, offset: int) -> Objective:
    names: dict[str, str] = {}
    for part in re.finditer(r"[^\s,]+", text):
        kind, _, name = part[0].partition(":")
        place = offset + part.start()
        if kind not in SCOPE_KINDS or not name:
            known = ", ".join(f"{kind}:NAME" for kind in SCOPE_KINDS)
            hint = "" if kind in SCOPE_KINDS else nearest(kind, SCOPE_KINDS)
            raise ObjectiveError(f"{part[0]!r} is no scope{hint}; use {known}", place)
        if kind in names:
            raise ObjectiveError(f"{kind!r} stands twice in one scope", place)
        if objective.metric.source is Source.READING and kind != "phase":
            raise ObjectiveError(f"{objective.metric.name} is not measured by {kind}, only by phase", place)
        names[kind] = name
    if objective.metric.name in _UNSCOPED:
        raise ObjectiveError(
            f"{objective.metric.name} is measured for the whole run: it has no 'within'", offset
        )
    return replace(objective, scope=ScopePattern(**names))


_UNSCOPED = ("cost_per_million_tokens", "server_cpu_increase", "gpu_energy")


def _read_after(objective: Objective, text: str, offset: int) -> Objective:
    if objective.metric.name != "recovery_time":
        raise ObjectiveError(f"'after' belongs to recovery_time, not to {objective.metric.name}", offset)
    if len(text.split()) != 1:
        raise ObjectiveError(f"'after' takes the name of one phase, not {text!r}", offset)
    return replace(objective, after=text.removeprefix("phase:"))


def _read_while(objective: Objective, text: str, offset: int) -> Objective:
    match = re.fullmatch(r"(\S+?)\s*(<=|>=|<|>)\s*(.+)", text)
    if match is None:
        raise ObjectiveError(f"'while' takes METRIC OP QUANTITY, not {text!r}", offset)
    metric = METRICS.get(match[1])
    if metric is None or metric.source is not Source.READING:
        readings = [name for name, m in METRICS.items() if m.source is Source.READING]
        raise ObjectiveError(
            f"'while' needs a telemetry metric{nearest(match[1], readings)}: {readings}", offset
        )
    if objective.scope.phase != "*" or metric.name == "gpu_memory":
        raise ObjectiveError("'while' chooses among phases: it needs 'within phase:*'", offset)
    limit = _absolute(match[3], offset + match.start(3), metric)
    return replace(objective, condition=Condition(metric, match[2], limit))


_READERS = {"within": _read_within, "for": _read_for, "after": _read_after, "while": _read_while}


def _refuse_senseless(objective: Objective, offset: int) -> None:
    metric, limit, op = objective.metric, objective.limit, objective.op
    if metric.name == "recovery_time" and not objective.after:
        raise ObjectiveError(
            "recovery_time needs 'after PHASE', like recovery_time <= 20s after spike", offset
        )
    kind = objective.statistic.kind
    if (kind, objective.upper) in (("max", False), ("min", True)):
        has = "a ceiling" if kind == "max" else "a floor"
        raise ObjectiveError(f"{kind} has {has}, not {op}", offset)
    if metric.dimension is Dimension.TIME and not objective.upper:
        raise ObjectiveError(f"{metric.name} is better when smaller: its limit is <= or <, not {op}", offset)
    if not metric.smaller_is_better and objective.upper:
        raise ObjectiveError(f"{metric.name} is better when larger: its limit is >= or >, not {op}", offset)
    if metric.name in _COSTS and not objective.upper:
        raise ObjectiveError(f"{metric.name} is better when smaller: its limit is <= or <, not {op}", offset)
    if limit.reference is not None:
        _refuse_itself(objective, offset)
        return
    value = limit.offset
    full = metric.name in BOUNDED and limit.dimension is Dimension.SHARE
    positive = limit.dimension in _NEVER_ZERO
    never_fails = (full and ((op == "<=" and value >= 1) or (op == "<" and value > 1))) or (
        op == ">=" and value == 0
    )
    never_holds = (
        (op == "<" and value == 0)
        or (op == "<=" and value == 0 and positive)
        or (full and ((op == ">" and value >= 1) or (op == ">=" and value > 1)))
    )
    if never_fails:
        raise ObjectiveError(f"{objective.text!r} can never fail", offset)
    if never_holds:
        raise ObjectiveError(f"{objective.text!r} can never hold", offset)


#: Ratios and totals that nobody wants more of.
_COSTS = ("error_rate", "cost_per_million_tokens", "server_cpu_increase", "gpu_energy")
#: What a server that answered at all has used or made some of.
_NEVER_ZERO = frozenset(
    (Dimension.TIME, Dimension.COUNT, Dimension.BYTES, Dimension.MONEY, Dimension.POWER, Dimension.ENERGY)
)


def _refuse_itself(objective: Objective, offset: int) -> None:
    """A comparison of one thing with itself; of a `*` all others are compared too."""
    limit, scope = objective.limit, objective.scope
    if limit.reference in SCOPE_KINDS and getattr(scope, limit.reference) == limit.reference_name:
        what = f"{limit.reference}:{limit.reference_name}"
        raise ObjectiveError(f"{objective.text!r} compares {what} with itself", offset)
