"""How many streaming requests per second the simulator serves on one core.

    python benchmarks/simulator.py [--seconds 5] [--tokens 1 4 16 64]
    python benchmarks/simulator.py --profile h200-7b --connections 1 16 64 256 512 --tokens 64 --seconds 25

Starts the simulator on one core with a profile that is never the limit, drives it from another core with an
epoll client that keeps a fixed number of keep-alive connections busy, and prints requests/s, tokens/s, the
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
from collections.abc import Callable
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
    parser.add_argument("--connections", type=int, nargs="+", default=[512])
    parser.add_argument("--api", choices=("chat", "completions"), default="chat")
    parser.add_argument("--profile", help="a profile to look at, instead of one that is never the limit")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[0]})
    print(f"load average {os.getloadavg()[0]:.1f} on {len(cores)} cores; {args.api}, profile {args.profile}")
    print(
        f"{'connections':>11} {'tokens':>6} {'requests/s':>10} {'tokens/s':>8} {'ttft':>9} {'tpot':>8} "
        f"{'us/request':>10} {'core':>5} {'worst lag':>10}"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".json") as unlimited:
        json.dump(PROFILE, unlimited)
        unlimited.flush()
        for connections in args.connections:
            for tokens in args.tokens:
                measure(args, connections, tokens, args.profile or unlimited.name, cores[-1])
    return 0


def measure(args: argparse.Namespace, connections: int, tokens: int, profile: str, core: int) -> None:
    """One row: a fresh server, one load. TTFT and TPOT are the means of the server's own metrics."""
    command = [
        sys.executable,
        "-m",
        "pytest_inferslo.backends.simulated",
        "--port",
        "0",
        "--profile",
        profile,
    ]
    command += ["--no-enable-prefix-caching"] if args.profile else []
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
        request = request_bytes(args.api, args.input_tokens, tokens)
        finished, seconds = drive(port, request, connections, args.seconds)
        used = cpu_seconds(server.pid) - before
        metric = scrape(port)
        print(
            f"{connections:11} {tokens:6} {finished / seconds:10,.0f} "
            f"{metric('vllm:generation_tokens_total') / seconds:8,.0f} "
            f"{mean_ms(metric, 'time_to_first_token'):6.1f} ms "
            f"{mean_ms(metric, 'request_time_per_output_token'):5.1f} ms "
            f"{used / max(1, finished) * 1e6:10,.0f} {used / seconds:5.0%} "
            f"{metric('inferslo_simulated_lag_seconds_max') * 1e3:7.0f} ms"
        )
    finally:
        server.terminate()
        server.wait()


def scrape(port: int) -> Callable[[str], float]:
    """The samples of /metrics by name."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = re.findall(r"^([a-z_:]+)\S* (\S+)$", answer.read().decode(), re.MULTILINE)
    samples = {name: float(value) for name, value in lines}
    return lambda name: samples[name]


def mean_ms(metric: Callable[[str], float], name: str) -> float:
    count = metric(f"vllm:{name}_seconds_count")
    return metric(f"vllm:{name}_seconds_sum") / count * 1e3 if count else 0.0


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


def drive(port: int, request: bytes, count: int, limit: float) -> tuple[int, float]:
    """Keeps every connection busy for the given time; returns the answers that completed, and the time."""
    epoll = select.epoll()
    connections: dict[int, socket.socket] = {}
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections[connection.fileno()] = connection
        epoll.register(connection, select.EPOLLIN)
    finished = 0
    started = time.monotonic()
    for connection in connections.values():
        connection.sendall(request)
    while (elapsed := time.monotonic() - started) < limit:
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
