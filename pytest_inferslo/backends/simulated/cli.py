"""Command line of the simulator: `inferslo simulate`, and `python -m pytest_inferslo.backends.simulated`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import resource
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_inferslo.backends.simulated.faults import Script, parse_script
from pytest_inferslo.backends.simulated.profile import load_profile, read_mapping, shipped_profiles
from pytest_inferslo.errors import BackendConfigError

if TYPE_CHECKING:
    from pytest_inferslo.backends.simulated.server import Settings

_OVERRIDES = (
    ("max_num_seqs", int, "sequences in one batch"),
    ("max_num_batched_tokens", int, "tokens in one step"),
    ("max_model_len", int, "longest prompt with its answer, in tokens"),
    ("block_size", int, "tokens in one KV block"),
    ("num_gpu_blocks", int, "KV blocks"),
    ("max_loras", int, "adapters that are resident at the same time"),
    ("lora_load_ms", float, "time to load an adapter that is not resident"),
    ("stream_interval", int, "tokens in one event of a stream, after the first"),
    ("jitter", float, "standard deviation of a step's time, as a share of it"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the simulator's options, named after vLLM's where vLLM has them."""
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one and prints it")
    parser.add_argument(
        "--model", "--served-model-name", nargs="+", default=["simulated"], help="name(s) of the model"
    )
    parser.add_argument(
        "--profile",
        default="fast",
        help=f"{', '.join(shipped_profiles())}, or a YAML or JSON file (default: fast)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--api-key", metavar="KEY", help="refuse requests to /v1 that do not carry it")
    parser.add_argument("--faults", metavar="FILE", help="fault script, YAML or JSON (see the documentation)")
    for name, kind, text in _OVERRIDES:
        parser.add_argument(
            f"--{name.replace('_', '-')}", dest=name, type=kind, help=f"{text} (default: the profile's)"
        )
    for name in ("enable_prefix_caching", "enable_chunked_prefill"):
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, dest=name, action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument(
        "--lora-modules",
        nargs="+",
        default=[],
        metavar="NAME=PATH",
        help="adapters that are known from the start",
    )


def run(args: argparse.Namespace) -> int:
    """Serves until SIGTERM or SIGINT; 0 then, 4 for arguments that cannot be."""
    from pytest_inferslo.backends.simulated.server import Settings

    try:
        profile = load_profile(args.profile).with_options(
            {name: getattr(args, name) for name, *_rest in _OVERRIDES}
            | {name: getattr(args, name) for name in ("enable_prefix_caching", "enable_chunked_prefill")}
        )
        adapters = dict(_adapter(text) for text in args.lora_modules)
        script = _script(args.faults)
    except BackendConfigError as error:
        print(f"simulated server: {error}", file=sys.stderr)
        return 4
    settings = Settings(profile, args.model, adapters, args.seed, script, args.api_key)
    try:
        return asyncio.run(serve(settings, args.host, args.port))
    except (OSError, OverflowError) as error:  # the latter of a port that is none
        print(f"simulated server: cannot listen on {args.host} port {args.port}: {error}", file=sys.stderr)
        return 4


def _script(path: str | None) -> Script:
    if path is None:
        return Script()
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise BackendConfigError(f"fault script {path}: {error.strerror}") from error
    return parse_script(read_mapping(text, path), path)


def _adapter(text: str) -> tuple[str, str]:
    name, separator, path = text.partition("=")
    if not separator or not name:
        raise BackendConfigError(f"--lora-modules {text!r}: NAME=PATH is wanted")
    return name, path


async def serve(settings: Settings, host: str, port: int) -> int:
    """Runs one server until a signal asks it to stop. Raises OSError when the address cannot be had."""
    from pytest_inferslo.backends.simulated.server import SimulatedServer
    from pytest_inferslo.servers.http import HttpServer

    _allow_many_connections()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    delay = settings.script.delay_before_listening()
    if delay:
        print(f"simulated server: starts to listen in {delay:g} s (fault script)", flush=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), delay)
    server = SimulatedServer(settings)
    gc.collect()
    gc.freeze()
    async with HttpServer(server, host, port) as http:
        profile = settings.profile
        print(
            f"simulated server: profile {profile.name}, model {settings.models[0]}, http://{host}:{http.port}",
            flush=True,
        )
        await stop.wait()
        server.stop()
        await asyncio.sleep(0.05)
    print("simulated server: stopped", flush=True)
    return 0


def _allow_many_connections() -> None:
    """The soft limit on open files is often 1,024, which is fewer than the connections of one load test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main(argv: list[str] | None = None) -> int:
    """Entry of `python -m pytest_inferslo.backends.simulated`."""
    parser = argparse.ArgumentParser(
        prog="python -m pytest_inferslo.backends.simulated", description="A simulated LLM inference server."
    )
    add_arguments(parser)
    return run(parser.parse_args(argv))
