"""The OpenAI-compatible part that the stand-ins of this folder share, on the standard library.

They start fast.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROMETHEUS = (
    "# HELP fake:requests_total Requests.\n# TYPE fake:requests_total counter\nfake:requests_total 1\n"
)

#: A page answers `(status, body)` for the decoded JSON of a request; a body of text stays text.
Page = Callable[[Any], tuple[int, Any]]


def completion_pages(model: str) -> dict[str, Page]:
    """Chat and text completions of one known model."""

    def answer(key: str, choice: dict[str, Any]) -> Page:
        def page(body: Any) -> tuple[int, Any]:
            if body.get("model") != model:
                return 404, {"error": {"message": f"The model `{body.get('model')}` does not exist."}}
            usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
            return 200, {"object": key, "model": model, "choices": [choice], "usage": usage}

        return page

    chat = {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    return {
        "POST /v1/chat/completions": answer("chat.completion", chat),
        "POST /v1/completions": answer(
            "text_completion", {"index": 0, "text": "Hi", "finish_reason": "stop"}
        ),
    }


def listing(*cards: dict[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": [{"object": "model", **card} for card in cards]}


class FakeServer(ThreadingHTTPServer):
    """Answers `pages` ("METHOD /path"); everything else is 404. Prints each request, as servers do."""

    daemon_threads = True

    def __init__(self, port: int, pages: dict[str, Page], host: str = "127.0.0.1") -> None:
        self.pages = pages
        super().__init__((host, port), _Requests)

    def serve_in_background(self) -> None:
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Requests(BaseHTTPRequestHandler):
    server: FakeServer

    def _answer(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        page = self.server.pages.get(f"{self.command} {self.path}")
        status, body = page(json.loads(raw or b"{}")) if page else (404, {"error": {"message": "Not Found"}})
        is_text = isinstance(body, str)
        payload = body.encode() if is_text else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "text/plain" if is_text else "application/json")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    do_GET = do_POST = _answer

    def log_message(self, format: str, *args: Any) -> None:
        print(self.address_string(), format % args, flush=True)
