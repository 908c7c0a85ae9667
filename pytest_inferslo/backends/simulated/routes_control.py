"""Routes about the server itself: health, version, metrics, adapters, prefix cache, fault scripts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pytest_inferslo.backends.simulated.asks import ApiError, parse_json
from pytest_inferslo.backends.simulated.faults import Script, parse_script
from pytest_inferslo.backends.simulated.metrics import render_engine, render_process
from pytest_inferslo.errors import UsageError
from pytest_inferslo.servers.http import Exchange

if TYPE_CHECKING:
    from pytest_inferslo.backends.simulated.server import Routes, SimulatedServer

_UNLOAD_S = 0.002


def routes(server: SimulatedServer) -> Routes:
    """The control routes of a server, by method and path."""
    control = _Control(server)
    return {
        ("GET", "/health"): control.health,
        ("GET", "/ping"): control.health,
        ("GET", "/version"): control.version,
        ("GET", "/metrics"): control.metrics,
        ("POST", "/v1/load_lora_adapter"): control.load,
        ("POST", "/v1/unload_lora_adapter"): control.unload,
        ("POST", "/reset_prefix_cache"): control.reset_prefix_cache,
        ("POST", "/simulated/faults"): control.install_faults,
        ("DELETE", "/simulated/faults"): control.clear_faults,
    }


class _Control:
    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def health(self, exchange: Exchange) -> None:
        exchange.reply(200 if self._server.damage.healthy() else 503, b"")

    async def version(self, exchange: Exchange) -> None:
        from pytest_inferslo.backends.simulated.server import VERSION

        profile = self._server.settings.profile.name
        exchange.reply_json(200, {"version": VERSION, "simulated": True, "profile": profile})

    async def metrics(self, exchange: Exchange) -> None:
        server = self._server
        text = render_process() + render_engine(server.engine, server.settings.models[0], server.pace)
        exchange.reply(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    async def load(self, exchange: Exchange) -> None:
        """Loads an adapter as vLLM does at run time; the path is recorded, not read."""
        value = parse_json(exchange.body)
        name, path = value.get("lora_name"), value.get("lora_path")
        if not (isinstance(name, str) and isinstance(path, str) and name and path):
            raise ApiError(400, "Both 'lora_name' and 'lora_path' must be provided.", "InvalidUserInput")
        adapters = self._server.settings.adapters
        if name in adapters and not value.get("load_inplace"):
            raise ApiError(
                400,
                f"The lora adapter '{name}' has already been loaded. If you want to load the adapter in "
                "place, set 'load_inplace' to True.",
                "InvalidUserInput",
            )
        await asyncio.sleep(self._server.settings.profile.lora_load_ms / 1e3)
        self._server.engine.unload(name)
        adapters[name] = path
        self._server.engine.preload(name)
        _reply_text(exchange, f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(self, exchange: Exchange) -> None:
        value = parse_json(exchange.body)
        name = value.get("lora_name")
        if not isinstance(name, str) or not name:
            raise ApiError(
                400, "'lora_name' needs to be provided to unload a LoRA adapter.", "InvalidUserInput"
            )
        if name not in self._server.settings.adapters:
            raise ApiError(404, f"The lora adapter '{name}' cannot be found.", "NotFoundError")
        await asyncio.sleep(_UNLOAD_S)
        self._server.settings.adapters.pop(name, None)
        self._server.engine.unload(name)
        _reply_text(exchange, f"Success: LoRA adapter '{name}' removed successfully.")

    async def reset_prefix_cache(self, exchange: Exchange) -> None:
        """Empties the prefix cache; 503 while requests hold blocks, when nothing was done."""
        done = self._server.engine.reset_prefix_cache()
        exchange.reply(200 if done else 503, b"")

    async def install_faults(self, exchange: Exchange) -> None:
        """Replaces the fault script; its times count from now."""
        try:
            self._server.damage.install(parse_script(parse_json(exchange.body), "body"))
        except UsageError as error:
            raise ApiError(400, str(error)) from error
        exchange.reply(204, b"")

    async def clear_faults(self, exchange: Exchange) -> None:
        self._server.damage.install(Script())
        exchange.reply(204, b"")


def _reply_text(exchange: Exchange, text: str) -> None:
    exchange.reply(200, text.encode(), "text/plain; charset=utf-8")
