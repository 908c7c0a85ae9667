"""The OpenAI-compatible server around the simulated engine: routes, one coroutine per request."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from pytest_inferslo import __version__
from pytest_inferslo.backends.simulated.asks import (
    ApiError,
    Ask,
    Limits,
    chat_ask,
    completion_ask,
    invalid,
    missing,
    parse_json,
)
from pytest_inferslo.backends.simulated.engine import Engine, Request
from pytest_inferslo.backends.simulated.metrics import render_engine, render_process
from pytest_inferslo.backends.simulated.pace import Pace
from pytest_inferslo.backends.simulated.profile import Profile
from pytest_inferslo.backends.simulated.streams import (
    BodySink,
    ChatFormat,
    CompletionFormat,
    Format,
    Sink,
    StreamSink,
)
from pytest_inferslo.backends.simulated.tokens import answer_words
from pytest_inferslo.servers.http import Exchange

VERSION = f"{__version__}+simulated"

Route = Callable[[Exchange], Awaitable[None]]


@dataclass
class Settings:
    """What a simulated server is started with."""

    profile: Profile
    models: list[str]
    """Names of the base model; the first is its id in answers."""
    adapters: dict[str, str] = field(default_factory=dict)
    """LoRA adapters by name, with the path that they were loaded from."""
    seed: int = 0
    root: str = "simulated"


class SimulatedServer:
    """Answers exchanges; call it from an HttpServer. Needs a running event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = Engine(settings.profile, settings.seed)
        self.pace = Pace(self.engine, self._deliver, asyncio.get_running_loop())
        self.limits = Limits(settings.profile.max_model_len, settings.profile.chat_output_tokens)
        self.open: dict[Request, Sink] = {}
        self._created = int(time.time())
        self._serial = int.from_bytes(os.urandom(6), "big") << 16
        self._routes: dict[str, tuple[str, Route]] = {
            "/health": ("GET", self._health),
            "/ping": ("GET", self._health),
            "/version": ("GET", self._version),
            "/v1/models": ("GET", self._models),
            "/metrics": ("GET", self._metrics),
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completions),
        }

    async def __call__(self, exchange: Exchange) -> None:
        entry = self._routes.get(exchange.path)
        if entry is None:
            exchange.reply_json(404, {"detail": "Not Found"})
            return
        method, route = entry
        if exchange.method != method:
            exchange.reply_json(405, {"detail": "Method Not Allowed"})
            return
        try:
            await route(exchange)
        except ApiError as error:
            exchange.reply_json(error.status, error.body)

    def _deliver(self, produced: list[Request]) -> None:
        for request in produced:
            request.sink.deliver(request)

    # -- about the server ------------------------------------------------------------------------------------------

    async def _health(self, exchange: Exchange) -> None:
        exchange.reply(200, b"")

    async def _version(self, exchange: Exchange) -> None:
        exchange.reply_json(
            200, {"version": VERSION, "simulated": True, "profile": self.settings.profile.name}
        )

    async def _models(self, exchange: Exchange) -> None:
        cards = [self._card(name, self.settings.root, None) for name in self.settings.models]
        cards += [
            self._card(name, path, self.settings.models[0]) for name, path in self.settings.adapters.items()
        ]
        exchange.reply_json(200, {"object": "list", "data": cards})

    def _card(self, name: str, root: str, parent: str | None) -> dict[str, Any]:
        card = {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "simulated",
            "root": root,
        }
        return card | {
            "parent": parent,
            "max_model_len": self.limits.max_model_len if parent is None else None,
        }

    async def _metrics(self, exchange: Exchange) -> None:
        figures = {
            "lag_seconds": self.pace.lag,
            "lag_seconds_max": self.pace.largest_lag,
            "resyncs": self.pace.resyncs,
        }
        text = render_process() + render_engine(self.engine, self.settings.models[0], figures)
        exchange.reply(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    # -- generation ------------------------------------------------------------------------------------------------

    async def _chat(self, exchange: Exchange) -> None:
        value = parse_json(exchange.body)
        ask = chat_ask(value, self._adapter(value), self.limits)
        await self._generate(exchange, ask, ChatFormat(self._identity(), ask.model))

    async def _completions(self, exchange: Exchange) -> None:
        value = parse_json(exchange.body)
        ask = completion_ask(value, self._adapter(value), self.limits)
        await self._generate(exchange, ask, CompletionFormat(self._identity(), ask.model))

    def _identity(self) -> str:
        self._serial += 1
        return f"{self._serial:016x}"

    def _adapter(self, value: dict[str, Any]) -> str | None:
        """The adapter that the body's model names, None for the base model; unknown names are vLLM's 404."""
        name = value.get("model")
        if name is None:
            value["model"] = self.settings.models[0]
            return None
        if name in self.settings.adapters:
            return str(name)
        if name not in self.settings.models:
            raise ApiError(404, f"The model `{name}` does not exist.", "NotFoundError", "model")
        return None

    async def _generate(self, exchange: Exchange, ask: Ask, shape: Format) -> None:
        output = (
            answer_words(ask.answer_start, ask.output_tokens)
            if self.settings.profile.enable_prefix_caching
            else None
        )
        request = Request(ask.prompt, ask.output_tokens, ask.adapter, output=output)
        request.finish_reason = "length" if ask.limited else "stop"
        if ask.stream:
            exchange.start_stream()
            request.sink = sink = StreamSink(exchange, ask, shape)
        else:
            request.sink = sink = BodySink(exchange, ask, shape)
        self.open[request] = sink
        self.pace.submit(request)
        try:
            await sink.done
        finally:
            del self.open[request]
            self.pace.abort(request)

    def stop(self) -> None:
        """Ends every open request as an engine does that is told to stop."""
        for request, sink in list(self.open.items()):
            self.pace.abort(request)
            sink.abort(request)
        self.pace.close()
