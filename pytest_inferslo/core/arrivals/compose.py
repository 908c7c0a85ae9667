"""Arrivals made of others: named phases one after another, streams side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core import fields, seeds
from pytest_inferslo.core.adapters import Adapters, endpoint_weights
from pytest_inferslo.core.arrivals.closed_loop import ClosedLoop
from pytest_inferslo.core.arrivals.open_loop import OpenLoop
from pytest_inferslo.core.arrivals.schedule import Arrivals, ArrivalSchedule, Span, Tokens, of_times
from pytest_inferslo.core.arrivals.trace import Trace
from pytest_inferslo.core.fields import Seconds
from pytest_inferslo.core.prompts import Prompts
from pytest_inferslo.core.samples import ABSENT


@dataclass(frozen=True)
class Part:
    """One phase: its name in policies, its arrivals, its length in seconds (0: what is left)."""

    kind: ClassVar[str] = "phase"
    name: str
    arrivals: Arrivals
    seconds: float = 0.0


@dataclass(frozen=True)
class Phases:
    """Parts one after another; each starts its own shape at zero. The warm-up has the first one's load."""

    kind: ClassVar[str] = "phases"
    parts: tuple[Part, ...]

    @property
    def open_loop(self) -> bool:
        return True

    @property
    def length(self) -> float | None:
        return sum(part.seconds for part in self.parts) if self.parts[-1].seconds else None

    def _lengths(self, seconds: float) -> list[float]:
        known = [part.seconds for part in self.parts]
        return known if known[-1] else [*known[:-1], seconds - sum(known)]

    def schedule(self, seconds: float, seed: int, lead: float = 0.0) -> ArrivalSchedule:
        found: list[ArrivalSchedule] = []
        offset = 0.0
        for i, (part, length) in enumerate(zip(self.parts, self._lengths(seconds - lead), strict=True)):
            before = lead if i == 0 else 0.0
            piece = part.arrivals.schedule(before + length, seeds.key(seed, f"phase {i}"), before)
            found.append(_shifted(piece, offset))
            offset += before + length
        return _joined(found, round(seconds * 1e9))

    def spans(self, seconds: float) -> list[Span]:
        found, at = [], 0.0
        for part, length in zip(self.parts, self._lengths(seconds), strict=True):
            found.append(Span(part.name, at, at + length))
            at += length
        return found

    def check(self, seconds: float, lead: float) -> None:
        total = sum(part.seconds for part in self.parts)
        if self.parts[-1].seconds and not np.isclose(total, seconds, rtol=1e-9):
            raise fields.refuse(
                "duration", seconds, f"the phases last {total:g} s; accepted: that, or no duration"
            )
        if total >= seconds and not self.parts[-1].seconds:
            raise fields.refuse("duration", seconds, f"the phases before the last one fill it: {total:g} s")
        for i, (part, length) in enumerate(zip(self.parts, self._lengths(seconds), strict=True)):
            part.arrivals.check(length, lead if i == 0 else 0.0)

    def scaled(self, factor: float) -> Phases:
        parts = (
            replace(part, arrivals=part.arrivals.scaled(factor), seconds=part.seconds * factor)
            for part in self.parts
        )
        return Phases(tuple(parts))


def phase(name: str, arrivals: Arrivals, duration: Seconds | None = None) -> Part:
    """A named phase for `phases`; without `duration` (the last one alone) it lasts until the window ends."""
    fields.names("name", [name])
    _check_part(f"phase {name!r}", arrivals, OpenLoop, Trace)
    return Part(name, arrivals, 0.0 if duration is None else fields.seconds("duration", duration))


def phases(*parts: Part) -> Phases:
    """One after another: `phases(phase("calm", constant(20), "30s"), phase("storm", poisson(200)))`."""
    if not parts:
        raise fields.refuse("phases", parts, "accepted: one or more phase(name, arrivals, duration)")
    for part in parts:
        fields.instance("phases", part, Part, "phase(name, arrivals, duration)")
    for part in parts[:-1]:
        if not part.seconds:
            raise fields.refuse(
                "duration", None, f"phase {part.name!r} is not the last one and must say how long"
            )
    return Phases(parts)


@dataclass(frozen=True)
class Stream:
    """One kind of traffic among others; what is None is the scenario's own."""

    kind: ClassVar[str] = "stream"
    name: str
    arrivals: Arrivals
    prompts: Prompts | None = None
    adapters: Adapters | None = None
    endpoints: Mapping[str, float] | None = None
    api: str | None = None
    streaming: bool | None = None


@dataclass(frozen=True)
class SideBySide:
    """Streams at the same time: arrivals merged by time, each stream with a seed of its own."""

    kind: ClassVar[str] = "streams"
    streams: tuple[Stream, ...]

    @property
    def open_loop(self) -> bool:
        return True

    @property
    def length(self) -> float | None:
        return None

    def schedule(self, seconds: float, seed: int, lead: float = 0.0) -> ArrivalSchedule:
        found = []
        for i, stream in enumerate(self.streams):
            piece = stream.arrivals.schedule(seconds, seeds.key(seed, f"stream {i}"), lead)
            found.append(replace(piece, stream=np.full(len(piece), i, np.int8)))
        joined = _joined(found, round(seconds * 1e9))
        order = np.argsort(joined.intended, kind="stable")
        return replace(joined.rows(order), index=joined.index)

    def spans(self, seconds: float) -> list[Span]:
        """Those of the one stream that has some; of several, each with its stream's name before it."""
        shaped = [(stream.name, stream.arrivals.spans(seconds)) for stream in self.streams]
        shaped = [(name, spans) for name, spans in shaped if len(spans) > 1]
        if not shaped:
            return [Span("measured", 0.0, seconds)]
        if len(shaped) == 1:
            return shaped[0][1]
        return [Span(f"{name}/{span.name}", span.start, span.end) for name, spans in shaped for span in spans]

    def check(self, seconds: float, lead: float) -> None:
        for stream in self.streams:
            stream.arrivals.check(seconds, lead)

    def scaled(self, factor: float) -> SideBySide:
        return SideBySide(
            tuple(replace(stream, arrivals=stream.arrivals.scaled(factor)) for stream in self.streams)
        )


def stream(
    name: str,
    arrivals: Arrivals,
    *,
    prompts: Prompts | None = None,
    adapters: Adapters | None = None,
    endpoints: Mapping[str, float] | None = None,
    api: str | None = None,
    streaming: bool | None = None,
) -> Stream:
    """A named stream for `streams`; what it does not say is the scenario's own."""
    fields.names("name", [name])
    _check_part(f"stream {name!r}", arrivals, OpenLoop, Trace, Phases)
    weights = endpoint_weights(endpoints, f"stream {name!r}: endpoints")
    return Stream(name, arrivals, prompts, adapters, weights, api, streaming)


def streams(*parts: Stream) -> SideBySide:
    """Side by side: `streams(stream("chat", poisson("20/s")), stream("search", constant("100/s"), ...))`."""
    for part in parts:
        fields.instance("streams", part, Stream, "stream(name, arrivals, ...)")
    fields.names("streams", [part.name for part in parts])
    fields.whole("streams", len(parts), most=127)
    return SideBySide(parts)


def _check_part(where: str, arrivals: Arrivals, *kinds: type) -> None:
    if isinstance(arrivals, ClosedLoop):
        raise fields.refuse(where, arrivals, "concurrency() stands alone; accepted: open-loop arrivals")
    fields.instance(where, arrivals, kinds, "constant(), poisson(), bursts(), trace(), ...")


def _shifted(schedule: ArrivalSchedule, seconds: float) -> ArrivalSchedule:
    shift = round(seconds * 1e9)
    return replace(schedule, intended=schedule.intended + shift, end=schedule.end + shift)


def _joined(parts: list[ArrivalSchedule], end: int) -> ArrivalSchedule:
    """One schedule of all rows, in the order of `parts`, with new indices."""
    intended = np.minimum(np.concatenate([part.intended for part in parts]), end - 1)
    joined = of_times(
        intended,
        end,
        input_tokens=_tokens(parts, [part.input_tokens for part in parts]),
        output_tokens=_tokens(parts, [part.output_tokens for part in parts]),
    )
    return replace(joined, stream=np.concatenate([part.stream for part in parts]))


def _tokens(parts: list[ArrivalSchedule], columns: list[Tokens | None]) -> Tokens | None:
    """The columns one after another, ABSENT where a part has none."""
    if all(column is None for column in columns):
        return None
    filled: list[npt.NDArray[np.int32]] = [
        np.full(len(part), ABSENT, np.int32) if column is None else column
        for part, column in zip(parts, columns, strict=True)
    ]
    return np.concatenate(filled)
