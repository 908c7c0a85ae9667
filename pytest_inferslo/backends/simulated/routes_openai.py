"""Routes of the OpenAI API: models, chat, completions, responses, embeddings, and vLLM's tokenize."""

from __future__ import annotations

import asyncio
import base64
import struct
from random import Random
from typing import TYPE_CHECKING, Any

from pytest_inferslo.backends.simulated.asks import (
    ApiError,
    chat_ask,
    checked_messages,
    completion_ask,
    embedding_inputs,
    missing,
    parse_json,
    response_ask,
)
from pytest_inferslo.backends.simulated.responses import ResponsesFormat, ResponsesSink
from pytest_inferslo.backends.simulated.sequences import Request
from pytest_inferslo.backends.simulated.streams import ChatFormat, CompletionFormat
from pytest_inferslo.backends.simulated.tokens import answer_start, chat_tokens, tokenize
from pytest_inferslo.servers.http import Exchange

if TYPE_CHECKING:
    from pytest_inferslo.backends.simulated.server import Routes, SimulatedServer

_DIMENSIONS = 64


def routes(server: SimulatedServer) -> Routes:
    """The OpenAI routes of a server, by method and path."""
    openai = _OpenAI(server)
    return {
        ("GET", "/v1/models"): openai.models,
        ("POST", "/v1/chat/completions"): openai.chat,
        ("POST", "/v1/completions"): openai.completions,
        ("POST", "/v1/responses"): openai.responses,
        ("POST", "/v1/embeddings"): openai.embeddings,
        ("POST", "/tokenize"): openai.tokenize,
    }


class _OpenAI:
    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def models(self, exchange: Exchange) -> None:
        settings = self._server.settings
        cards = [self._card(name, "simulated", None) for name in settings.models]
        cards += [self._card(name, path, settings.models[0]) for name, path in settings.adapters.items()]
        exchange.reply_json(200, {"object": "list", "data": cards})

    def _card(self, name: str, root: str, parent: str | None) -> dict[str, Any]:
        created = self._server.created
        card = {"id": name, "object": "model", "created": created, "owned_by": "simulated", "root": root}
        longest = self._server.limits.max_model_len if parent is None else None
        return card | {"parent": parent, "max_model_len": longest, "permission": []}

    def _body(self, exchange: Exchange) -> tuple[dict[str, Any], str | None]:
        value = parse_json(exchange.body)
        adapter = self._server.adapter(value.get("model"))
        if value.get("model") is None:
            value["model"] = self._server.settings.models[0]
        return value, adapter

    async def chat(self, exchange: Exchange) -> None:
        server = self._server
        value, adapter = self._body(exchange)
        ask = chat_ask(value, adapter, server.limits)
        await server.generate(exchange, ask, ChatFormat(server.identity(), ask.model))

    async def completions(self, exchange: Exchange) -> None:
        server = self._server
        value, adapter = self._body(exchange)
        ask = completion_ask(value, adapter, server.limits)
        await server.generate(exchange, ask, CompletionFormat(server.identity(), ask.model))

    async def responses(self, exchange: Exchange) -> None:
        server = self._server
        value, adapter = self._body(exchange)
        ask = response_ask(value, adapter, server.limits)
        shape = ResponsesFormat(server.identity(), ask.model)
        await server.generate(exchange, ask, shape, streaming=ResponsesSink)

    async def embeddings(self, exchange: Exchange) -> None:
        """Vectors of unit length, the same for the same input; each input is one prefill of the engine."""
        server = self._server
        value, adapter = self._body(exchange)
        inputs = embedding_inputs(value, server.limits)
        dimensions = value.get("dimensions") or _DIMENSIONS
        if not isinstance(dimensions, int) or not 1 <= dimensions <= 4096:
            raise ApiError(400, f"dimensions must be in [1, 4096], got {dimensions}.", param="dimensions")
        server.damage.meet(len(server.open))
        waits = [
            server.serve(Request(tokens, 0, adapter, finish_reason="stop"), _Silent()) for tokens in inputs
        ]
        await asyncio.gather(*waits)
        encoded = value.get("encoding_format") == "base64"
        data = [
            {"object": "embedding", "index": index, "embedding": _vector(tokens, dimensions, encoded)}
            for index, tokens in enumerate(inputs)
        ]
        total = sum(map(len, inputs))
        usage = {"prompt_tokens": total, "total_tokens": total, "completion_tokens": 0}
        answer = {"id": f"embd-{server.identity()}", "object": "list", "created": server.created}
        exchange.reply_json(200, answer | {"model": value["model"], "data": data, "usage": usage})

    async def tokenize(self, exchange: Exchange) -> None:
        value, _adapter = self._body(exchange)
        if "messages" in value:
            tokens = chat_tokens(checked_messages(value))
        elif isinstance(value.get("prompt"), str):
            tokens = tokenize(value["prompt"])
        else:
            raise missing("prompt", value)
        ids = [answer_start(token.encode()) for token in tokens]
        longest = self._server.limits.max_model_len
        exchange.reply_json(200, {"count": len(ids), "max_model_len": longest, "tokens": ids})


class _Silent:
    """A sink for requests whose answer is made elsewhere, when all of them are done."""

    blank = False

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def deliver(self, request: Request) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def abort(self, request: Request) -> None:
        self.deliver(request)


def _vector(tokens: list[object], dimensions: int, encoded: bool) -> list[float] | str:
    random = Random(" ".join(map(str, tokens)))
    values = [random.gauss(0.0, 1.0) for _ in range(dimensions)]
    norm = sum(value * value for value in values) ** 0.5
    unit = [value / norm for value in values]
    return base64.b64encode(struct.pack(f"<{dimensions}f", *unit)).decode() if encoded else unit
