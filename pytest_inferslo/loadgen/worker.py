"""A load generator worker: a Locust worker whose one user owns the engine. `inferslo worker` on other hosts.

    python -m pytest_inferslo.loadgen.worker --master 127.0.0.1:5557

It leaves when its master tells it to, or goes away; a local one also when its parent does (end of its stdin).
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import sys
import time
from pathlib import Path

from pytest_inferslo.loadgen.order import PROTOCOL


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--master", required=True, metavar="ADDR:PORT", help="where the master listens (--inferslo-bind)"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    host, _, port = args.master.rpartition(":")
    if not host or not port.isdigit():
        print(f"--master {args.master!r}: write it as ADDR:PORT, for example 10.0.0.5:5557", file=sys.stderr)
        return 4
    raise_open_files()
    # imported here and first of all that opens sockets: Locust patches the process
    from pytest_inferslo.loadgen.locust_setup import environment
    from pytest_inferslo.loadgen.worker_session import WorkerSession

    env = environment()
    try:
        runner = env.create_worker_runner(host.strip("[]"), int(port))
    except (ConnectionError, SystemExit):
        print(f"no master answers at {args.master}", file=sys.stderr)
        return 1
    session = WorkerSession(env, runner)
    if args.child:
        session.leave_with_parent()
    runner.send_message(
        "inferslo.hello",
        {
            "protocol": PROTOCOL,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "boot": boot_id(),
            "clock": time.monotonic_ns(),
        },
    )
    runner.greenlet.join()
    return 0


def boot_id() -> str:
    """Names the running kernel and its monotonic clock: equal for all processes that share them."""
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{kernel}/{Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return socket.gethostname()


def raise_open_files() -> None:
    """As many open files as the hard limit allows: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            pass


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="inferslo worker")
    add_arguments(_parser)
    sys.exit(run(_parser.parse_args()))
