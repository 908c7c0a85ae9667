"""Requests of Locust's HTTP clients from their begin to their event, which alone says too little.

Locust tells of a request when it is over, with a `response_time` that for `stream=True` stops at the headers, and
nothing at all of one whose user was stopped in the middle of it. So `request` of HttpUser's and FastHttpUser's
clients is watched while a load lasts, and the `with` block in which an answer is read.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import gevent
from locust import clients
from locust.contrib import fasthttp
from requests.exceptions import RequestException

_MS = 1_000_000
_CLIENTS = (
    (clients.HttpSession, clients.ResponseContextManager),
    (fasthttp.FastHttpSession, fasthttp.ResponseContextManager),
)
#: What a client raises while an answer is read, when the server let it down.
_BROKEN = (RequestException, *fasthttp.FAILURE_EXCEPTIONS)

clock = time.monotonic_ns


@dataclass(eq=False)
class Call:
    """One request: its begin (monotonic ns), and how its answer is taken."""

    begin: int
    streamed: bool
    caught: bool
    response_time: float = 0.0


class Listener(Protocol):
    def cut(self, call: Call) -> None:
        """Its user was stopped before the answer was complete."""


class Calls:
    """`open`: the calls without an end so far. From construction to `close`; one at a time in a process."""

    def __init__(self, listener: Listener) -> None:
        self.open: set[Call] = set()
        self._listener = listener
        self._of_greenlet: dict[Any, Call] = {}
        self._originals: list[tuple[Any, str, Any]] = []
        for session, response in _CLIENTS:
            self._replace(session, "request", self._request)
            self._replace(response, "__enter__", self._enter)
            self._replace(response, "__exit__", self._exit)

    def close(self) -> None:
        for owner, name, original in self._originals:
            setattr(owner, name, original)
        self._originals.clear()

    def of_event(self, response: Any) -> Call | None:
        """The call whose event is being fired; None when another client than Locust's own fires it."""
        found = getattr(response, "_inferslo_call", None) or self._of_greenlet.get(gevent.getcurrent())
        return found if isinstance(found, Call) else None

    def _replace(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        self._originals.append((owner, name, original))
        setattr(owner, name, wrap(original))

    def _request(self, original: Any) -> Any:
        names = list(inspect.signature(original).parameters)[1:]

        def request(client: Any, *args: Any, **kwargs: Any) -> Any:
            given = dict(zip(names, args, strict=False)) | kwargs
            call = Call(clock(), bool(given.get("stream")), bool(given.get("catch_response")))
            greenlet = gevent.getcurrent()
            self._of_greenlet[greenlet] = call
            self.open.add(call)
            try:
                response = original(client, *args, **kwargs)
            except gevent.GreenletExit:
                self._cut(call)
                raise
            finally:
                self.open.discard(call)
                del self._of_greenlet[greenlet]
            if call.caught:
                call.response_time = response.request_meta["response_time"]
                response._inferslo_call = response.request_meta["response"]._inferslo_call = call
            return response

        return request

    def _enter(self, original: Any) -> Any:
        def enter(response: Any) -> Any:
            entered = original(response)
            self.open.add(response._inferslo_call)
            return entered

        return enter

    def _exit(self, original: Any) -> Any:
        def leave(response: Any, kind: Any, error: Any, traceback: Any) -> Any:
            broken, stopped = isinstance(error, _BROKEN), isinstance(error, gevent.GreenletExit)
            call = getattr(response, "_inferslo_call", None)
            if call not in self.open:  # HttpSession's way to fire an event without a `with` block
                return original(response, kind, error, traceback)
            meta = response.request_meta
            if call.streamed and meta["response_time"] == call.response_time:
                meta["response_time"] = (clock() - call.begin) / _MS
            if response._manual_result is None and broken:
                # the answer broke off: Locust would raise this in the user and tell of no request
                response.failure(error)
                original(response, kind, error, traceback)
                error._inferslo_told = True
                self.open.discard(call)
                return False
            if response._manual_result is None and stopped:
                self._cut(call)
            self.open.discard(call)
            return original(response, kind, error, traceback)

        return leave

    def _cut(self, call: Call) -> None:
        if call in self.open:
            self.open.discard(call)
            self._listener.cut(call)
