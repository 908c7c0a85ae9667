"""The surface of `python -m sglang.launch_server`: flags, pages, and a health page that is 503 until it is warm."""

from __future__ import annotations

import argparse
import time
from typing import Any

from answers import PROMETHEUS, FakeServer, completion_pages, listing

_WARM_UP_S = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(prog="sglang.launch_server", allow_abbrev=False)
    parser.add_argument("--model-path", "--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--served-model-name")
    parser.add_argument("--tensor-parallel-size", "--tp", "--tp-size", type=int, default=1)
    parser.add_argument("--enable-metrics", action="store_true")
    parser.add_argument("--enable-lora", action="store_true")
    parser.add_argument("--lora-paths", nargs="*", default=[])
    arguments = parser.parse_args()

    model = arguments.served_model_name or arguments.model_path
    adapters = dict(pair.split("=", 1) for pair in arguments.lora_paths)
    warm_at = time.monotonic() + _WARM_UP_S

    def load(body: Any) -> tuple[int, Any]:
        adapters[body["lora_name"]] = body["lora_path"]
        return 200, {"success": True, "loaded_adapters": adapters}

    def unload(body: Any) -> tuple[int, Any]:
        known = adapters.pop(body["lora_name"], None) is not None
        return (200 if known else 400), {"success": known, "loaded_adapters": adapters}

    def models(_: Any) -> tuple[int, Any]:
        return 200, listing({"id": model}, *({"id": name, "parent": model} for name in adapters))

    pages = completion_pages(model) | {
        "GET /health": lambda _: (200 if time.monotonic() > warm_at else 503, ""),
        "GET /v1/models": models,
        "GET /get_server_info": lambda _: (200, {"version": "0.5.0", "model_path": arguments.model_path}),
        "POST /flush_cache": lambda _: (200, "Cache flushed."),
        "POST /load_lora_adapter": load,
        "POST /unload_lora_adapter": unload,
    }
    if arguments.enable_metrics:
        pages["GET /metrics"] = lambda _: (200, PROMETHEUS)
    FakeServer(arguments.port, pages, arguments.host).serve_forever()


if __name__ == "__main__":
    main()
