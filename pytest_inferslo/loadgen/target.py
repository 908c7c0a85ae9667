"""Where a worker's connections go: one endpoint, resolved, with its TLS context and its idle connections."""

from __future__ import annotations

import os
import re
import socket
import ssl
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.errors import LoadError

if TYPE_CHECKING:
    from pytest_inferslo.loadgen.connection import Connection

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: Written by the engine itself.
_OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})

Address = tuple[int, Any]  # family, sockaddr


class Target:
    """`addresses` are tried in the resolver's order until one answers, then that one is kept."""

    def __init__(self, index: int, endpoint: Endpoint) -> None:
        url = urlsplit(endpoint.url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise LoadError(f"endpoint {endpoint.name}: {endpoint.url!r} is no http:// or https:// address")
        self.index = index
        self.endpoint = endpoint
        self.prefix = url.path.rstrip("/")
        self.host = url.hostname
        self.port = url.port or (443 if url.scheme == "https" else 80)
        self.authority = _authority(url)
        self.tls = _tls_context(endpoint) if url.scheme == "https" else None
        self.idle: list[Connection] = []
        self.connecting = 0
        self.resolve_error = ""
        self.addresses = self._resolve()

    def _resolve(self) -> list[Address]:
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            self.resolve_error = f"{self.host}: {error}"
            return []
        return [(family, sockaddr) for family, _, _, _, sockaddr in found]

    def next_address(self, failed: Address) -> None:
        """`failed` did not take a connection: another address of the name goes first from now on."""
        if len(self.addresses) > 1 and self.addresses[0] == failed:
            self.addresses.append(self.addresses.pop(0))

    def head(self, path: str, accept: str, extra: dict[str, str]) -> bytes:
        """The request head up to the value of Content-Length."""
        fields = {
            "Host": self.authority,
            "User-Agent": f"pytest-inferslo/{version('pytest-inferslo')}",
            "Accept": accept,
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        if self.endpoint.api_key_env:
            key = os.environ.get(self.endpoint.api_key_env)
            if not key:
                raise LoadError(
                    f"endpoint {self.endpoint.name}: the environment variable {self.endpoint.api_key_env}"
                    " that holds its API key is not set where this worker runs; set it there"
                )
            fields["Authorization"] = f"Bearer {key}"
        for name, value in (self.endpoint.headers | extra).items():
            if name.lower() in _OWN_HEADERS:
                raise LoadError(f"endpoint {self.endpoint.name}: header {name!r} is the load engine's own")
            same = next((known for known in fields if known.lower() == name.lower()), name)
            fields[same] = value
        for name, value in fields.items():
            if not _TOKEN.fullmatch(name) or re.search(r"[\r\n\0]", value):
                raise LoadError(f"endpoint {self.endpoint.name}: {name!r} is no header that can be sent")
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"POST {self.prefix}{path} HTTP/1.1\r\n{lines}Content-Length: ".encode()


def _authority(url: SplitResult) -> str:
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else str(url.hostname)
    default = 443 if url.scheme == "https" else 80
    return host if url.port in (None, default) else f"{host}:{url.port}"


def _tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file)
    except OSError as error:
        raise LoadError(f"endpoint {endpoint.name}: ca_file {endpoint.ca_file}: {error}") from error
    if not endpoint.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
