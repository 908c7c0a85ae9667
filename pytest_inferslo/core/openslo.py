"""OpenSLO v1 documents as policies, as far as a test run can say what they say.

    threshold SLI       op lte, value 200, target 0.99         METRIC p99 <= 200UNIT
    ratio SLI           target 0.999                           error_rate <= 0.1%, or goodput >= 99.9%
    Timeslices          timeSliceTarget, timeSliceWindow       the same "for WINDOW", in every window
    burn-rate alerts    threshold, lookbackWindow, alertAfter  error_budget with burn rules

OpenSLO names a query in a monitoring system where a policy names a metric, and its values carry no unit.
They are taken from the annotations `inferslo/metric` and `inferslo/unit` of the SLO or SLI, else from the
arguments, else from a metric's name in the name of the SLI or SLO. What cannot be said in a policy is
listed, with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from pytest_inferslo.core.document import ListNode, MapNode, Node, Scalar
from pytest_inferslo.core.grammar import parse_objective
from pytest_inferslo.core.metrics import METRICS, Source
from pytest_inferslo.core.objective import ObjectiveError
from pytest_inferslo.errors import Problem

_OPS = {"lte": "<=", "lt": "<", "gte": ">=", "gt": ">"}
_DURATION = re.compile(r"([0-9]+)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass
class Translation:
    """`policies` are YAML texts, one per SLO that could be said; `left_out` names the rest."""

    policies: list[str] = field(default_factory=list)
    left_out: list[Problem] = field(default_factory=list)


def translate(
    files: Mapping[str, Sequence[Node]], metric: str | None = None, unit: str | None = None
) -> Translation:
    """All SLOs of the documents of some files, which may refer to each other's indicators and alerts.

    `metric` and `unit` are for those that do not name theirs.
    """
    objects = [(file, one) for file, documents in files.items() for one in _objects(documents)]
    named = {(_text(one, "kind"), _text(one, "metadata", "name")): one for _, one in objects}
    translation = Translation()
    for file, one in objects:
        if _text(one, "kind") == "SLO":
            _Slo(one, file, named, metric, unit, translation).translate()
    for file, documents in files.items():
        if not any(_text(one, "apiVersion").startswith("openslo/") for one in _objects(documents)):
            translation.left_out.append(Problem(file, 1, 1, "holds no OpenSLO document"))
    if not any(kind == "SLO" for kind, _ in named):
        for file in files:
            translation.left_out.append(Problem(file, 1, 1, "holds no OpenSLO document of kind SLO"))
    return translation


def _objects(documents: Sequence[Node]) -> Iterator[Node]:
    """OpenSLO objects stand one in a document, or several as a list."""
    for document in documents:
        yield from document.items if isinstance(document, ListNode) else (document,)


class _Slo:
    """One SLO on its way into a policy."""

    def __init__(
        self,
        document: Node,
        file: str,
        named: Mapping[tuple[str, str], Node],
        metric: str | None,
        unit: str | None,
        translation: Translation,
    ) -> None:
        self._document, self._file, self._named = document, file, named
        self._translation = translation
        self._name = _text(document, "metadata", "name")
        self._sli = self._indicator()
        self._metric = self._annotation("metric") or metric or self._guessed()
        self._unit = self._annotation("unit") or unit or ""

    def translate(self) -> None:
        version = _text(self._document, "apiVersion")
        if version != "openslo/v1":
            self._leave_out(self._document, f"apiVersion {version!r} is not openslo/v1")
            return
        objectives = self._strictest(
            (text, node)
            for node in _items(self._document, "spec", "objectives")
            for text in self._objective(node)
        )
        if not objectives:
            self._leave_out(self._document, f"nothing of SLO {self._name!r} could be said in a policy")
            return
        self._say_what_is_lost()
        lines = [f"policy: {re.sub(r'[^A-Za-z0-9._-]+', '-', self._name).strip('-.') or 'imported'}"]
        service = _text(self._document, "spec", "service")
        lines += [f"owner: {service}"] if re.fullmatch(r"[\w .-]+", service) else []
        lines += [
            "objectives:",
            *(f"  - {text}" for text in objectives),
            *self._budget(objectives),
        ]
        self._translation.policies.append("\n".join(lines) + "\n")

    def _leave_out(self, node: Node, message: str) -> None:
        self._translation.left_out.append(Problem(self._file, node.line, node.column, message))

    def _strictest(self, found: Iterable[tuple[str, Node]]) -> list[str]:
        """A policy promises each thing once; the looser objectives of an SLO hold where the strictest does."""
        kept: dict[tuple[str, bool], tuple[float, str]] = {}
        for text, node in found:
            objective = parse_objective(text)
            limit = objective.limit.offset
            about = objective.left, objective.upper
            before = kept.get(about)
            if before is None or (limit < before[0] if objective.upper else limit > before[0]):
                kept[about] = limit, text
            if before is not None and before[1] != text:
                looser = before[1] if kept[about][1] == text else text
                self._leave_out(node, f"{looser}: follows from {kept[about][1]}")
        return [text for _, text in kept.values()]

    def _indicator(self) -> Node | None:
        inline = _at(self._document, "spec", "indicator")
        name = _text(self._document, "spec", "indicatorRef")
        found = inline if inline is not None else self._named.get(("SLI", name))
        if found is None and name:
            self._leave_out(self._document, f"its SLI {name!r} stands in none of these files")
        return found

    def _annotation(self, name: str) -> str:
        for node in (self._document, self._sli):
            text = _text(node, "metadata", "annotations", f"inferslo/{name}") if node is not None else ""
            if text:
                return text
        return ""

    def _guessed(self) -> str:
        """A metric whose name stands in the name of the indicator or of the SLO."""
        names = [_text(self._sli, "metadata", "name") if self._sli is not None else "", self._name]
        words = re.split(r"[^a-z0-9_]+", " ".join(names).lower().replace("-", " "))
        found = next((word for word in words if word in METRICS), "")
        if not found and self._sli is not None and _at(self._sli, "spec", "ratioMetric") is not None:
            self._leave_out(
                self._document,
                f"what 'good' means in SLO {self._name!r}: taken for a request that succeeded (error_rate); annotate "
                "inferslo/metric where it means more",
            )
            return "error_rate"
        return found

    def _objective(self, node: Node) -> Iterator[str]:
        target = _number(_text(node, "target"))
        if target is None and _text(node, "targetPercent"):
            percent = _number(_text(node, "targetPercent"))
            target = percent / 100 if percent is not None else None
        if target is None or not 0 < target < 1:
            self._leave_out(node, "an objective without a target between 0 and 1 promises nothing")
            return
        window = ""
        if _text(self._document, "spec", "budgetingMethod") == "Timeslices":
            sliced = _number(_text(node, "timeSliceTarget"))
            slice_window = _text(node, "timeSliceWindow") or "1"
            window = f" for {slice_window}" + ("m" if slice_window.isdigit() else "")
            self._leave_out(
                node, f"{_percent(target)} % of the time slices: here every window must keep the promise"
            )
            target = sliced if sliced is not None and 0 < sliced < 1 else target
        text = self._promise(node, target)
        if text is None:
            return
        try:
            parse_objective(text + window)
        except ObjectiveError as error:
            self._leave_out(node, f"{text + window}: {error}")
        else:
            yield text + window

    def _promise(self, node: Node, target: Decimal) -> str | None:
        known = METRICS.get(self._metric)
        if known is None:
            self._leave_out(
                node, f"SLO {self._name!r} names no metric; annotate inferslo/metric or give --metric"
            )
            return None
        if known.source is Source.RATIO:
            return (
                f"error_rate <= {_percent(1 - target)}%"
                if known.smaller_is_better
                else f"{known.name} >= {_percent(target)}%"
            )
        op, value = _OPS.get(_text(node, "op")), _text(node, "value")
        if op is None or _number(value) is None:
            self._leave_out(node, f"{known.name} needs 'op' (lte, lt, gte, gt) and 'value'")
            return None
        if not self._unit:
            self._leave_out(node, f"the value {value} has no unit; annotate inferslo/unit or give --unit")
            return None
        share = target if op in ("<=", "<") else 1 - target
        return f"{known.name} p{_percent(share)} {op} {value}{self._unit}"

    def _say_what_is_lost(self) -> None:
        for window in _items(self._document, "spec", "timeWindow"):
            text = _text(window, "duration")
            self._leave_out(window, f"the time window of {text}: a run is judged over its own length")
        if _text(self._document, "spec", "budgetingMethod") == "RatioTimeslices":
            self._leave_out(self._document, "RatioTimeslices: judged by requests, not by slices of time")
        composite = [
            node for node in _items(self._document, "spec", "objectives") if _at(node, "compositeWeight")
        ]
        for node in composite:
            self._leave_out(node, "compositeWeight: weigh the objectives with 'weight' and 'rubric: pass_at'")

    def _budget(self, objectives: Sequence[str]) -> list[str]:
        promise = next(
            (text for text in objectives if text.startswith("error_rate") and "for" not in text), None
        )
        windows = [_text(window, "duration") for window in _items(self._document, "spec", "timeWindow")]
        rules = list(self._burn_rules())
        if promise is None or not rules or not windows or not _DURATION.fullmatch(windows[0]):
            return []
        return ["error_budget:", f"  objective: {promise}", f"  period: {windows[0]}", "  burn:", *rules]

    def _burn_rules(self) -> Iterator[str]:
        for entry in _items(self._document, "spec", "alertPolicies"):
            name = _text(entry, "alertPolicyRef") or (entry.text if isinstance(entry, Scalar) else "")
            policy = self._named.get(("AlertPolicy", name), entry)
            if name and policy is entry:
                self._leave_out(entry, f"the alert policy {name!r}, which stands in none of these files")
            for node in _items(policy, "spec", "conditions"):
                name = _text(node, "conditionRef")
                condition = self._named.get(("AlertCondition", name), node)
                rule = self._burn_rule(condition)
                if name and condition is node:
                    self._leave_out(
                        node, f"the alert condition {name!r}, which stands in none of these files"
                    )
                elif rule is None:
                    self._leave_out(node, "an alert condition that is no burn rate")
                else:
                    yield rule

    def _burn_rule(self, condition: Node) -> str | None:
        rate = _number(_text(condition, "spec", "condition", "threshold"))
        long = _text(condition, "spec", "condition", "lookbackWindow")
        short = _text(condition, "spec", "condition", "alertAfter")
        short = short if short.strip("0smhdw") else long  # at once, the default
        if _text(condition, "spec", "condition", "kind") not in ("burnrate", "") or not rate or rate < 0:
            return None
        windows = [_DURATION.fullmatch(text) for text in (long, short)]
        lengths = [int(match[1]) * _SECONDS[match[2]] for match in windows if match]
        if len(lengths) < 2 or 0 in lengths:
            return None
        long, short = (long, short) if lengths[0] >= lengths[1] else (short, long)
        return f"    - {{rate: {rate:f}, long: {long}, short: {short}}}"


def _at(node: Node | None, *path: str) -> Node | None:
    for key in path:
        if not isinstance(node, MapNode):
            return None
        node = next((value for name, value in node.entries if name.text == key), None)
    return node


def _text(node: Node | None, *path: str) -> str:
    found = _at(node, *path)
    return found.text.strip() if isinstance(found, Scalar) and found.kind != "null" else ""


def _items(node: Node | None, *path: str) -> tuple[Node, ...]:
    found = _at(node, *path)
    return found.items if isinstance(found, ListNode) else ()


def _number(text: str) -> Decimal | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if value.is_finite() and abs(value) < 10**15 else None


def _percent(share: Decimal) -> str:
    """0.999 as 99.9, without an exponent or trailing zeros."""
    text = f"{share * 100:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
