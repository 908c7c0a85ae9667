"""Which port is free, and whose process listens on one."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Iterable
from pathlib import Path

_LISTEN = "0A"
_PORTS = 12_000
_given: set[int] = set()
#: Local addresses, as the kernel writes them, at which a request to 127.0.0.1 can arrive.
_REACHED_FROM_LOOPBACK = {
    "0100007F",
    "00000000",
    "0" * 32,
    "0000000000000000FFFF00000100007F",
}


def free_port(proc_root: str = "/proc") -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now, and no other call of this process was given.

    It lies below the range from which the kernel takes the local ports of connections: an engine may bind its port
    half a minute after it was chosen. Somebody else can still take it first: see `strangers`.
    """
    with contextlib.suppress(OSError, ValueError):
        first_of_connections = int(
            Path(f"{proc_root}/sys/net/ipv4/ip_local_port_range").read_text().split()[0]
        )
        below = range(max(1024, first_of_connections - _PORTS), first_of_connections)
        for port in random.SystemRandom().sample(below, min(100, len(below))):
            if port not in _given and _is_free(port):
                _given.add(port)
                return port
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return not listening_sockets(port)


def listening_sockets(port: int, proc_root: str = "/proc") -> set[str]:
    """Inodes of the sockets that take connections to 127.0.0.1:`port`."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"{proc_root}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                address, _, hex_port = fields[1].rpartition(":")
                if fields[3] == _LISTEN and int(hex_port, 16) == port and address in _REACHED_FROM_LOOPBACK:
                    inodes.add(fields[9])
    return inodes


def held_sockets(pid: int, proc_root: str = "/proc") -> set[str]:
    """Inodes of the sockets that a process holds open; empty when it is gone or not ours to look into."""
    inodes = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"{proc_root}/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(entry.path)  # noqa: PTH115 - `socket:[1]` is no path
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    return inodes


def strangers(port: int, family: Iterable[int], proc_root: str = "/proc") -> set[str]:
    """Inodes listening on `port` that no process of `family` holds.

    Somebody else's server would answer there.
    """
    left = listening_sockets(port, proc_root)
    for pid in family:
        if not left:
            break
        left -= held_sockets(pid, proc_root)
    return left


def owner(inode: str, proc_root: str = "/proc") -> int | None:
    """The pid that holds a socket, as far as this user may look."""
    for entry in os.listdir(proc_root):  # noqa: PTH208 - names alone
        if entry.isdigit() and inode in held_sockets(int(entry), proc_root):
            return int(entry)
    return None
