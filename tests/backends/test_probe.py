"""Single questions, one after another, to servers that close their connections."""

from __future__ import annotations

import socket
import threading

from pytest_inferslo.backends.probe import Probe
from pytest_inferslo.core.endpoint import Endpoint


def test_a_server_that_closes_without_saying_so_is_asked_on_a_new_connection() -> None:
    """It leaves its connection open for a moment: a client that keeps connections would take it again."""
    kept: list[socket.socket] = []

    def serve(listener: socket.socket) -> None:
        for _ in range(3):
            peer, _ = listener.accept()
            kept.append(peer)
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        probe = Probe(Endpoint(f"http://127.0.0.1:{listener.getsockname()[1]}", "m"))
        answers = [probe.get("/metrics", 2.0) for _ in range(3)]
        thread.join(10)
    assert [answer.status for answer in answers] == [200, 200, 200]
    for peer in kept:
        peer.close()
