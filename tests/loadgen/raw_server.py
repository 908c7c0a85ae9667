"""A server that does to each connection exactly what a test says, byte by byte, on a thread each."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Any

from replies import delta, stream, usage

ANSWER = stream(delta("", role="assistant"), delta("a"), delta("b", "stop"), usage(3, 2))


class Peer:
    """One accepted connection. `request()` is the next request's JSON body; None when the client has closed."""

    def __init__(self, sock: socket.socket, server: RawServer) -> None:
        self.sock = sock
        self._server = server
        self._file = sock.makefile("rb")
        self.served = 0

    def request(self) -> dict[str, Any] | None:
        lines = []
        while (line := self._file.readline()) not in (b"\r\n", b""):
            lines.append(line.decode().strip())
        if not lines:
            return None
        headers = {name.lower(): value for name, _, value in (text.partition(": ") for text in lines[1:])}
        body: dict[str, Any] = json.loads(self._file.read(int(headers["content-length"])))
        self._server.requests.append((lines[0], headers, body))
        self.served += 1
        return body

    def head(self) -> bytes:
        """The next request's line and headers, its body unread; nothing when the client has closed."""
        lines = []
        while (line := self._file.readline()) not in (b"\r\n", b""):
            lines.append(line)
        return b"".join(lines)

    def skip(self, size: int) -> None:
        self._file.read(size)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def reset(self) -> None:
        self._file.close()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class RawServer:
    """`play(peer)` runs for each connection; the connection closes when it returns."""

    def __init__(
        self, play: Callable[[Peer], None], host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.connections = 0
        self._play = play
        self._tls = tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=512)
        self._listener.settimeout(30)
        self.port: int = self._listener.getsockname()[1]
        name = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if tls else 'http'}://{name}:{self.port}"

    def __enter__(self) -> RawServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            self._play(Peer(sock, self))
        except (OSError, ValueError):
            pass
        finally:
            sock.close()


def answer_all(data: bytes = ANSWER) -> Callable[[Peer], None]:
    def play(peer: Peer) -> None:
        while peer.request() is not None:
            peer.send(data)

    return play
