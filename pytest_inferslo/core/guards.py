"""Validity guards: what makes a measurement one that cannot be trusted, whatever it says.

Each guard compares one or more facts of the run (core/facts) with a threshold, which a policy may move:

    guards:
      send_lag: 20ms
      duplicate_prompts: off
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_inferslo.core.metrics import Dimension
from pytest_inferslo.core.policy import Policy
from pytest_inferslo.core.units import format_quantity
from pytest_inferslo.core.verdict import GuardFinding

Facts = Mapping[str, float]
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Guard:
    """`default` is the threshold in base units, None for a guard that is off until a policy sets it.

    `seen` gives the number to compare, None when it was not measured; a `required` guard is broken then.
    """

    name: str
    dimension: Dimension
    default: float | None
    meaning: str
    seen: Callable[[Facts, Record], float | None]
    required: bool = True
    advice: str = ""


def _fact(name: str) -> Callable[[Facts, Record], float | None]:
    return lambda facts, record: facts.get(name)


def _undelivered(facts: Facts, record: Record) -> float | None:
    if "undelivered_share" not in facts:
        return None
    return max(facts["undelivered_share"], _shortfall(facts, record))


def _shortfall(facts: Facts, record: Record) -> float:
    """The share of the asked rate that did not leave in the window; a few stragglers at its end are none."""
    asked, offered = facts.get("asked_rate", 0.0), facts.get("offered_rate", 0.0)
    window = record.get("window") or {}
    seconds = (window.get("end", 0) - window.get("start", 0)) / 1e9
    short = asked - offered - (3 / seconds if seconds > 0 else 0.0)
    return max(0.0, short / asked) if asked else 0.0


def _unfinished(facts: Facts, record: Record) -> float | None:
    window = record.get("window") or {}
    asked = facts.get("asked_rate", 0.0) * (window.get("end", 0) - window.get("start", 0)) / 1e9
    return facts["unfinished"] / asked if asked and "unfinished" in facts else None


def _mismatch(facts: Facts, record: Record) -> float | None:
    names = ("count_mismatch", "missing_indices", "duplicate_indices")
    return sum(facts[name] for name in names) if all(name in facts for name in names) else None


def _recording(facts: Facts, record: Record) -> float | None:
    names = ("recording_errors", "overflow")
    return sum(facts[name] for name in names) if all(name in facts for name in names) else None


def _errors(facts: Facts, record: Record) -> float | None:
    return float(len(record.get("errors") or ()))


def _other_models(facts: Facts, record: Record) -> float | None:
    """Not measured where a server named none: who insists on the model is not told which one it was."""
    answers = record.get("answers") or ()
    if not answers or any(answer["answered"] is None for answer in answers):
        return None
    return float(sum(answer["answered"] != answer["asked"] for answer in answers))


def _simulator_lag(facts: Facts, record: Record) -> float | None:
    """A step more than a second late makes the simulated clock jump: no percentile hides that."""
    seen = record.get("simulator")
    return max(seen["lag_p99_ns"], 1e9 if seen["resyncs"] else 0.0) if seen else None


_T, _S, _C = Dimension.TIME, Dimension.SHARE, Dimension.COUNT

GUARDS: dict[str, Guard] = {
    guard.name: guard
    for guard in (
        Guard("send_lag", _T, 50e6, "p99 of how late requests were sent", _fact("send_lag_p99_ns"),
              advice="the load generator was late: give it more workers or a quieter machine"),
        Guard("undelivered", _S, 0.01, "share of the asked load that was not sent in time", _undelivered,
              advice="the load asked for was not offered: raise max_connections and max_in_flight"),
        Guard("unfinished", _S, None, "share of requests in flight at the end", _unfinished, required=False),
        Guard("burst_delivery", _S, 0.2, "share of chunks that shared a read with an earlier one",
              _fact("burst_share"), required=False,
              advice="chunks arrived in bunches, so gaps between them are not the server's"),
        Guard("clock", _C, 0.0, "requests whose times ran backwards", _fact("clock_steps"),
              advice="a clock stepped: the times of these requests mean nothing"),
        Guard("duplicate_prompts", _S, 0.01, "share of prompts that had been sent before",
              _fact("duplicate_prompt_share"), required=False,
              advice="prompts repeat and a prefix cache answers: make them unique or declare cache='shared'"),
        Guard("mismatch", _C, 0.0, "requests missing from the record, or in it twice", _mismatch,
              advice="the record does not hold every request of the schedule exactly once"),
        Guard("recording", _C, 0.0, "requests that the generator failed on or could not place", _recording,
              advice="the load generator itself failed: see the outcomes of the run"),
        Guard("loadgen_cpu", _S, 0.95, "CPU of the busiest worker, of one core", _fact("loadgen_cpu_max"),
              required=False, advice="the load generator ran out of CPU: give it more workers"),
        Guard("loop_lag", _T, 50e6, "p99 of the workers' event-loop lag", _fact("loop_lag_p99_ns"),
              required=False, advice="the workers were starved: use more of them or a quieter machine"),
        Guard("simulator_lag", _T, 100e6, "p99 of how late the simulator's own steps ended", _simulator_lag,
              advice="the machine is too slow for the simulator's profile: these are its times"),
        Guard("other_model", _C, None, "models and adapters that the server answers for as another one",
              _other_models, advice="it may have served another model than was asked for"),
        Guard("lost_worker", _C, 0.0, "workers that went away", _fact("lost_workers"),
              advice="part of the load and of its record is gone"),
        Guard("server_survived", _C, 0.0, "errors of the run itself", _errors,
              advice="the server or the load generator broke during the run"),
    )
}  # fmt: skip

_NOT_MEASURED = "not measured"

#: What holds the causes for which a run is ended before its time.
_CAUSE = "server_survived"
#: What breaks in any such run: the rest of its load is not sent, or not recorded, and nobody is left to count it.
_FOLLOWING = frozenset(("undelivered", "unfinished", "mismatch", "lost_worker"))

#: What is measured between the chunks of an answer: nothing where chunks were read together.
_CHUNK_METRICS = frozenset(("icl", "max_stall"))
#: Latencies that begin at the schedule, and so contain the lag of the send.
_FROM_SCHEDULE = frozenset(("ttft", "ttfo", "e2e", "normalized"))


def check(policy: Policy, facts: Facts, record: Record) -> tuple[GuardFinding, ...]:
    """Every guard that is on and has something to say about this run, in the order of GUARDS."""
    findings = []
    for guard in GUARDS.values():
        threshold = _threshold(guard, policy, record)
        if threshold is not None:
            findings.append(_judged(guard, threshold, facts, record))
    broken = {finding.name for finding in findings if not finding.ok}
    if not cut_short(record) or _CAUSE not in broken:
        return tuple(findings)
    return tuple(_following(found) if _follows(found) else found for found in findings)


def cut_short(record: Record) -> bool:
    """Whether something went wrong for which the run was ended before its time, or nobody wrote down its end."""
    never_ended = "epoch" in record and not record["epoch"].get("unix_ns")
    return bool(record.get("errors")) and (never_ended or bool(record.get("stopped_early")))


def ranked(findings: Iterable[GuardFinding]) -> tuple[GuardFinding, ...]:
    """The broken ones first, and of them the cause first and what follows from it last."""
    return tuple(sorted(findings, key=lambda found: (found.ok, bool(found.follows), found.name != _CAUSE)))


def _follows(found: GuardFinding) -> bool:
    return not found.ok and (found.name in _FOLLOWING or found.observed_text == _NOT_MEASURED)


def _following(found: GuardFinding) -> GuardFinding:
    reason = f"{GUARDS[found.name].meaning}: follows from {_CAUSE}, for the run was ended before its time"
    return replace(found, reason=reason, follows=_CAUSE)


def _threshold(guard: Guard, policy: Policy, record: Record) -> float | None:
    if guard.name == "simulator_lag" and "simulator" not in record:
        return None
    if guard.name in policy.guards:
        return policy.guards[guard.name]
    if guard.name == "burst_delivery" and not any(o.metric.name in _CHUNK_METRICS for o in policy.judged()):
        return None
    definition = (record.get("scenario") or {}).get("definition") or {}
    if guard.name == "duplicate_prompts" and definition.get("cache") == "shared":
        return None
    if guard.name == "send_lag":
        return lag_allowance(policy)
    return guard.default


def lag_allowance(policy: Policy) -> float:
    """A tenth of the tightest ceiling on a latency that starts at the schedule, between 1 and 50 ms.

    The lag is part of every latency that starts at the schedule: it may spoil a good run, not gild a bad one.
    """
    limits = [
        objective.limit.offset
        for objective in policy.judged()
        if objective.metric.name in _FROM_SCHEDULE and objective.limit.reference is None
    ]
    return min(50e6, max(1e6, min(limits, default=500e6) / 10))


def _judged(guard: Guard, threshold: float, facts: Facts, record: Record) -> GuardFinding:
    seen = guard.seen(facts, record)
    allowed = f"<= {format_quantity(threshold, guard.dimension)}"
    if seen is None:
        reason = f"{guard.meaning}: {_NOT_MEASURED}"
        return GuardFinding(guard.name, not guard.required, _NOT_MEASURED, allowed, reason)
    ok = seen <= threshold
    observed = format_quantity(seen, guard.dimension, apart_from=threshold)
    if ok:
        return GuardFinding(guard.name, True, observed, allowed)
    return GuardFinding(guard.name, False, observed, allowed, _reason(guard, observed, facts, record))


def _reason(guard: Guard, observed: str, facts: Facts, record: Record) -> str:
    if guard.name == "server_survived":
        told = "the run was ended before its time" if cut_short(record) else guard.advice
        return f"{told}: {'; '.join(map(str, record.get('errors') or ()))}"
    if guard.name == "undelivered" and "asked_rate" in facts:
        offered, asked = (f"{facts.get(name, 0.0):.4g}" for name in ("offered_rate", "asked_rate"))
        return f"offered {offered} of {asked} requests/s; {guard.advice}"
    return f"{guard.meaning}: {observed}; {guard.advice}"
