"""A scenario: which load to offer, to be written by people, sent to workers as JSON, and recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple

from pytest_inferslo.core import adapters as adapters_module
from pytest_inferslo.core import arrivals as arrivals_module
from pytest_inferslo.core import fields as check
from pytest_inferslo.core import prompts as prompts_module
from pytest_inferslo.core import tagged
from pytest_inferslo.core.adapters import Adapters
from pytest_inferslo.core.apis import APIS, json_fields, refuse_own_fields
from pytest_inferslo.core.arrivals import (
    ARRIVALS,
    Arrivals,
    ArrivalSchedule,
    SideBySide,
    Span,
    Stream,
    Trace,
    streams,
)
from pytest_inferslo.core.fields import Seconds
from pytest_inferslo.core.prompts import PROMPTS, BlockPrompts, Prompts, PromptSource
from pytest_inferslo.core.timeouts import Timeouts

__all__ = ["APIS", "CACHES", "Phase", "Scenario", "Timeouts"]

CACHES = ("unique", "shared")


class Phase(NamedTuple):
    """A named stretch of a run, ns since its epoch. Names may repeat: `burst` is all bursts together."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Scenario:
    """The load of one measured run, and how it is asked.

    arrivals: when requests come (`constant`, `poisson`, ..., `concurrency`), or a list of streams
    prompts: what they ask (`synthetic`, `dataset`)
    duration: the measured window; None where the arrivals know it themselves (phases, a trace)
    warmup: load of the same kind before the window, which no metric sees
    drain: how long answers may take after the last arrival; what is open then has failed (`unfinished`)
    api: `chat`, `completions`, `embeddings`, `responses`; on Triton `generate`, `generate_stream`, `infer`
    streaming: whether answers are streamed; None: where the API can
    timeouts: see `Timeouts`
    max_in_flight, max_connections: over all workers; a request beyond them has failed (`never sent`)
    adapters: LoRA adapters and their shares
    endpoints: weights by endpoint's name, in place of the backend's own
    cache: `unique` declares prompts that nobody has seen, `shared` that prompts or their beginnings
        repeat; None takes what the prompts declare
    extra_body: fields added to every request's body
    seed: of arrivals, prompts, adapters and endpoints; the same seed is the same load
    repeats: runs that are judged together, with seed, seed + 1, ...
    stop_when_certain: end the run once every objective is decided at the policy's confidence

    Times are stored as seconds. Raises ScenarioError, naming the field.
    """

    kind: ClassVar[str] = "scenario"
    arrivals: Arrivals | Sequence[Stream]
    prompts: Prompts
    duration: Seconds | None = None
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
        if isinstance(self.arrivals, (list, tuple)):
            _set(self, "arrivals", streams(*self.arrivals))
        check.instance("arrivals", self.arrivals, ARRIVALS, "constant(), poisson(), bursts(), trace(), ...")
        check.instance("prompts", self.prompts, PROMPTS, "synthetic() or dataset()")
        check.instance("timeouts", self.timeouts, Timeouts, "Timeouts(connect='5s', total='300s')")
        check.instance("adapters", self.adapters, (Adapters, type(None)), "adapters(['a', 'b'])")
        for name in ("max_in_flight", "max_connections", "repeats"):
            check.whole(name, getattr(self, name))
        check.whole("seed", self.seed, least=0, most=2**63 - 1)
        check.flag("stop_when_certain", self.stop_when_certain)
        _set(self, "endpoints", adapters_module.endpoint_weights(self.endpoints))
        _set(self, "extra_body", json_fields(self.extra_body))
        self._settle_times()
        self._settle_streams()
        self._settle_cache()
        self._refuse_contradictions()

    def _settle_times(self) -> None:
        _set(self, "warmup", check.seconds("warmup", self.warmup, zero=True))
        _set(self, "drain", check.seconds("drain", self.drain, zero=True))
        duration, length = self.duration, self.shape.length
        if duration is None:
            if length is None:
                raise check.refuse("duration", None, "these arrivals do not end; accepted: '60s', '5m'")
            duration = length - self.warmup_seconds if isinstance(self.shape, Trace) else length
        _set(self, "duration", check.seconds("duration", duration))
        self.shape.check(self.window_seconds, self.warmup_seconds)

    def _settle_streams(self) -> None:
        check.one_of("api", self.api, tuple(APIS))
        if self.streaming is None:
            _set(self, "streaming", APIS[self.api])
        check.instance("streaming", self.streaming, bool, "True or False")
        for stream in self.streams:
            where = "" if len(self.streams) == 1 else f"stream {stream.name!r}: "
            api = check.one_of(f"{where}api", stream.api or "", tuple(APIS))
            streaming = check.flag(f"{where}streaming", bool(stream.streaming))
            check.instance(f"{where}prompts", stream.prompts, PROMPTS, "synthetic() or dataset()")
            if isinstance(stream.prompts, BlockPrompts) and not self._replays(stream.prompts):
                raise check.refuse(
                    f"{where}prompts", "blocks of a trace", "accepted with that trace's arrivals"
                )
            if getattr(stream.prompts, "batch", 1) > 1 and api != "embeddings":
                raise check.refuse(f"{where}prompts", "batch over 1", "accepted with api='embeddings' alone")
            if streaming and not APIS[api]:
                raise check.refuse(f"{where}streaming", True, f"api={api!r} does not stream; accepted: False")

    def _refuse_contradictions(self) -> None:
        if self.stop_when_certain and not self.open_loop:
            raise check.refuse(
                "stop_when_certain",
                True,
                "a closed loop does not know what is still to come; accepted: False",
            )
        users = getattr(self.shape, "users", 0)
        for name in ("max_in_flight", "max_connections"):
            if users > getattr(self, name):
                raise check.refuse(
                    name,
                    getattr(self, name),
                    f"a closed loop of {users} users has as many requests in flight; accepted: {users} or more",
                )
        routed = any(
            stream.adapters is not None and stream.adapters.route == "model" for stream in self.streams
        )
        refuse_own_fields(self.extra_body, routed)

    def _settle_cache(self) -> None:
        reuse = any(stream.prompts is not None and stream.prompts.reuse for stream in self.streams)
        if self.cache is None:
            _set(self, "cache", "shared" if reuse else "unique")
        check.one_of("cache", str(self.cache), CACHES)
        if self.cache == "unique" and reuse:
            raise check.refuse(
                "cache", self.cache, "these prompts repeat on purpose; accepted: 'shared', or none"
            )

    def _replays(self, prompts: BlockPrompts) -> bool:
        """Whether request k of the schedule is row k of the trace that the prompts are from."""
        shape = self.shape
        if not isinstance(shape, Trace) or shape.rate_scale != 1:
            return False
        return (shape.block_ids, shape.block_counts) == (prompts.block_ids, prompts.block_counts)

    @property
    def shape(self) -> Arrivals:
        """The arrivals, streams merged."""
        assert not isinstance(self.arrivals, Sequence)
        return self.arrivals

    @property
    def open_loop(self) -> bool:
        return self.shape.open_loop

    @property
    def window_seconds(self) -> float:
        return float(self.duration or 0.0)

    @property
    def warmup_seconds(self) -> float:
        return float(self.warmup)

    @property
    def drain_seconds(self) -> float:
        return float(self.drain)

    @property
    def window_ns(self) -> tuple[int, int]:
        """Start and end of the measured window, ns since the run's epoch."""
        return round(self.warmup_seconds * 1e9), round((self.warmup_seconds + self.window_seconds) * 1e9)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """One for each `stream` number of the schedule, completed by what the scenario says."""
        listed = (
            self.arrivals.streams if isinstance(self.arrivals, SideBySide) else (Stream("all", self.shape),)
        )
        return tuple(self._complete(stream) for stream in listed)

    def _complete(self, stream: Stream) -> Stream:
        api = stream.api or self.api
        inherited = self.streaming if api == self.api else APIS.get(api)
        return replace(
            stream,
            prompts=stream.prompts or self.prompts,
            adapters=stream.adapters or self.adapters,
            endpoints=stream.endpoints or self.endpoints,
            api=api,
            streaming=inherited if stream.streaming is None else stream.streaming,
        )

    def schedule(self) -> ArrivalSchedule:
        """Every request of the run, warm-up included, ns since the epoch; ten million take about a second."""
        total = self.warmup_seconds + self.window_seconds
        return self.shape.schedule(total, self.seed, lead=self.warmup_seconds)

    def prompt_source(self, run: str = "", stream: int = 0) -> PromptSource:
        """The prompts of stream number `stream`, by the request's index in the whole schedule.

        `run` is the run's id. It keeps the unique prompts of two runs apart, so that a server that stays up
        has not seen the second's.
        """
        prompts = self.streams[stream].prompts
        assert prompts is not None
        return prompts.source(self.seed, run)

    def phases(self) -> list[Phase]:
        """The warm-up, then the named phases of the arrivals."""
        lead = self.warmup_seconds
        spans = [Span("warm-up", -lead, 0.0)] if lead else []
        return [
            Phase(name, round((lead + low) * 1e9), round((lead + high) * 1e9))
            for name, low, high in [*spans, *self.shape.spans(self.window_seconds)]
        ]

    def shortened(self, load_seconds: float) -> Scenario:
        """The same rates in `load_seconds` of measured window: the shape's times and the warm-up shrink.

        A scenario that is already as short stays as it is, and of a trace the beginning is replayed.
        """
        wanted = check.seconds("load_seconds", load_seconds)
        if wanted >= self.window_seconds:
            return self
        factor = wanted / self.window_seconds
        warmup = self.warmup_seconds * factor
        return replace(self, arrivals=self.shape.scaled(factor), duration=wanted, warmup=warmup)

    def to_dict(self) -> dict[str, Any]:
        """What the json module can write; `from_dict` gives back an equal scenario."""
        return {
            item.name: tagged.to_json(getattr(self, item.name))
            if item.name in _TAGGED
            else getattr(self, item.name)
            for item in fields(self)
        }

    def describe(self) -> dict[str, Any]:
        """`to_dict` for a record: the contents of trace and dataset files shrink to their hashes."""
        return {
            name: tagged.without_contents(value) if name in _TAGGED else value
            for name, value in self.to_dict().items()
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Scenario:
        """Raises ScenarioError for a scenario of another version."""
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise check.refuse("scenario", unknown, f"unknown fields; accepted: {', '.join(sorted(known))}")
        return cls(
            **{name: tagged.from_json(v, _KINDS) if name in _TAGGED else v for name, v in data.items()}
        )


_TAGGED = ("arrivals", "prompts", "timeouts", "adapters")
_KINDS = {**arrivals_module.KINDS, **prompts_module.KINDS, Timeouts.kind: Timeouts, Adapters.kind: Adapters}


def _set(instance: object, name: str, value: object) -> None:
    """A frozen dataclass stores what it parsed under the name of what it was given."""
    object.__setattr__(instance, name, value)
