"""Which adapter (or endpoint) a request goes to: a weighted choice, a pure function of (seed, index)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core import fields, seeds
from pytest_inferslo.core.samples import ABSENT

ROUTES = ("model", "header")


@dataclass(frozen=True)
class Adapters:
    """LoRA adapters of one base model, and the share of requests that each gets.

    `route` says how a request names its adapter: `model` puts the name into the body's `model`, `header` into
    the header `header` (the body then keeps the base model's name). `base` is the share that goes to the base
    model.
    """

    kind: ClassVar[str] = "adapters"
    names: tuple[str, ...]
    weights: tuple[float, ...]
    route: str = "model"
    header: str = ""
    base: float = 0.0

    def __post_init__(self) -> None:
        fields.names("names", self.names)
        check_weights("weights", self.weights, len(self.names))
        fields.one_of("route", self.route, ROUTES)
        fields.number("base", self.base, most=1.0)
        if (self.route == "header") != bool(self.header):
            raise fields.refuse("header", self.header, "accepted: a header's name, with route='header' alone")

    def choose(self, seed: int, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int16]:
        """For each request its adapter's place in `names`; ABSENT for the base model."""
        total = sum(self.weights)
        shares = [self.base, *(weight / total * (1 - self.base) for weight in self.weights)]
        # the base model stands first, at place 0, which is ABSENT (-1) among the names
        return weighted_choice(shares, seeds.key(seed, "adapter"), indices) + np.int16(ABSENT)


def adapters(
    names: Iterable[str],
    weights: str | Sequence[float] | Mapping[str, float] = "uniform",
    *,
    exponent: float | None = None,
    header: str | None = None,
    base: float = 0.0,
) -> Adapters:
    """Requests spread over adapters.

    `weights`: `"uniform"`, `"zipf"` (the k-th name gets 1 / k^exponent, 1 / k without one), or weights by position or
    name.
    `header`: the header that names the adapter, for gateways; without it the body's `model` does. `base`: the
    share, 0 to 1, of requests to the base model. Raises ScenarioError.
    """
    listed = fields.names("names", names)
    if exponent is not None and weights != "zipf":
        raise fields.refuse("exponent", exponent, "accepted with weights='zipf' alone")
    if isinstance(weights, str):
        fields.one_of("weights", weights, ("uniform", "zipf"))
        power = (1.0 if exponent is None else exponent) if weights == "zipf" else 0.0
        shares: tuple[float, ...] = tuple((rank + 1) ** -power for rank in range(len(listed)))
    elif isinstance(weights, Mapping):
        if set(weights) != set(listed):
            raise fields.refuse(
                "weights", dict(weights), f"accepted: one weight for each of {', '.join(listed)}"
            )
        shares = tuple(weights[name] for name in listed)
    else:
        shares = tuple(weights)
    return Adapters(listed, shares, "header" if header else "model", header or "", base)


def choose_endpoint(
    weights: Sequence[float], seed: int, indices: npt.NDArray[np.int64]
) -> npt.NDArray[np.int16]:
    """For each request the position of its endpoint, by `weights`."""
    return weighted_choice(weights, seeds.key(seed, "endpoint"), indices)


def endpoint_weights(
    weights: Mapping[str, float] | None, field: str = "endpoints"
) -> dict[str, float] | None:
    """`weights` by endpoint's name, checked; None stays None. Raises ScenarioError."""
    if weights is None:
        return None
    named = fields.names(field, fields.instance(field, weights, Mapping, "weights by endpoint's name"))
    check_weights(field, tuple(weights.values()), len(named))
    return dict(weights)


def weighted_choice(
    weights: Sequence[float], key: int, indices: npt.NDArray[np.int64]
) -> npt.NDArray[np.int16]:
    """Positions in `weights`, each with its share; a weight of zero is never chosen."""
    edges = np.cumsum(np.asarray(weights, np.float64))
    drawn = seeds.uniform_array(key, indices) * edges[-1]
    return np.searchsorted(edges, drawn, side="right").astype(np.int16)


def check_weights(field: str, weights: Sequence[float], count: int) -> None:
    if len(weights) != count:
        raise fields.refuse(field, tuple(weights), f"accepted: {count} weights, one for each name")
    for i, weight in enumerate(weights):
        fields.number(f"{field}[{i}]", weight)
    if sum(weights) <= 0:
        raise fields.refuse(field, tuple(weights), "one weight at least must be above zero")
