"""A plain aiohttp client, as the Python LLM benchmarks are built on: what it costs, and what it measures.

Prints one line of JSON: requests, cpu_s, wall_s, service_ns (a list, of open loads alone).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time

import aiohttp

BODY = {
    "model": "m", "max_tokens": 1, "stream": True, "stream_options": {"include_usage": True},
    "messages": [{"role": "user", "content": "hello " * 64}],
}  # fmt: skip


async def ask(session: aiohttp.ClientSession, url: str) -> int:
    """Service time of one request, ns: from the call to the first content."""
    begin, first = time.perf_counter_ns(), 0
    async with session.post(url, json=BODY) as response:
        async for line in response.content:
            if line.startswith(b"data: {") and not first:
                delta = json.loads(line[6:])["choices"]
                if delta and delta[0]["delta"].get("content"):
                    first = time.perf_counter_ns()
    return first - begin


async def closed(session: aiohttp.ClientSession, url: str, users: int, end: float) -> list[int]:
    async def user() -> list[int]:
        taken = []
        while time.perf_counter() < end:
            taken.append(await ask(session, url))
        return taken

    return [ns for some in await asyncio.gather(*(user() for _ in range(users))) for ns in some]


async def opened(session: aiohttp.ClientSession, url: str, rate: float, seconds: float) -> list[int]:
    begin, tasks = time.perf_counter(), []
    for number in range(int(rate * seconds)):
        delay = begin + number / rate - time.perf_counter()
        if delay > 0:
            await asyncio.sleep(delay)
        tasks.append(asyncio.create_task(ask(session, url)))
    return list(await asyncio.gather(*tasks))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--users", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    connector = aiohttp.TCPConnector(limit=0, ssl=False)
    async with aiohttp.ClientSession(connector=connector) as session:
        before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        if args.users:
            taken = await closed(session, args.url, args.users, begin + args.seconds)
        else:
            taken = await opened(session, args.url, args.rate, args.seconds)
        after, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - begin
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        json.dumps(
            {"requests": len(taken), "cpu_s": cpu, "wall_s": wall, "service_ns": taken if args.rate else []}
        )
    )


asyncio.run(main())
