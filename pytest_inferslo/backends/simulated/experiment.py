"""Experiments in virtual time: what a profile does under a load, without a server and without waiting."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from pytest_inferslo.backends.simulated.engine import Engine
from pytest_inferslo.backends.simulated.sequences import Request


@dataclass(frozen=True)
class Outcome:
    """The requests of one experiment, in the order of their ends, and the simulated time that it took."""

    finished: list[Request]
    seconds: float

    def output_tokens_per_second(self) -> float:
        return sum(request.generated for request in self.finished) / self.seconds

    def requests_per_second(self) -> float:
        return len(self.finished) / self.seconds

    def ttft(self) -> list[float]:
        """Seconds from arrival to the first token, sorted."""
        return sorted(request.first_token - request.arrived for request in self.finished)

    def tpot(self) -> list[float]:
        """Seconds per output token after the first, sorted; only of answers with two or more."""
        return sorted(
            (request.last_token - request.first_token) / (request.generated - 1)
            for request in self.finished
            if request.generated > 1
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value at the ceiling rank of a sorted sequence; `share` in (0, 1]."""
    return ordered[max(1, ceil(share * len(ordered))) - 1]


def unique_prompt(number: int, tokens: int) -> list[object]:
    """A prompt that shares no block with another number's."""
    return [number, *range(tokens - 1)]


def closed_loop(
    engine: Engine, concurrency: int, requests: int, input_tokens: int, output_tokens: int
) -> Outcome:
    """`concurrency` clients that each send their next request when the answer to the last is complete."""
    numbers = itertools.count()
    sent = 0
    finished: list[Request] = []
    now = 0.0

    def send(at: float) -> None:
        nonlocal sent
        if sent < requests:
            sent += 1
            engine.submit(Request(unique_prompt(next(numbers), input_tokens), output_tokens), at)

    for _ in range(concurrency):
        send(0.0)
    while len(finished) < requests:
        step = engine.begin_step(now)
        if step is None:
            now = max(now, engine.next_ready() or now)
            continue
        now = step.end
        for request in engine.finish_step(step):
            if request.finished:
                finished.append(request)
                send(now)
    return Outcome(finished, now)


def open_loop(engine: Engine, arrivals: Iterable[tuple[float, Request]]) -> Outcome:
    """Requests that arrive at given times (seconds), whatever the engine does; runs until all are done."""
    pending = [(at, index, request) for index, (at, request) in enumerate(arrivals)]
    heapq.heapify(pending)
    finished: list[Request] = []
    now = 0.0
    while True:
        step = engine.begin_step(now)
        horizon = step.end if step is not None else engine.next_ready()
        if horizon is None and not pending:
            return Outcome(finished, now)
        if horizon is None or (pending and pending[0][0] < horizon and step is None):
            horizon = pending[0][0]
        while pending and pending[0][0] <= horizon:
            at, _index, request = heapq.heappop(pending)
            engine.submit(request, at)
        now = max(now, horizon)
        if step is not None:
            finished += [request for request in engine.finish_step(step) if request.finished]
