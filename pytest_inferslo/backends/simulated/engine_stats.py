"""Counters and histograms that the simulated engine keeps, with the buckets of vLLM's metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_inferslo.backends.simulated.sequences import Request

_TTFT = (
    .001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
_GAP = (
    .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_PHASE = (
    .3, .5, .8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
_ITERATION = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)


class Histogram:
    """A Prometheus histogram: counts per upper bound (inclusive), sum and count."""

    __slots__ = ("bounds", "buckets", "count", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.buckets = [0] * (len(self.bounds) + 1)
        self.count = 0
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.buckets[bisect_left(self.bounds, value)] += times
        self.count += times
        self.total += value * times


def token_bounds(largest: int) -> tuple[float, ...]:
    """vLLM's bounds for token counts: 1, 2, 5 times powers of ten up to `largest`."""
    bounds: list[float] = []
    scale = 1
    while True:
        for mantissa in (1, 2, 5):
            if mantissa * scale > largest:
                return tuple(bounds)
            bounds.append(float(mantissa * scale))
        scale *= 10


class EngineStats:
    """What the engine counted since it started; all times are simulated seconds."""

    def __init__(self, max_model_len: int) -> None:
        counts = token_bounds(max_model_len)
        self.prompt_tokens = self.cached_tokens = self.generation_tokens = 0
        self.prefix_queries = self.prefix_hits = self.preemptions = 0
        self.success = dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
        self.ttft = Histogram(_TTFT)
        self.gap = Histogram(_GAP)
        self.tpot = Histogram(_GAP)
        self.e2e = Histogram(_PHASE)
        self.queue = Histogram(_PHASE)
        self.inference = Histogram(_PHASE)
        self.prefill = Histogram(_PHASE)
        self.decode = Histogram(_PHASE)
        self.iteration = Histogram(_ITERATION)
        self.request_prompt = Histogram(counts)
        self.request_generation = Histogram(counts)
        self.limit = Histogram(counts)
        self.request_computed = Histogram(counts)

    def step(self, tokens: int) -> None:
        self.iteration.observe(tokens)

    def prefix(self, queried: int, hit: int) -> None:
        self.prefix_queries += queried
        self.prefix_hits += hit

    def first_token(self, request: Request, now: float) -> None:
        self.prompt_tokens += len(request.prompt)
        self.cached_tokens += max(0, request.cached_tokens)
        self.ttft.observe(now - request.arrived)

    def tokens(self, count: int, end: float, gaps: Mapping[float, int]) -> None:
        self.generation_tokens += count
        for last, times in gaps.items():
            self.gap.observe(end - last, times)

    def finished(self, request: Request, now: float) -> None:
        self.success[request.finish_reason] += 1
        self.e2e.observe(now - request.arrived)
        self.request_prompt.observe(len(request.prompt))
        self.request_generation.observe(request.generated)
        self.limit.observe(request.output_tokens)
        if request.scheduled < 0:
            return
        self.queue.observe(request.scheduled - request.arrived)
        self.inference.observe(now - request.scheduled)
        if request.generated:
            self.prefill.observe(request.first_token - request.scheduled)
            self.decode.observe(request.last_token - request.first_token)
            self.request_computed.observe(len(request.prompt) - max(0, request.cached_tokens))
        if request.generated > 1:
            self.tpot.observe((request.last_token - request.first_token) / (request.generated - 1))
