"""Plays a script: the bytes, waits and faults that it says, and a log of what was done when.

async with ScriptedServer(script) as server:     # server.port, server.log
with scripted(script) as server:                 # the same from plain code, on a thread of its own
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytest_inferslo.servers import script as s
from pytest_inferslo.servers.http import Exchange, HttpServer
from pytest_inferslo.servers.pacer import Pacer
from pytest_inferslo.servers.play import Over, Play, Played

_PLAIN = s.Rule(s.When(), (s.Answer(4, s.NO_DELAY, s.NO_DELAY, 1, 0, "stop", s.Usage(10, None)),), 0)


class ScriptedServer:
    """Serves one script on `host`:`port` (0 takes a free port). `on_played` sees each request as it ends."""

    def __init__(
        self,
        script: s.Script,
        host: str = "127.0.0.1",
        port: int = 0,
        on_played: Callable[[Played], None] | None = None,
    ) -> None:
        self.script = script
        self.log: list[Played] = []
        self._keep = on_played is None
        self._on_played = on_played
        self._count = 0
        self._tries: dict[bytes, int] = {}
        self._counts_tries = any(rule.when.attempt is not None for rule in script.rules)
        self._server = HttpServer(self._answer, host, port)

    async def __aenter__(self) -> ScriptedServer:
        self._pacer = Pacer()
        await self._server.__aenter__()
        self.port = self._server.port
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._server.__aexit__()
        self._pacer.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _answer(self, exchange: Exchange) -> None:
        received = time.monotonic_ns()
        if exchange.method != "POST":
            self._answer_probe(exchange)
            return
        self._count += 1
        number = max(0, self._count - self.script.uncounted)
        rule = self._rule(number, exchange)
        if rule is None:
            exchange.reply_json(501, {"error": {"message": f"the script has no answer for request {number}"}})
            return
        played = Played(number, rule.line, exchange.path, received)
        if self._keep:
            self.log.append(played)
        play = Play(self.script, exchange, self._pacer, played)
        try:
            await play.all_of(rule.steps)
            if played.how == "open":
                played.how = "complete"
        except Over as over:
            played.how = str(over)
        except asyncio.CancelledError:
            played.how = "peer left" if played.how == "open" else played.how
            raise
        finally:
            played.ended = time.monotonic_ns()
            if self._on_played is not None:
                self._on_played(played)

    def _rule(self, number: int, exchange: Exchange) -> s.Rule | None:
        if number == 0:
            return _PLAIN
        tries = 1
        if self._counts_tries:
            tries = self._tries[exchange.body] = self._tries.get(exchange.body, 0) + 1
        rules = self.script.rules
        return next((rule for rule in rules if rule.when.holds(number, tries, exchange.path)), None)

    def _answer_probe(self, exchange: Exchange) -> None:
        if exchange.path in ("/health", "/v2/health/live", "/v2/health/ready") or exchange.path.endswith(
            "/ready"
        ):
            exchange.reply(200, b"")
        elif exchange.path == "/v1/models":
            model = {"id": self.script.model, "object": "model", "owned_by": "script"}
            exchange.reply_json(200, {"object": "list", "data": [model]})
        else:
            exchange.reply_json(404, {"detail": "Not Found"})


@contextmanager
def scripted(script: s.Script, port: int = 0) -> Iterator[ScriptedServer]:
    """Serves `script` from a thread of this process until the block ends; `server.url`, `server.log`."""
    server = ScriptedServer(script, port=port)
    started: list[BaseException | None] = []
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        try:
            async with server:
                loop = asyncio.get_running_loop()
                ready.set()
                await loop.run_in_executor(None, stop.wait)
        except OSError as error:
            started.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="scripted server", daemon=True)
    thread.start()
    ready.wait()
    if started and started[0] is not None:
        raise started[0]
    try:
        yield server
    finally:
        stop.set()
        thread.join()
