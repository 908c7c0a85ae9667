"""A policy and a measured run in, a verdict out; the same bytes for the same run, live or saved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_inferslo.core import guards
from pytest_inferslo.core.baseline import Baseline
from pytest_inferslo.core.burn import burn_findings
from pytest_inferslo.core.comparison import evidence_of, level_of
from pytest_inferslo.core.distribution import Scope
from pytest_inferslo.core.evidence import Evidence, Rules, not_measured
from pytest_inferslo.core.finding import finding
from pytest_inferslo.core.likeness import load_differences
from pytest_inferslo.core.objective import Objective
from pytest_inferslo.core.policy import Policy, recovery_ceiling
from pytest_inferslo.core.pool import Pool
from pytest_inferslo.core.questions import level_name, questions, scopes
from pytest_inferslo.core.rubric import Scored, decides, score
from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import Finding, GuardFinding, Status, Verdict
from pytest_inferslo.errors import UsageError

__all__ = ["baseline_from", "judge", "judge_together", "questions"]

Record = Mapping[str, Any]

#: The share of chunks read together from which a reader of a `tpot` should know.
_BUNCHED = 0.2


def judge(policy: Policy, summary: Summary, record: Record, *, baseline: Baseline | None = None) -> Verdict:
    """The verdict of `policy` on one run; `summary` answers `questions(policy.for_record(record), record)`.

    Raises UsageError for a baseline that is of another scenario, empty, or the run itself.
    """
    return judge_together(policy, [(summary, record)], baseline=baseline)


def judge_together(
    policy: Policy, runs: Sequence[tuple[Summary, Record]], *, baseline: Baseline | None = None
) -> Verdict:
    """The verdict on several repeats of one scenario, as one run with all of their requests.

    Raises UsageError for runs of several scenarios, for a run that is given twice, and as `judge` does.
    """
    _refuse_unlike([record for _, record in runs])
    pool = Pool(tuple(summary for summary, _ in runs), tuple(record for _, record in runs))
    mine = policy.for_record(pool.record)
    compared = baseline if mine.refers_to("baseline") else None
    if compared is not None:
        for record in pool.records:
            compared.refuse_for(record)
    bench = Bench(mine, pool, baseline)
    guarded = _guards(mine, runs)
    scored = [
        Scored(found, objective.weight, objective.key)
        for objective in mine.objectives
        for found in bench.findings(objective)
    ]
    penalties = [bench.worst(bench.findings(penalty.promise)) for penalty in mine.rubric.penalties]
    scored += [Scored(found) for found in burn_findings(mine, pool, bench.rules)]
    status, details = score(mine.rubric, scored, penalties)
    notes = _notes(mine, pool) + (compared.notes_for(pool.record) if compared is not None else [])
    if status is Status.PASS and not penalties and not any(decides(one.finding) for one in scored):
        # A vetoer that is silent has not agreed.
        status = Status.INCONCLUSIVE
        notes.insert(0, "no promise that decides was measured, so that nothing is proven")
    if not all(guard.ok for guard in guarded):
        status = Status.INVALID
    return Verdict(
        status=status,
        policy=mine.name,
        policy_sha256=mine.sha256,
        confidence=mine.confidence,
        findings=tuple(one.finding for one in scored),
        guards=guarded,
        notes=tuple(notes),
        rubric=details or None,
        run_ids=tuple(str(record.get("run_id") or "") for record in pool.records),
    )


def _refuse_unlike(records: Sequence[Record]) -> None:
    """What is counted twice proves nothing more, and what is of two scenarios proves nothing of either."""
    ids = [record.get("run_id") for record in records]
    twice = next((one for number, one in enumerate(ids) if one and one in ids[:number]), None)
    if twice is not None:
        raise UsageError(f"run {twice} is given twice: its requests count once; name each run once")
    scenarios = list(dict.fromkeys((record.get("scenario") or {}).get("name") or "" for record in records))
    if len(scenarios) > 1:
        names = ", ".join(map(repr, scenarios))
        raise UsageError(
            f"runs of several scenarios ({names}) cannot be judged together: judge each by itself"
        )
    for record in records[1:]:
        backends = [(one.get("backend") or {}).get("name") for one in (records[0], record)]
        changed = load_differences(records[0], record) or (["backend"] if len(set(backends)) > 1 else [])
        if changed:
            raise UsageError(
                f"run {record.get('run_id')} is no repeat of {records[0].get('run_id')} (other {', '.join(changed)}): "
                "judge each by itself, or put them side by side with `inferslo compare`"
            )


def baseline_from(policy: Policy, summary: Summary, record: Record) -> Baseline:
    """The levels of an earlier run that the policy's limits refer to."""
    pool = Pool((summary,), (record,))
    mine = policy.for_record(record)
    rules = _rules(mine, pool).stricter(2)
    levels = {}
    for objective in mine.judged():
        for scope in scopes(objective, summary.frame) if objective.limit.reference == "baseline" else ():
            level = level_of(objective, pool, scope, rules, mine.prices)
            if level is not None:
                levels[level_name(objective, scope)] = level
    scenario = (record.get("scenario") or {}).get("name") or ""
    broken = [
        f"guard {guard.name}: {guard.observed_text}, allowed {guard.threshold_text}"
        for guard in guards.check(mine, summary.facts, record)
        if not guard.ok and not guard.follows
    ]
    about = {name: record[name] for name in _ABOUT if name in record}
    return Baseline(str(record.get("run_id") or ""), scenario, levels, "; ".join(broken), about)


_ABOUT = ("scenario", "backend", "host", "gpus", "window", "load_seconds")


class Bench:
    """Where one promise after the other is judged on the same runs."""

    def __init__(self, policy: Policy, pool: Pool, baseline: Baseline | None) -> None:
        self._policy = policy
        self.pool = pool
        self._baseline = baseline
        self._ceiling = recovery_ceiling(policy)
        self.rules = _rules(policy, pool)

    def findings(self, objective: Objective) -> list[Finding]:
        """One for each scope that the objective speaks of."""
        found = scopes(objective, self.pool.first.frame)
        if not found:
            nothing = not_measured(f"the run has nothing that {objective.scope} stands for")
            return [finding(objective, Scope(), nothing)]
        if objective.condition is None:
            return [finding(objective, scope, self._evidence(objective, scope)) for scope in found]
        return list(self._conditional(objective, found))

    @staticmethod
    def worst(findings: Sequence[Finding]) -> Finding:
        """The one that decides what all of them together say."""
        order = (Status.FAIL, Status.INCONCLUSIVE, Status.PASS)
        return min(findings, key=lambda found: order.index(found.status))

    def _evidence(self, objective: Objective, scope: Scope) -> Evidence:
        return evidence_of(
            objective, self.pool, scope, self.rules, self._baseline, self._policy.prices, self._ceiling
        )

    def _conditional(self, objective: Objective, found: Sequence[Scope]) -> Iterable[Finding]:
        """`while`: only the phases in which the condition held; and the load must have reached its edge."""
        condition = objective.condition
        assert condition is not None
        seen = {scope: self.pool.level(condition.metric.name, scope) for scope in found}
        known = [value for value in seen.values() if value is not None]
        if not known:
            yield finding(
                objective, Scope(), not_measured(f"no reading of {condition.metric.name} in any phase")
            )
            return
        if not any(condition.holds(value) for value in known):
            which = f"{condition.metric.name} {condition.op} {condition.limit.text}"
            yield finding(objective, Scope(), not_measured(f"no phase had {which}"))
            return
        for scope, value in seen.items():
            if value is None:
                reason = (
                    f"no reading of {condition.metric.name}, so that it is not known what was promised here"
                )
                yield finding(objective, scope, Evidence(Status.INCONCLUSIVE, None, 0, reason=reason))
            elif condition.holds(value):
                yield finding(objective, scope, self._evidence(objective, scope))
        if all(condition.holds(value) for value in known):
            edge = max(known) if condition.op in ("<", "<=") else min(known)
            reason = (
                f"no phase reached beyond {condition.metric.name} {condition.op} {condition.limit.text} "
                f"(the nearest mean is {edge:.4g}), so that the promise was not tried to its edge"
            )
            yield finding(objective, Scope(), Evidence(Status.INCONCLUSIVE, None, 0, reason=reason))


def _rules(policy: Policy, pool: Pool) -> Rules:
    limited = any(o.metric.name == "error_rate" and o.severity == "fail" for o in policy.objectives)
    definitions = [(record.get("scenario") or {}).get("definition") or {} for record in pool.records]
    anytime = any(definition.get("stop_when_certain") for definition in definitions)
    return Rules(policy.confidence, anytime, limited)


def _guards(policy: Policy, runs: Sequence[tuple[Summary, Record]]) -> tuple[GuardFinding, ...]:
    """Each guard once: the first run that breaks it by itself, that breaks it, or the first run."""
    checked = [guards.check(policy, summary.facts, record) for summary, record in runs]
    return guards.ranked(
        min(each, key=lambda found: (found.ok, bool(found.follows))) for each in zip(*checked, strict=True)
    )


def _notes(policy: Policy, pool: Pool) -> list[str]:
    notes = [
        f"guard {name} is switched off by the policy"
        for name, limit in policy.guards.items()
        if limit is None
    ]
    if policy.rubric.pass_at is None and any(o.weight != 1 or o.key for o in policy.objectives):
        notes.append("weight and key of objectives have no effect: the rubric has no pass_at")
    notes += [str(note) for record in pool.records for note in record.get("notes") or ()]
    warmup = [summary.facts.get("warmup_samples", 0.0) for summary in pool.summaries]
    if any(warmup):
        notes.append(f"{math.fsum(warmup):.0f} warm-up requests are not judged")
    bunched = max(summary.facts.get("burst_share", 0.0) for summary in pool.summaries)
    if bunched > _BUNCHED and any(o.metric.streaming for o in policy.judged()):
        notes.append(
            f"{bunched:.0%} of the chunks arrived together with an earlier one: no time lies between them"
        )
    if len(pool.summaries) > 1:
        notes.append(f"{len(pool.summaries)} runs judged together")
    return list(dict.fromkeys(notes))
