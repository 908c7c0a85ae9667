"""One worker's share of a load: which requests are due when, and their bytes, prepared ahead."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from pytest_inferslo.core.adapters import choose_endpoint
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.samples import ABSENT
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.errors import LoadError
from pytest_inferslo.loadgen.dialects import DIALECTS
from pytest_inferslo.loadgen.order import LoadOrder
from pytest_inferslo.loadgen.target import Target

#: Requests are prepared before the load up to so many bytes; later ones when the loop has nothing due.
_AHEAD_BYTES = 64 * 1024 * 1024

Request = tuple[bytes, int]  # the bytes to send, the prompt's hash


class Workload:
    """Columns of this worker's rows, in order of intended start: `index`, `intended` (ns since the epoch),

    `stream`, `endpoint`, `adapter`. Every intended start is known before the load (open loop).
    """

    def __init__(self, order: LoadOrder, worker: int, workers: int) -> None:
        scenario = replace(Scenario.from_dict(order.scenario), seed=order.seed)
        endpoints = [Endpoint.from_dict(data) for data in order.endpoints]
        if not endpoints:
            raise LoadError("no endpoint to send requests to")
        self.scenario = scenario
        self.streaming = bool(scenario.streaming)
        self.dialect = DIALECTS[scenario.api]
        self.schedule = schedule = scenario.schedule().stripe(worker, workers)
        self.index = _column(schedule.index)
        self.intended = _column(schedule.intended)
        self.stream = _column(schedule.stream)
        self.endpoint = _column(_chosen_endpoints(scenario, endpoints, order.seed, schedule.index))
        self.adapter = _column(_chosen_adapters(scenario, order, schedule.index))
        self.targets = [Target(i, endpoint) for i, endpoint in enumerate(endpoints)]
        self.tokens = (schedule.input_tokens, schedule.output_tokens)
        self._warm_until = scenario.window_ns[0]
        self._source = scenario.prompt_source(Path(order.run_directory).name)
        self._names = order.adapters
        self._heads: dict[tuple[int, int], tuple[bytes, str]] = {}
        self._prepared: deque[Request] = deque()
        self._next = 0

    def __len__(self) -> int:
        return len(self.index)

    def prepare(self) -> None:
        """Fills the store of ready requests."""
        left = _AHEAD_BYTES
        while left > 0 and self._next < len(self):
            left -= self.prepare_one()

    def prepare_one(self) -> int:
        """One more request ready; its size, 0 when all are."""
        row = self._next
        if row >= len(self):
            return 0
        self._next = row + 1
        request = self._request(row)
        self._prepared.append(request)
        return len(request[0])

    def next_request(self) -> Request:
        """The requests of row 0, 1, 2, ..., one at each call."""
        if not self._prepared:
            self.prepare_one()
        return self._prepared.popleft()

    @property
    def ready(self) -> int:
        return len(self._prepared)

    def _request(self, row: int) -> Request:
        index, (given_input, given_output) = self.index[row], self.tokens
        prompt = self._source.prompt(
            index,
            warm_up=self.intended[row] < self._warm_until,
            input_tokens=None if given_input is None else int(given_input[row]),
            output_tokens=None if given_output is None else int(given_output[row]),
        )
        head, model = self._head(self.endpoint[row], self.adapter[row])
        body: Any = self.dialect.body(prompt, model, self.streaming)
        body.update(self.scenario.extra_body)
        data = orjson.dumps(body)
        return b"%b%d\r\n\r\n%b" % (head, len(data), data), prompt.hash

    def _head(self, endpoint: int, adapter: int) -> tuple[bytes, str]:
        """The request head for this endpoint and adapter, and the body's model."""
        key = (endpoint, adapter)
        if key not in self._heads:
            target = self.targets[endpoint]
            model, extra = target.endpoint.model, {}
            if adapter != ABSENT and self.scenario.adapters is not None:
                if self.scenario.adapters.route == "header":
                    extra = {self.scenario.adapters.header: self._names[adapter]}
                else:
                    model = self._names[adapter]
            accept = "text/event-stream" if self.streaming else "application/json"
            self._heads[key] = target.head(self.dialect.path(model), accept, extra), model
        return self._heads[key]


def _column(values: npt.NDArray[Any]) -> Sequence[int]:
    """Compact, and quick to read one at a time."""
    column = array("q")
    column.frombytes(values.astype(np.int64).tobytes())
    return column


def _chosen_endpoints(
    scenario: Scenario, endpoints: list[Endpoint], seed: int, index: npt.NDArray[np.int64]
) -> npt.NDArray[np.int16]:
    if scenario.endpoints is None:
        weights = [endpoint.weight for endpoint in endpoints]
    else:
        known = {endpoint.name for endpoint in endpoints}
        unknown = [name for name in scenario.endpoints if name not in known]
        if unknown:
            raise LoadError(
                f"the scenario names endpoint {unknown[0]!r}; the backend has {', '.join(sorted(known))}"
            )
        weights = [scenario.endpoints.get(endpoint.name, 0.0) for endpoint in endpoints]
    return choose_endpoint(weights, seed, index)


def _chosen_adapters(
    scenario: Scenario, order: LoadOrder, index: npt.NDArray[np.int64]
) -> npt.NDArray[np.int16]:
    if scenario.adapters is None:
        return np.full(len(index), ABSENT, np.int16)
    places = [order.adapters.index(name) for name in scenario.adapters.names]
    chosen = scenario.adapters.choose(order.seed, index)
    return np.where(chosen == ABSENT, ABSENT, np.array(places, np.int16)[chosen]).astype(np.int16)
