"""One worker's share of a load: which requests are due when, and their bytes, prepared ahead."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.samples import SAMPLE_DTYPE, Rows
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.errors import LoadError
from pytest_inferslo.loadgen.dialects import DIALECTS, Dialect
from pytest_inferslo.loadgen.order import LoadOrder
from pytest_inferslo.loadgen.routes import Routes
from pytest_inferslo.loadgen.target import Target

#: Requests are prepared before the load up to so many bytes; later ones when the loop has nothing due.
_AHEAD_BYTES = 128 * 1024 * 1024
#: How many a closed loop will need is not known: as many as can be made in this time.
_CLOSED_AHEAD_NS = 700_000_000

#: Requests between two breaths.
_BREATH = 2000

Request = tuple[bytes, int]  # the bytes to send, the prompt's hash
Place = tuple[int, int, int]  # stream, endpoint, adapter


class Workload:
    """Columns of this worker's rows: `index`, `intended` (ns since the epoch), `places`.

    In an open loop all rows stand from the start, in order of `intended`; a closed loop adds its own. `kinds`
    holds (dialect, streaming) of each stream.
    """

    def __init__(self, order: LoadOrder, worker: int, workers: int) -> None:
        scenario = replace(Scenario.from_dict(order.scenario), seed=order.seed)
        endpoints = [Endpoint.from_dict(data) for data in order.endpoints]
        if not endpoints:
            raise LoadError("no endpoint to send requests to")
        self.scenario = scenario
        self.schedule = schedule = scenario.schedule().stripe(worker, workers)
        self.targets = [Target(i, endpoint) for i, endpoint in enumerate(endpoints)]
        self.kinds: list[tuple[Dialect, bool]] = [
            (DIALECTS[str(stream.api)], bool(stream.streaming)) for stream in scenario.streams
        ]
        self.mixed = len(set(self.kinds)) > 1
        run = Path(order.run_directory).name
        self._sources = [scenario.prompt_source(run, number) for number in range(len(scenario.streams))]
        self._routes = Routes(scenario, endpoints, order.adapters)
        self._warm_until = scenario.window_ns[0]
        self._heads: dict[Place, tuple[bytes, str]] = {}
        # ready requests, in lines that are served from their heads: what a load takes next lies beside what it
        # took last. One line for an open loop, one for each user of a closed one.
        self._users = getattr(scenario.shape, "users", 1) if schedule.closed else 1
        self._lines: list[deque[Request]] = [deque() for _ in range(self._users)]
        self._next = 0
        endpoint, adapter = self._routes.choose(schedule.index, schedule.stream)
        self.index = _column(schedule.index)
        self.intended = _column(schedule.intended)
        columns = (column.data for column in (schedule.stream, endpoint, adapter))
        self.places = _shared(zip(*columns, strict=True))

    def __len__(self) -> int:
        return len(self.index)

    def most_within(self, span: int) -> int:
        """How many requests are due, at most, within `span` ns."""
        intended = np.asarray(self.intended)
        return int((np.searchsorted(intended, intended + span) - np.arange(len(intended))).max(initial=0))

    def kind(self, row: int) -> tuple[Dialect, bool]:
        return self.kinds[self.places[row][0]]

    def add_row(self, index: int, intended: int) -> int:
        """One more row, of the first stream; its number."""
        row = len(self.index)
        self.index.append(index)
        self.intended.append(intended)
        self.places.append(self._routes.only or self._routes.place(index))
        return row

    def rows_from(self, first: int) -> Rows:
        """Rows `first` and later as unfinished rows of SAMPLE_DTYPE."""
        rows = np.zeros(len(self) - first, SAMPLE_DTYPE)
        rows["index"], rows["intended"] = self.index[first:], self.intended[first:]
        places = np.array(self.places[first:], np.int16).reshape(-1, 3)
        rows["stream"], rows["endpoint"], rows["adapter"] = places.T
        return rows

    def prepare(self, breathe: Callable[[], None] = lambda: None) -> None:
        """Fills the store of ready requests, before the load; calls `breathe` now and then."""
        left, enough = _AHEAD_BYTES, time.monotonic_ns() + _CLOSED_AHEAD_NS
        while left > 0 and (size := self.prepare_one()):
            left -= size
            if not self._next % _BREATH:
                breathe()
        if not self.schedule.closed or self._warm_until or not len(self.schedule):
            return
        # the later requests of each user, whose times are not known yet
        for index in self._later_indices():
            if left <= 0 or time.monotonic_ns() >= enough:
                return
            request = self._make(index, self._routes.only or self._routes.place(index), -1)
            self._lines[index % self._users].append(request)
            left -= len(request[0])

    def _later_indices(self) -> Iterator[int]:
        """Of a closed loop's requests after each user's first one, without end."""
        firsts = self.schedule.index.tolist()
        for turn in count(1):
            for first in firsts:
                yield first + turn * self._users

    def prepare_one(self) -> int:
        """One more request ready; its size, 0 when all are."""
        row = self._next
        if row >= len(self.schedule):
            return 0
        self._next = row + 1
        request = self._make_row(row)
        self._lines[self.index[row] % self._users].append(request)
        return len(request[0])

    @property
    def ready(self) -> int:
        """How many requests of an open loop are ready."""
        return len(self._lines[0])

    def request(self, row: int) -> Request:
        """The request of `row`, to be taken once, and in their order: an open loop's rows, a user's requests."""
        line = self._lines[self.index[row] % self._users]
        if line:
            return line.popleft()
        self._next = max(self._next, row + 1)
        return self._make_row(row)

    def _make_row(self, row: int) -> Request:
        return self._make(self.index[row], self.places[row], row)

    def _make(self, index: int, place: Place, row: int) -> Request:
        """`row` is -1 where only the index is known yet."""
        stream = place[0]
        given_input, given_output = self.schedule.input_tokens, self.schedule.output_tokens
        prompt = self._sources[stream].prompt(
            index,
            warm_up=row >= 0 and self.intended[row] < self._warm_until,
            input_tokens=None if given_input is None else _given(given_input[row]),
            output_tokens=None if given_output is None else _given(given_output[row]),
        )
        dialect, streaming = self.kinds[stream]
        head, model = self._head(place)
        body: Any = dialect.body(prompt, model, streaming)
        body.update(self.scenario.extra_body)
        data = orjson.dumps(body)
        return b"%b%d\r\n\r\n%b" % (head, len(data), data), prompt.hash

    def _head(self, place: Place) -> tuple[bytes, str]:
        """The request head of this stream, endpoint and adapter, and the body's model."""
        if place not in self._heads:
            stream, endpoint, adapter = place
            target = self.targets[endpoint]
            dialect, streaming = self.kinds[stream]
            model, headers = self._routes.name(stream, adapter, target.endpoint.model)
            accept = "text/event-stream" if streaming else "application/json"
            self._heads[place] = target.head(dialect.path(model), accept, headers), model
        return self._heads[place]


def _given(tokens: Any) -> int | None:
    """A trace's token count; None where it has none for this request."""
    return int(tokens) if tokens > 0 else None


def _shared(places: Iterable[Place]) -> list[Place]:
    """Equal places as one object each: there are few, for many rows."""
    known: dict[Place, Place] = {}
    return [known.setdefault(place, place) for place in places]


def _column(values: npt.NDArray[Any]) -> array[int]:
    """Compact, and quick to read one at a time."""
    column = array("q")
    column.frombytes(values.astype(np.int64).tobytes())
    return column
