"""What a run cost, and a million tokens of it.

Two ways to price: by the hour of an instance (a server that is rented), or by tokens (a service). With an
hourly price a million tokens cost price x instances / tokens per hour x 10^6; with token prices the three
kinds are priced apart and the total is divided by all tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

MILLION = 1_000_000


class TokenCounts(Protocol):
    """Server-counted tokens; `cached` is part of `prompt`, `reasoning` part of `output`."""

    @property
    def prompt(self) -> int: ...
    @property
    def cached(self) -> int: ...
    @property
    def output(self) -> int: ...


@dataclass(frozen=True)
class Prices:
    """`hour` is the price of one instance for an hour; the three token prices are per million tokens.

    `cached_input` None means that cached tokens cost as much as others. `count` says which tokens an hourly
    price is spread over: `output` (the default, and the dearer figure) or `all`.
    """

    hour: float | None = None
    instances: int = 1
    input: float | None = None
    cached_input: float | None = None
    output: float | None = None
    count: str = "output"
    currency: str = "$"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Prices:
        return cls(**{name: value for name, value in data.items() if name in cls.__dataclass_fields__})


def cost_of_tokens(tokens: TokenCounts, prices: Prices) -> float:
    """The price of these tokens; raises ValueError where `input` or `output` has no price."""
    if prices.input is None or prices.output is None:
        raise ValueError("a price for input and for output tokens is needed")
    cached = prices.input if prices.cached_input is None else prices.cached_input
    fresh = tokens.prompt - tokens.cached
    return (fresh * prices.input + tokens.cached * cached + tokens.output * prices.output) / MILLION


def cost_per_million_tokens(tokens: TokenCounts, seconds: float, prices: Prices) -> float | None:
    """Of a run that took `seconds`; None when there were no tokens to spread the cost over."""
    everything = tokens.prompt + tokens.output
    if prices.hour is None:
        return cost_of_tokens(tokens, prices) / everything * MILLION if everything else None
    spread = everything if prices.count == "all" else tokens.output
    return run_cost(seconds / 3600, prices.instances, prices.hour) / spread * MILLION if spread else None


def run_cost(hours: float, instances: float, price_per_hour: float) -> float:
    """Hours x instances x price; `instances` may be a mean over an autoscaled run."""
    return hours * instances * price_per_hour


def instances_needed(offered_rate: float, capacity: float) -> int:
    """How many instances a rate needs when each holds the SLO up to `capacity` (both per second)."""
    if capacity <= 0:
        raise ValueError(f"a capacity of {capacity!r} requests/s serves nothing")
    return max(1, math.ceil(offered_rate / capacity))
