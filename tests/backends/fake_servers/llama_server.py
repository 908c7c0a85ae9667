"""The surface of llama.cpp's `llama-server`: it answers 503 everywhere while the model loads."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from answers import PROMETHEUS, FakeServer, Page, completion_pages, listing

_LOADS_S = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(prog="llama-server", allow_abbrev=False)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-a", "--alias")
    parser.add_argument("-c", "--ctx-size", type=int)
    parser.add_argument("-np", "--parallel", type=int)
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--lora", action="append", default=[])
    arguments = parser.parse_args()

    model = arguments.alias or Path(arguments.model).name
    loaded_at = time.monotonic() + _LOADS_S

    def once_loaded(page: Page) -> Page:
        loading = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}

        def answer(body: Any) -> tuple[int, Any]:
            return page(body) if time.monotonic() > loaded_at else (503, loading)

        return answer

    no_metrics = {"error": {"code": 501, "message": "This server does not support metrics endpoint."}}
    pages = completion_pages(model) | {
        "GET /health": lambda _: (200, {"status": "ok"}),
        "GET /v1/models": lambda _: (200, listing({"id": model, "owned_by": "llamacpp"})),
        "GET /metrics": lambda _: (200, PROMETHEUS) if arguments.metrics else (501, no_metrics),
    }
    pages = {name: once_loaded(page) for name, page in pages.items()}
    FakeServer(arguments.port, pages, arguments.host).serve_forever()


if __name__ == "__main__":
    main()
