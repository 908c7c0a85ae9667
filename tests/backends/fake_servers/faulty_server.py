"""A server that goes wrong on request: each flag is one way in which real ones do."""

from __future__ import annotations

import argparse
import mmap
import os
import signal
import subprocess
import sys
import threading
import time

from answers import PROMETHEUS, FakeServer, completion_pages, listing

_SLEEPER = "import time, sys; print('child ready', flush=True); time.sleep(600)"
_STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {_SLEEPER}"


def start_engine(kind: str) -> subprocess.Popen[str]:
    """A child like an engine's: plain, deaf to SIGTERM in a session of its own, or orphaned by its parent."""
    # The mark goes on the command line too: some engines clear their environment.
    mark = os.environ.get("INFERSLO_TEST_MARK", "")
    if kind == "orphan":
        words = f"[sys.executable, '-c', {_STUBBORN!r}, {mark!r}]"
        launcher = f"import subprocess, sys; subprocess.Popen({words}, start_new_session=True)"
        return subprocess.Popen([sys.executable, "-c", launcher], text=True)
    code = _STUBBORN if kind == "stubborn" else _SLEEPER
    child = subprocess.Popen(
        [sys.executable, "-c", code, mark],
        text=True,
        stdout=subprocess.PIPE,
        start_new_session=kind == "stubborn",
        env={} if kind == "stubborn" else None,
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child


def watch_engine(server: FakeServer, child: subprocess.Popen[str], lingers_s: float, exits: bool) -> None:
    """What vLLM does when its engine dies: unhealthy at once, and a while later gone with exit status 0."""

    def watch() -> None:
        child.wait()
        print("EngineDeadError: the engine core is dead", flush=True)
        server.pages["GET /health"] = lambda _: (503, "engine dead")
        if exits:
            time.sleep(lingers_s)
            os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="fake-model")
    parser.add_argument("--lists", nargs="*", help="models that it lists instead of its own")
    parser.add_argument("--chatter", type=int, default=0, help="bytes of log before it listens")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before it listens")
    parser.add_argument("--exits", type=int, help="leaves after the delay with this status")
    parser.add_argument("--engine", choices=["plain", "stubborn", "orphan"])
    parser.add_argument("--outlives-engine", action="store_true", help="stays when its engine is gone")
    parser.add_argument("--deaf", action="store_true", help="ignores SIGTERM")
    parser.add_argument("--completions", choices=["work", "hang", "fail", "forbid"], default="work")
    parser.add_argument("--root-is-healthy", action="store_true", help="answers health at / and nowhere else")
    parser.add_argument("--shared-memory", help="creates this segment and leaves it")
    arguments = parser.parse_args()

    if arguments.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(arguments.chatter // 64):
        sys.stdout.write("loading " + "." * 55 + "\n")
    sys.stdout.flush()
    time.sleep(arguments.delay)
    if arguments.exits is not None:
        print("this is the end", flush=True)
        sys.exit(arguments.exits)

    segments: list[mmap.mmap] = []
    if arguments.shared_memory:
        with open(f"/dev/shm/{arguments.shared_memory}", "w+b") as file:  # noqa: PTH123
            file.truncate(4096)
            segments.append(mmap.mmap(file.fileno(), 4096))
    resets: list[float] = []
    listed = arguments.lists or [arguments.model]
    pages = completion_pages(arguments.model) | {
        "GET /health": lambda _: (200, ""),
        "GET /v1/models": lambda _: (200, listing(*({"id": name} for name in listed))),
        "GET /metrics": lambda _: (200, PROMETHEUS),
        "GET /version": lambda _: (200, {"version": "1.2.3"}),
        "POST /reset_prefix_cache": lambda _: (resets.append(time.time()) or 200, ""),
        "GET /resets": lambda _: (200, len(resets)),
    }
    broken = {
        "hang": lambda _: time.sleep(600),
        "fail": lambda _: (500, "boom"),
        "forbid": lambda _: (401, "no key"),
    }
    if arguments.completions != "work":
        pages["POST /v1/chat/completions"] = broken[arguments.completions]
    if arguments.root_is_healthy:
        pages["GET /"] = pages.pop("GET /health")
    server = FakeServer(arguments.port, pages)
    if arguments.engine:
        child = start_engine(arguments.engine)
        if arguments.engine != "orphan":
            watch_engine(server, child, 0.5, not arguments.outlives_engine)
    print("listening", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
