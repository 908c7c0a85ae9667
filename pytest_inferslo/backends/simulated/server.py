"""The server around the simulated engine: dispatch, and the life of one generation request."""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random

from pytest_inferslo import __version__
from pytest_inferslo.backends.simulated.asks import ApiError, Ask, Limits
from pytest_inferslo.backends.simulated.damage import BrokenSink, Damage
from pytest_inferslo.backends.simulated.endings import Ending, ending
from pytest_inferslo.backends.simulated.engine import Engine
from pytest_inferslo.backends.simulated.faults import Fault, Script
from pytest_inferslo.backends.simulated.pace import Pace
from pytest_inferslo.backends.simulated.profile import Profile
from pytest_inferslo.backends.simulated.sequences import Request
from pytest_inferslo.backends.simulated.streams import BodySink, Format, Sink, StreamSink
from pytest_inferslo.backends.simulated.timer import DeadlineTimer
from pytest_inferslo.backends.simulated.tokens import answer_words
from pytest_inferslo.servers.http import Exchange

VERSION = f"{__version__}+simulated"

Route = Callable[[Exchange], Awaitable[None]]
Routes = Mapping[tuple[str, str], Route]
"""By method and path."""


@dataclass
class Settings:
    """What a simulated server is started with."""

    profile: Profile
    models: list[str]
    """Names of the base model; the first is its id in answers."""
    adapters: dict[str, str] = field(default_factory=dict)
    """LoRA adapters by name, with the path that they were loaded from."""
    seed: int = 0
    script: Script = field(default_factory=Script)
    api_key: str | None = None


class SimulatedServer:
    """Answers exchanges; call it from an HttpServer. Needs a running event loop."""

    def __init__(self, settings: Settings) -> None:
        from pytest_inferslo.backends.simulated import routes_control, routes_openai, routes_triton

        loop = asyncio.get_running_loop()
        self.settings = settings
        self.engine = Engine(settings.profile, settings.seed)
        self.pace = Pace(self.engine, self._deliver, loop.time, partial(DeadlineTimer, loop))
        self.damage = Damage(self.pace, loop)
        self.damage.install(settings.script)
        self.limits = Limits(settings.profile.max_model_len, settings.profile.chat_output_tokens)
        self.open: dict[Request, Sink] = {}
        self.created = int(time.time())
        self._lengths = Random(settings.seed)
        self._serial = int.from_bytes(os.urandom(6), "big") << 16
        self._routes: dict[tuple[str, str], Route] = {
            **routes_control.routes(self),
            **routes_openai.routes(self),
            **routes_triton.routes(self),
        }
        self._paths = {path for _method, path in self._routes}

    async def __call__(self, exchange: Exchange) -> None:
        route = self._routes.get((exchange.method, exchange.path))
        if route is None:
            if exchange.path in self._paths:
                exchange.reply_json(405, {"detail": "Method Not Allowed"})
            else:
                exchange.reply_json(404, {"detail": "Not Found"})
            return
        if not self._authorized(exchange):
            exchange.reply_json(401, {"error": "Unauthorized"})
            return
        try:
            await route(exchange)
        except ApiError as error:
            exchange.reply(error.status, error.encoded(), headers=error.headers)
        except Exception:
            traceback.print_exc()
            exchange.close()

    def _authorized(self, exchange: Exchange) -> bool:
        key = self.settings.api_key
        if key is None or not exchange.path.startswith("/v1"):
            return True
        return exchange.headers.get("authorization") == f"Bearer {key}"

    def _deliver(self, produced: list[Request]) -> None:
        for request in produced:
            request.sink.deliver(request)

    def identity(self) -> str:
        """The random part of an answer's id; unique in this server."""
        self._serial += 1
        return f"{self._serial:016x}"

    def adapter(self, name: object) -> str | None:
        """The adapter of that name, None for the base model; unknown names are vLLM's 404."""
        if name is None or name in self.settings.models:
            return None
        if isinstance(name, str) and name in self.settings.adapters:
            return name
        raise ApiError(404, f"The model `{name}` does not exist.", "NotFoundError", "model")

    async def generate(
        self,
        exchange: Exchange,
        ask: Ask,
        shape: Format,
        streaming: Callable[[Exchange, Ask, Ending, Format], Sink] | None = None,
    ) -> None:
        """One generation request from its admission to the last byte of its answer."""
        fault = self.damage.meet(len(self.open))
        if fault is not None and fault.kind == "hang":
            await asyncio.Event().wait()
        how = ending(ask, self.settings.profile.eos_mean_tokens, self._lengths)
        request = Request(ask.prompt, how.tokens, ask.adapter)
        request.finish_reason = how.reason
        if self.settings.profile.enable_prefix_caching:
            request.output = answer_words(ask.answer_start, how.tokens)
        if ask.stream:
            exchange.start_stream()
            sink: Sink = (streaming or self._stream)(exchange, ask, how, shape)
        else:
            sink = BodySink(exchange, ask, how, shape)
        if fault is not None:
            sink = _broken(exchange, sink, fault)
        await self.serve(request, sink)

    def _stream(self, exchange: Exchange, ask: Ask, how: Ending, shape: Format) -> Sink:
        return StreamSink(exchange, ask, how, shape, self.settings.profile.stream_interval)

    async def serve(self, request: Request, sink: Sink) -> None:
        """Hands a request to the engine and waits for its sink's answer; a client that leaves aborts it."""
        request.sink = sink
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
        self.damage.close()
        self.pace.close()


def _broken(exchange: Exchange, sink: Sink, fault: Fault) -> Sink:
    if fault.kind == "empty":
        sink.blank = True
        return sink
    return BrokenSink(sink, exchange, fault)
