"""`inferslo script-server FILE`: serves a script of answers and faults, to try a gate with.

Prints one line when it listens (`serving NAME on http://127.0.0.1:PORT`) and stops at SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import orjson

from pytest_inferslo.errors import PolicyError, Problem, ScriptError, UsageError
from pytest_inferslo.servers.script import Script
from pytest_inferslo.servers.script_reader import read_script
from pytest_inferslo.servers.scripted import Played, ScriptedServer
from pytest_inferslo.yaml_documents import read_document


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="the script (YAML)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one, and says which")
    parser.add_argument(
        "--log", type=Path, help="write a JSON line for each request: what was done, and when"
    )
    parser.add_argument("--check", action="store_true", help="only read the script")


def run(arguments: argparse.Namespace) -> int:
    script = load_script(arguments.file)
    if arguments.check:
        print(f"{arguments.file}: {len(script.rules)} answers")
        return 0
    try:
        asyncio.run(_serve(script, arguments))
    except (OSError, OverflowError) as error:  # the latter of a port that is none
        raise UsageError(f"cannot serve on {arguments.host} port {arguments.port}: {error}") from None
    return 0


def load_script(path: Path) -> Script:
    """Raises ScriptError with every problem of the file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ScriptError([Problem(str(path), 0, 0, f"cannot be read: {error.strerror}")]) from None
    if not data.strip():
        raise ScriptError([Problem(str(path), 1, 1, "is empty; begin it with 'answers:'")])
    try:
        document = read_document(data, str(path))
    except PolicyError as error:
        raise ScriptError(error.problems) from None
    return read_script(document, str(path))


async def _serve(script: Script, arguments: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    with ExitStack() as files:
        log = files.enter_context(arguments.log.open("ab")) if arguments.log else None
        server = ScriptedServer(script, arguments.host, arguments.port, _Log(log))
        async with server:
            name = script.name or arguments.file.stem
            print(f"serving {name} on http://{arguments.host}:{server.port}", flush=True)
            await stopped.wait()


class _Log:
    """One JSON line per request, written as it ends."""

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file

    def __call__(self, played: Played) -> None:
        if self._file is not None:
            self._file.write(orjson.dumps(played.to_dict()) + b"\n")
            self._file.flush()
