"""Locust's own users, one process: HttpUser or FastHttpUser. Prints the same line as aiohttp_client.py."""

from __future__ import annotations

import argparse
import json
import logging
import resource
import sys
import time

import gevent
from locust import FastHttpUser, HttpUser, User, constant_throughput, task
from locust.env import Environment

BODY = {
    "model": "m", "max_tokens": 1, "stream": True, "stream_options": {"include_usage": True},
    "messages": [{"role": "user", "content": "hello " * 64}],
}  # fmt: skip


def user_class(kind: str, path: str, each_per_second: float) -> type[User]:
    base = FastHttpUser if kind == "fast" else HttpUser

    class Asking(base):  # type: ignore[misc, valid-type]
        if each_per_second:
            wait_time = constant_throughput(each_per_second)

        @task
        def ask(self) -> None:
            self.client.post(path, json=BODY)

    return Asking


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--kind", choices=["fast", "http"], default="fast")
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    host, _, path = args.url.partition("/v1/")
    kind = user_class(args.kind, f"/v1/{path}", args.rate / args.users)
    env = Environment(user_classes=[kind], host=host)
    taken: list[int] = []
    env.events.request.add_listener(lambda response_time, **_: taken.append(round(response_time * 1e6)))
    runner = env.create_local_runner()
    runner.start(args.users, spawn_rate=args.users)
    gevent.sleep(1.0)
    del taken[:]
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    gevent.sleep(args.seconds)
    after, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - begin
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        json.dumps(
            {"requests": len(taken), "cpu_s": cpu, "wall_s": wall, "service_ns": taken if args.rate else []}
        )
    )
    sys.stdout.flush()
    runner.quit()


main()
