"""A scenario: which load to offer, to be written by people, sent to workers as JSON, and recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple

from pytest_inferslo.core import adapters as adapters_module
from pytest_inferslo.core import arrivals as arrivals_module
from pytest_inferslo.core import fields as check
from pytest_inferslo.core import prompts as prompts_module
from pytest_inferslo.core import tagged
from pytest_inferslo.core.adapters import Adapters
from pytest_inferslo.core.arrivals import Arrivals, ArrivalSchedule
from pytest_inferslo.core.fields import Seconds
from pytest_inferslo.core.prompts import Prompts, PromptSource

#: APIs that a scenario may use, and which of them can stream.
APIS = {
    "chat": True,
    "completions": True,
    "responses": True,
    "generate_stream": True,
    "generate": False,
    "infer": False,
    "embeddings": False,
}
CACHES = ("unique", "shared")


class Phase(NamedTuple):
    """A named stretch of a run, ns since its epoch. Names may repeat: `burst` is all bursts together."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Timeouts:
    """After which a request has failed: a time with a unit or seconds. Stored as seconds.

    `connect` until the connection stands; `first_output` from the send to the first output; `stall` between
    two output events; `total` from the send to the end.
    """

    kind: ClassVar[str] = "timeouts"
    connect: Seconds = 5.0
    first_output: Seconds = 60.0
    stall: Seconds = 30.0
    total: Seconds = 300.0

    def __post_init__(self) -> None:
        for item in fields(self):
            _set(self, item.name, check.seconds(f"timeouts.{item.name}", getattr(self, item.name)))


@dataclass(frozen=True)
class Scenario:
    """The load of one measured run, and how it is asked.

    arrivals: when requests come (`constant`, `poisson`, ..., `concurrency`).
    prompts: what they ask (`synthetic`, `dataset`).
    duration: the measured window, a time with a unit or seconds.
    warmup: load of the same kind before it, which no metric sees.
    drain: how long answers may still take after the last arrival; what is open then is `unfinished`, a
    failure. api: `chat`, `completions`, `embeddings`, `responses`; `generate`, `generate_stream`, `infer` on
    Triton. streaming: whether answers are streamed; None (the default) where the API can.
    timeouts: see `Timeouts`.
    max_in_flight, max_connections: of the whole run, over all workers; a request beyond them is never sent, a
    failure. adapters: LoRA adapters and their shares.
    endpoints: weights by endpoint's name, in place of the backend's own.
    cache: `unique` declares that no prompt was seen before, `shared` that prompts or their beginnings repeat;
        None (the default) takes what the prompts declare.
    extra_body: fields added to every request's body.
    seed: of arrivals, prompts, adapters and endpoints. The same seed is the same load.
    repeats: runs that are judged together, with seed, seed + 1, ...
    stop_when_certain: end the run early once every objective is decided at the policy's confidence.

    Times are stored as seconds. Raises ScenarioError, naming the field.
    """

    kind: ClassVar[str] = "scenario"
    arrivals: Arrivals
    prompts: Prompts
    duration: Seconds
    warmup: Seconds = 0.0
    drain: Seconds = 30.0
    api: str = "chat"
    streaming: bool | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    max_in_flight: int = 4096
    max_connections: int = 4096
    adapters: Adapters | None = None
    endpoints: Mapping[str, float] | None = None
    cache: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    repeats: int = 1
    stop_when_certain: bool = False

    def __post_init__(self) -> None:
        check.instance("arrivals", self.arrivals, _ARRIVALS, "constant(), poisson(), bursts(), trace(), ...")
        check.instance("prompts", self.prompts, _PROMPTS, "synthetic() or dataset()")
        _set(self, "duration", check.seconds("duration", self.duration))
        _set(self, "warmup", check.seconds("warmup", self.warmup, zero=True))
        _set(self, "drain", check.seconds("drain", self.drain, zero=True))
        self._check_api()
        check.instance("timeouts", self.timeouts, Timeouts, "Timeouts(connect='5s', total='300s')")
        for name in ("max_in_flight", "max_connections", "repeats"):
            check.whole(name, getattr(self, name))
        check.whole("seed", self.seed, least=0, most=2**63 - 1)
        check.flag("stop_when_certain", self.stop_when_certain)
        check.instance("adapters", self.adapters, (Adapters, type(None)), "adapters(['a', 'b'])")
        self._check_endpoints()
        self._check_cache()
        self._check_body()

    def _check_api(self) -> None:
        check.one_of("api", self.api, tuple(APIS))
        if self.streaming is None:
            _set(self, "streaming", APIS[self.api])
        check.flag("streaming", bool(self.streaming) if self.streaming in (0, 1) else self.streaming)  # type: ignore[arg-type]
        if self.streaming and not APIS[self.api]:
            raise check.refuse("streaming", True, f"api={self.api!r} does not stream; accepted: False")

    def _check_endpoints(self) -> None:
        if self.endpoints is not None:
            named = check.names(
                "endpoints", check.instance("endpoints", self.endpoints, Mapping, "weights by name")
            )
            adapters_module.check_weights("endpoints", tuple(self.endpoints.values()), len(named))
            _set(self, "endpoints", dict(self.endpoints))

    def _check_cache(self) -> None:
        if self.cache is None:
            _set(self, "cache", "shared" if self.prompts.reuse else "unique")
        check.one_of("cache", str(self.cache), CACHES)
        if self.cache == "unique" and self.prompts.reuse:
            raise check.refuse(
                "cache", self.cache, "these prompts repeat on purpose; accepted: 'shared', or no cache="
            )

    def _check_body(self) -> None:
        check.instance("extra_body", self.extra_body, Mapping, "a dictionary of request fields")
        try:
            _set(self, "extra_body", json.loads(json.dumps(dict(self.extra_body), allow_nan=False)))
        except (TypeError, ValueError) as error:
            raise check.refuse("extra_body", self.extra_body, f"it must be JSON ({error})") from None

    @property
    def open_loop(self) -> bool:
        return self.arrivals.open_loop

    @property
    def window_ns(self) -> tuple[int, int]:
        """Start and end of the measured window, ns since the run's epoch."""
        return round(self._warmup * 1e9), round((self._warmup + self._duration) * 1e9)

    @property
    def _warmup(self) -> float:
        return float(self.warmup)

    @property
    def _duration(self) -> float:
        return float(self.duration)

    def schedule(self) -> ArrivalSchedule:
        """Every request of the run, warm-up included, ns since the epoch; one second for some ten million."""
        return self.arrivals.schedule(self._warmup + self._duration, self.seed, lead=self._warmup)

    def prompt_source(self, run: str = "") -> PromptSource:
        """The prompts by index; `run` is the run's id, which keeps two runs' unique prompts apart."""
        return self.prompts.source(self.seed, run)

    def phases(self) -> list[Phase]:
        """The warm-up, then the named phases of the arrivals; together they cover the schedule."""
        start, end = self.window_ns
        found = [Phase("warm-up", 0, start)] if start else []
        for name, low, high in self.arrivals.spans(self._duration):
            found.append(Phase(name, start + round(low * 1e9), min(start + round(high * 1e9), end)))
        return found

    def shortened(self, load_seconds: float) -> Scenario:
        """The same rates in `load_seconds` of measured window: every time of the shape and the warm-up shrink
        alike.

        A scenario that is already as short stays as it is.
        """
        wanted = check.seconds("load_seconds", load_seconds)
        if wanted >= self._duration:
            return self
        factor = wanted / self._duration
        return replace(
            self, arrivals=self.arrivals.scaled(factor), duration=wanted, warmup=self._warmup * factor
        )

    def to_dict(self) -> dict[str, Any]:
        """What the json module can write; `from_dict` gives back an equal scenario."""
        plain = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("arrivals", "prompts", "timeouts", "adapters"):
            plain[name] = tagged.to_json(plain[name])
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Scenario:
        plain = dict(data)
        for name in ("arrivals", "prompts", "timeouts", "adapters"):
            plain[name] = tagged.from_json(plain[name], _KINDS)
        return cls(**plain)


_KINDS = {**arrivals_module.KINDS, **prompts_module.KINDS, Timeouts.kind: Timeouts, Adapters.kind: Adapters}
_ARRIVALS: tuple[type, ...] = (arrivals_module.OpenLoop,)
_PROMPTS: tuple[type, ...] = (prompts_module.Synthetic,)


def _set(instance: object, name: str, value: object) -> None:
    """Frozen dataclasses store what they parsed under the name it was given by."""
    object.__setattr__(instance, name, value)
