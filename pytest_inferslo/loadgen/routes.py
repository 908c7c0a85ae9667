"""Which endpoint and which adapter a request goes to, and how it names its adapter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pytest_inferslo.core.adapters import choose_endpoint
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.samples import ABSENT
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.errors import LoadError

#: `place` computes so many requests' routes at once, and keeps so many blocks of them.
_BLOCK = 4096
_MOST_BLOCKS = 64

Places = npt.NDArray[np.int16]


class Routes:
    """`adapters` are the run's adapter names: what samples' `adapter` counts."""

    def __init__(self, scenario: Scenario, endpoints: Sequence[Endpoint], adapters: Sequence[str]) -> None:
        self._seed = scenario.seed
        self._adapters = list(adapters)
        self._streams = scenario.streams
        self._blocks: dict[int, list[tuple[int, int, int]]] = {}
        lone = len(endpoints) == 1 and self._streams[0].adapters is None
        #: where there is one endpoint and no adapter
        self.only = (0, 0, ABSENT) if lone else None
        self._weights = [_weights(stream.endpoints, endpoints) for stream in self._streams]

    def choose(self, index: npt.NDArray[np.int64], stream: npt.NDArray[np.int8]) -> tuple[Places, Places]:
        """Endpoint and adapter of each request, by its global index."""
        endpoint = np.zeros(len(index), np.int16)
        adapter = np.full(len(index), ABSENT, np.int16)
        for number, declared in enumerate(self._streams):
            rows = np.flatnonzero(stream == number) if len(self._streams) > 1 else np.arange(len(index))
            endpoint[rows] = choose_endpoint(self._weights[number], self._seed, index[rows])
            if declared.adapters is not None:
                places = np.array([*map(self._place, declared.adapters.names), ABSENT], np.int16)
                # ABSENT (-1), the base model, finds the last entry
                adapter[rows] = places[declared.adapters.choose(self._seed, index[rows])]
        return endpoint, adapter

    def place(self, index: int) -> tuple[int, int, int]:
        """Stream (0), endpoint and adapter of request `index` of the first stream."""
        block, number = divmod(index, _BLOCK)
        if block not in self._blocks:
            if len(self._blocks) > _MOST_BLOCKS:
                self._blocks.clear()
            indices = np.arange(block * _BLOCK, (block + 1) * _BLOCK)
            endpoint, adapter = self.choose(indices, np.zeros(_BLOCK, np.int8))
            self._blocks[block] = [
                (0, *route) for route in zip(endpoint.tolist(), adapter.tolist(), strict=True)
            ]
        return self._blocks[block][number]

    def name(self, stream: int, adapter: int, base_model: str) -> tuple[str, dict[str, str]]:
        """The body's `model` and the headers with which a request of `stream` reaches `adapter`."""
        adapters = self._streams[stream].adapters
        if adapter == ABSENT or adapters is None:
            return base_model, {}
        if adapters.route == "header":
            return base_model, {adapters.header: self._adapters[adapter]}
        return self._adapters[adapter], {}

    def _place(self, name: str) -> int:
        if name not in self._adapters:
            raise LoadError(f"adapter {name!r} is not among the run's: {', '.join(self._adapters) or 'none'}")
        return self._adapters.index(name)


def _weights(wanted: object, endpoints: Sequence[Endpoint]) -> list[float]:
    if not isinstance(wanted, dict):
        return [endpoint.weight for endpoint in endpoints]
    known = [endpoint.name for endpoint in endpoints]
    for name in wanted:
        if name not in known:
            raise LoadError(f"the scenario sends to endpoint {name!r}; the backend has {', '.join(known)}")
    return [float(wanted.get(name, 0.0)) for name in known]
