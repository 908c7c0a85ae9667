"""Routes of a Triton server: readiness per model, generate, generate_stream, infer (KServe v2).

The interface is that of the TensorRT-LLM backend's ensemble: `text_input`, `max_tokens` in, `text_output`
out. Each served name answers under /v2/models/NAME, and `ensemble` too.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_inferslo.backends.simulated.asks import ApiError, parse_json, text_ask
from pytest_inferslo.backends.simulated.sequences import Request
from pytest_inferslo.servers.http import Exchange

if TYPE_CHECKING:
    from pytest_inferslo.backends.simulated.server import Route, Routes, SimulatedServer


def routes(server: SimulatedServer) -> Routes:
    """The Triton routes of a server, by method and path."""
    triton = _Triton(server)
    table: dict[tuple[str, str], Route] = {
        ("GET", "/v2"): triton.about,
        ("GET", "/v2/health/live"): triton.health,
        ("GET", "/v2/health/ready"): triton.health,
    }
    for name in (*server.settings.models, "ensemble"):
        base = f"/v2/models/{name}"
        table[("GET", base)] = partial(triton.model, name)
        table[("GET", f"{base}/ready")] = triton.health
        for path, call in (
            ("generate", triton.generate),
            ("generate_stream", triton.generate_stream),
            ("infer", triton.infer),
        ):
            table[("POST", f"{base}/{path}")] = _with_triton_errors(partial(call, name))
    return table


def _with_triton_errors(route: Route) -> Route:
    """Triton's errors are `{"error": text}`."""

    async def answer(exchange: Exchange) -> None:
        try:
            await route(exchange)
        except ApiError as error:
            exchange.reply_json(error.status, {"error": str(error)})

    return answer


class TritonFormat:
    """Events and bodies of the generate extension: a stream has no [DONE], its end is the end of the body."""

    suffix = b'"}'
    terminator = b""

    def __init__(self, model: str) -> None:
        self._model = model

    def prefix(self) -> bytes:
        return b'{"model_name":"%b","model_version":"1","text_output":"' % self._model.encode()

    def first(self) -> bytes:
        return b""

    def last(self, text: str, reason: str | None, stop: str | None) -> dict[str, Any]:
        return {"model_name": self._model, "model_version": "1", "text_output": text}

    def usage_event(self, request: Request) -> dict[str, Any]:
        return {}

    def body(self, text: str, request: Request, stop: str | None) -> dict[str, Any]:
        return self.last(text, None, None)


class InferFormat(TritonFormat):
    """The body of an inference answer of KServe v2."""

    def body(self, text: str, request: Request, stop: str | None) -> dict[str, Any]:
        output = {"name": "text_output", "datatype": "BYTES", "shape": [1], "data": [text]}
        return {"model_name": self._model, "model_version": "1", "outputs": [output]}


class _Triton:
    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def about(self, exchange: Exchange) -> None:
        from pytest_inferslo.backends.simulated.server import VERSION

        exchange.reply_json(200, {"name": "simulated", "version": VERSION, "extensions": ["generate"]})

    async def health(self, exchange: Exchange) -> None:
        exchange.reply(200 if self._server.damage.healthy() else 400, b"")

    async def model(self, name: str, exchange: Exchange) -> None:
        exchange.reply_json(200, {"name": name, "versions": ["1"], "platform": "simulated"})

    async def generate(self, name: str, exchange: Exchange) -> None:
        await self._generate(name, exchange, stream=False)

    async def generate_stream(self, name: str, exchange: Exchange) -> None:
        await self._generate(name, exchange, stream=True)

    async def _generate(self, name: str, exchange: Exchange, stream: bool) -> None:
        value = parse_json(exchange.body)
        ask = text_ask(value.get("text_input"), value.get("max_tokens"), name, stream, self._server.limits)
        await self._server.generate(exchange, ask, TritonFormat(name))

    async def infer(self, name: str, exchange: Exchange) -> None:
        value = parse_json(exchange.body)
        entries = value.get("inputs")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ApiError(400, "inputs: a list of tensors is wanted", param="inputs")
        inputs = {str(entry.get("name")): entry.get("data") for entry in entries}
        text, limit = (_first(inputs.get(key)) for key in ("text_input", "max_tokens"))
        ask = text_ask(text, limit, name, False, self._server.limits)
        await self._server.generate(exchange, ask, InferFormat(name))


def _first(data: Any) -> Any:
    while isinstance(data, list):
        data = data[0] if data else None
    return data
