"""How many streaming requests per second the simulator serves on one core.

    python benchmarks/simulator.py [--seconds 5] [--tokens 1 4 16 64]

Starts the simulator on one core with a profile that is never the limit, drives it from another core with an
epoll client that keeps a fixed number of keep-alive connections busy, and prints requests/s, chunks/s, the
server's CPU time per request, and how far the simulated clock fell behind the wall clock.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

PROFILE = {
    "max_num_seqs": 4096,
    "max_num_batched_tokens": 65536,
    "num_gpu_blocks": 65536,
    "frontend_ms": 0,
    "prefill_ms": [[1, 5]],
    "decode_ms": [[1, 5], [4096, 5]],
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--input-tokens", type=int, default=128)
    parser.add_argument("--connections", type=int, default=512)
    parser.add_argument("--api", choices=("chat", "completions"), default="chat")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]})
    print(
        f"load average {os.getloadavg()[0]:.1f} on {len(cores)} cores; "
        f"{args.connections} connections, {args.api}"
    )
    print(
        f"{'tokens':>6} {'requests/s':>11} {'chunks/s':>9} {'server us/request':>18} {'core':>5} "
        f"{'worst lag':>10}"
    )
    for tokens in args.tokens:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as profile:
            json.dump(PROFILE, profile)
            profile.flush()
            measure(args, tokens, profile.name, cores[-1])
    return 0


def measure(args: argparse.Namespace, tokens: int, profile: str, core: int) -> None:
    """One row: a fresh server, one load."""
    command = [
        sys.executable,
        "-m",
        "pytest_inferslo.backends.simulated",
        "--port",
        "0",
        "--profile",
        profile,
    ]
    server = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    try:
        assert server.stdout is not None
        found = re.search(r":(\d+)$", server.stdout.readline().strip())
        assert found is not None
        port = int(found[1])
        before = cpu_seconds(server.pid)
        finished, seconds = drive(port, request_bytes(args.api, args.input_tokens, tokens), args)
        used = cpu_seconds(server.pid) - before
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"http://127.0.0.1:{port}/metrics"
        ) as answer:
            lag = re.search(r"lag_seconds_max{\S* (\S+)", answer.read().decode())
        assert lag is not None
        print(
            f"{tokens:6} {finished / seconds:11,.0f} {finished * tokens / seconds:9,.0f} "
            f"{used / finished * 1e6:18,.0f} {used / seconds:5.0%} {float(lag[1]) * 1e3:7.0f} ms"
        )
    finally:
        server.terminate()
        server.wait()


def request_bytes(api: str, input_tokens: int, output_tokens: int) -> bytes:
    """One streaming request with a prompt of that many words."""
    text = "word " * input_tokens
    body: dict[str, object] = {"model": "simulated", "max_tokens": output_tokens, "stream": True}
    body |= {"stream_options": {"include_usage": True}}
    body |= {"messages": [{"role": "user", "content": text}]} if api == "chat" else {"prompt": text}
    payload = json.dumps(body).encode()
    path = "/v1/chat/completions" if api == "chat" else "/v1/completions"
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (
        path.encode(),
        len(payload),
        payload,
    )


def drive(port: int, request: bytes, args: argparse.Namespace) -> tuple[int, float]:
    """Keeps every connection busy for the given time; returns the answers that completed, and the time."""
    epoll = select.epoll()
    connections: dict[int, socket.socket] = {}
    for _ in range(args.connections):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections[connection.fileno()] = connection
        epoll.register(connection, select.EPOLLIN)
    finished = 0
    started = time.monotonic()
    for connection in connections.values():
        connection.sendall(request)
    while (elapsed := time.monotonic() - started) < args.seconds:
        for descriptor, _events in epoll.poll(0.1):
            data = connections[descriptor].recv(65536)
            if not data:
                raise SystemExit("the simulator closed a connection")
            if data.endswith(b"0\r\n\r\n"):
                finished += 1
                connections[descriptor].sendall(request)
    for connection in connections.values():
        connection.close()
    return finished, elapsed


def cpu_seconds(pid: int) -> float:
    """User and system time of one process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
