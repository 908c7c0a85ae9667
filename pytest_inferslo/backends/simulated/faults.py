"""Fault scripts: what goes wrong on a simulated server, when, and for which share of the requests.

A script is a YAML or JSON mapping: `seed` (default 0) and `faults`, a list of mappings with `kind` and

    kind          fields (times count from the moment the script is installed)
    start         at: the server begins to listen that late
    error         share, status (500): refused before the first token; `from`/`until` make it a storm
    overload      limit: 429 with Retry-After while so many requests are open
    hang          share: accepted, then never answered; /health stays well
    error_event   share, after_tokens: an error event in the stream, then [DONE]; not streaming: status 500
    truncate      share, after_tokens, reset (false): the connection ends in the middle of the answer
    empty         share: status 200 and an answer without any content
    stall         at, length: no step ends for so long
    slow          factor: steps take that many times as long
    unhealthy     /health answers 503
    crash         at, exit_code (1) or signal: the process is gone
    engine_death  at: /health answers 503, requests 500, and the process exits with 0 some 2 s later, as vLLM
    leak          bytes: so much memory is never freed again, per request

`share` is `2%` or 0..1 (default 1); `from` and `until` bound any of the kinds that have a share, and slow,
overload, unhealthy and leak. Each fault draws from its own generator in the order of arrivals: one seed, one
sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from pytest_inferslo.errors import BackendConfigError

_WINDOW = {"from", "until"}
_KINDS: dict[str, set[str]] = {
    "start": {"at"},
    "error": {"share", "status"} | _WINDOW,
    "overload": {"limit"} | _WINDOW,
    "hang": {"share"} | _WINDOW,
    "error_event": {"share", "after_tokens"} | _WINDOW,
    "truncate": {"share", "after_tokens", "reset"} | _WINDOW,
    "empty": {"share"} | _WINDOW,
    "stall": {"at", "length"},
    "slow": {"factor"} | _WINDOW,
    "unhealthy": set(_WINDOW),
    "crash": {"at", "exit_code", "signal"},
    "engine_death": {"at"},
    "leak": {"bytes"} | _WINDOW,
}
_MANDATORY = {
    "start": "at", "overload": "limit", "stall": "length", "slow": "factor", "crash": "at",
    "engine_death": "at", "leak": "bytes",
}  # fmt: skip
PER_REQUEST = ("error", "overload", "hang", "error_event", "truncate", "empty")


@dataclass(frozen=True)
class Fault:
    """One fault; fields that its kind does not use keep their defaults. Times in seconds."""

    kind: str
    at: float = 0.0
    until: float = float("inf")
    share: float = 1.0
    status: int = 500
    limit: int = 0
    after_tokens: int = 1
    reset: bool = False
    length: float = 0.0
    factor: float = 1.0
    exit_code: int = 1
    signal: int = 0
    bytes: int = 0

    def active(self, elapsed: float) -> bool:
        """Whether `elapsed` seconds after the installation lie in the fault's window."""
        return self.at <= elapsed < self.until


@dataclass(frozen=True)
class Script:
    """The faults of one file, in its order."""

    faults: tuple[Fault, ...] = ()
    seed: int = 0

    def delay_before_listening(self) -> float:
        return max((fault.at for fault in self.faults if fault.kind == "start"), default=0.0)


class Dice:
    """Decides for each request which fault of a script meets it; deterministic in the order of arrivals."""

    def __init__(self, script: Script) -> None:
        self._faults = [
            (fault, Random(script.seed * 1_000_003 + index))
            for index, fault in enumerate(script.faults)
            if fault.kind in PER_REQUEST
        ]

    def fate(self, elapsed: float, open_requests: int) -> Fault | None:
        """The first fault that meets a request which arrives now, None for a request that is served."""
        met: Fault | None = None
        for fault, random in self._faults:
            draw = random.random()
            meets = fault.active(elapsed) and draw < fault.share
            if met is None and meets and (fault.kind != "overload" or open_requests >= fault.limit):
                met = fault
        return met


def parse_script(value: Mapping[str, Any], where: str) -> Script:
    """A script from the mapping of its file. Raises BackendConfigError that names the entry."""
    unknown = set(value) - {"faults", "seed"}
    if unknown:
        raise BackendConfigError(f"{where}: unknown key {sorted(unknown)[0]!r}; known: faults, seed")
    entries = value.get("faults") or []
    if not isinstance(entries, list):
        raise BackendConfigError(f"{where}: faults: a list is wanted, got {type(entries).__name__}")
    faults = tuple(_parse_fault(entry, f"{where}: fault {number}") for number, entry in enumerate(entries, 1))
    seed = value.get("seed", 0)
    if not isinstance(seed, int):
        raise BackendConfigError(f"{where}: seed: {seed!r} is not a whole number")
    return Script(faults, seed)


def _parse_fault(entry: Any, where: str) -> Fault:
    from pytest_inferslo.core.units import nearest

    if not isinstance(entry, Mapping) or "kind" not in entry:
        raise BackendConfigError(f"{where}: a mapping with `kind` is wanted, got {entry!r}")
    kind = str(entry["kind"])
    if kind not in _KINDS:
        raise BackendConfigError(
            f"{where}: unknown kind {kind!r}{nearest(kind, _KINDS)}; known: {', '.join(_KINDS)}"
        )
    wanted = _MANDATORY.get(kind)
    if wanted and wanted not in entry:
        raise BackendConfigError(f"{where}: {kind} wants `{wanted}`")
    fields: dict[str, Any] = {"kind": kind}
    for key, text in entry.items():
        if key == "kind":
            continue
        if key not in _KINDS[kind]:
            known = ", ".join(sorted(_KINDS[kind]))
            raise BackendConfigError(
                f"{where}: {kind} has no field {key!r}{nearest(key, _KINDS[kind])}; it has: {known}"
            )
        fields["at" if key == "from" else key] = _parse_field(key, text, where)
    return Fault(**fields)


def _parse_field(key: str, value: Any, where: str) -> Any:
    from pytest_inferslo.core.metrics import Dimension
    from pytest_inferslo.core.units import parse_duration, parse_quantity, parse_share

    try:
        if key in ("at", "from", "until", "length"):
            return parse_duration(value)
        if key == "share":
            share = parse_share(value) if isinstance(value, str) else float(value)
            if not 0 <= share <= 1:
                raise ValueError("a share lies between 0 and 1")
            return share
        if key == "bytes":
            return int(parse_quantity(value, Dimension.BYTES)) if isinstance(value, str) else int(value)
        if key == "reset":
            return bool(value)
        if key == "factor":
            return float(value)
        return int(value)
    except (TypeError, ValueError) as error:
        raise BackendConfigError(f"{where}: {key}: {value!r}: {error}") from error
