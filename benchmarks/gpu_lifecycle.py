"""The life and death of a real vLLM on a GPU, through our backend: what each way of ending leaves behind.

    python benchmarks/gpu_lifecycle.py --model DIR [--python VLLM_PYTHON] [--lora NAME=PATH]... [-- vllm flags]

For each way it starts the server, proves it by a completion, ends it, and reads the GPU's memory by NVML before,
while ready, and after. Prints one JSON document; the exit code is 1 when anything was left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pynvml
import requests

from pytest_inferslo.backends import BackendOptions, RunningServer, resolve, start
from pytest_inferslo.errors import BackendDiedError

SETTLED_BYTES = 64 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--lora", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("flags", nargs="*")
    arguments = parser.parse_args()
    pynvml.nvmlInit()
    report: dict[str, Any] = {
        "gpu": pynvml.nvmlDeviceGetName(gpu()),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
    }
    with tempfile.TemporaryDirectory() as folder:
        options = BackendOptions(
            model=arguments.model,
            args=tuple(arguments.flags),
            python=arguments.python,
            lora=dict(word.split("=", 1) for word in arguments.lora),
            env={"HF_HUB_OFFLINE": "1"},
            log_path=Path(folder) / "server.log",
        )
        report["lives"] = [life(way, options) for way in arguments.ways]
    print(json.dumps(report, indent=1))
    return 0 if all(each["nothing_left"] for each in report["lives"]) else 1


def life(way: str, options: BackendOptions) -> dict[str, Any]:
    """One server from start to end."""
    if way != "stop with adapters":
        options = replace(options, lora={}, args=(*options.args, "--enforce-eager"))
    else:
        options = replace(options, lora_runtime=True)
    before = used()
    begun = time.monotonic()
    server = start(resolve("vllm", options), options)
    assert isinstance(server, RunningServer)
    ready_s = time.monotonic() - begun
    family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    names = [process.name() for process in family]
    ready_bytes = used()
    begun = time.monotonic()
    try:
        seen = WAYS[way](server, options)
    finally:
        server.stop()
    ended_s = time.monotonic() - begun
    alive = [
        process.pid for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]
    after = used()
    return {
        "way": way,
        "version": server.version,
        "ready_s": round(ready_s, 1),
        "processes": names,
        "gpu_bytes": {"before": before, "ready": ready_bytes, "after": after},
        "ended_s": round(ended_s, 2),
        "seen": seen,
        "alive": alive,
        "notes": server.notes,
        "nothing_left": not alive and after - before < SETTLED_BYTES,
    }


def stop(server: RunningServer, options: BackendOptions) -> Any:
    return None


def stop_with_adapters(server: RunningServer, options: BackendOptions) -> Any:
    """Static adapters are listed and answer; one more is loaded, used and unloaded at run time."""
    name, path = next(iter(options.lora.items()))
    loaded_s = server.load_adapter("late", path)
    answered = {model: completion(server, model).json()["usage"] for model in (*options.lora, "late")}
    unloaded_s = server.unload_adapter("late")
    return {
        "static": server.adapters,
        "load_s": loaded_s,
        "unload_s": unloaded_s,
        "answered": answered,
        "first": name,
    }


def stop_with_open_streams(server: RunningServer, options: BackendOptions) -> Any:
    """Sixteen streams are open when the server is stopped; what each of them ends with."""
    ends: list[str] = []
    threads = [threading.Thread(target=lambda: ends.append(last_events(server))) for _ in range(16)]
    for thread in threads:
        thread.start()
    time.sleep(2.0)
    server.stop()
    for thread in threads:
        thread.join(20.0)
    return {end: ends.count(end) for end in sorted(set(ends))}


def interrupt(server: RunningServer, options: BackendOptions) -> Any:
    """SIGINT while a client keeps its connection."""
    with requests.Session() as session:
        session.get(f"{server.endpoints[0].url}/health", timeout=10)
        os.kill(server.pid or 0, signal.SIGINT)
        return noticed(server)


def kill_server(server: RunningServer, options: BackendOptions) -> Any:
    os.kill(server.pid or 0, signal.SIGKILL)
    return noticed(server)


def kill_engine(server: RunningServer, options: BackendOptions) -> Any:
    engine = next(p for p in psutil.Process(server.pid).children(recursive=True) if "EngineCore" in p.name())
    engine.kill()
    return noticed(server)


def noticed(server: RunningServer) -> dict[str, Any]:
    """How long `check` took to say so, and the first line of what it said."""
    begun = time.monotonic()
    while time.monotonic() - begun < 30.0:
        try:
            server.check()
        except BackendDiedError as error:
            return {"noticed_s": round(time.monotonic() - begun, 2), "said": str(error).splitlines()[0]}
        time.sleep(0.05)
    return {"noticed_s": None, "said": "nothing in 30 s"}


def completion(server: RunningServer, model: str, **more: Any) -> requests.Response:
    body = {"model": model, "prompt": "def main():", "max_tokens": 16, **more}
    return requests.post(
        f"{server.endpoints[0].url}/v1/completions", json=body, timeout=60, stream=bool(more)
    )


def last_events(server: RunningServer) -> str:
    """How an endless stream ends: its last finish reason, and whether [DONE] came."""
    finish, done = "none", False
    with contextlib.suppress(requests.RequestException):
        for line in completion(
            server, server.endpoints[0].model, max_tokens=2000, ignore_eos=True, stream=True
        ).iter_lines():
            done = done or line == b"data: [DONE]"
            if line.startswith(b"data: {"):
                choices = json.loads(line[6:]).get("choices") or [{}]
                finish = choices[0].get("finish_reason") or finish
    return f"finish_reason {finish}, {'[DONE]' if done else 'no [DONE]'}"


def gpu() -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(0)


def used() -> int:
    return int(pynvml.nvmlDeviceGetMemoryInfo(gpu()).used)


WAYS: dict[str, Callable[[RunningServer, BackendOptions], Any]] = {
    "stop with adapters": stop_with_adapters,
    "stop": stop,
    "stop with open streams": stop_with_open_streams,
    "interrupt": interrupt,
    "kill -9 of the server": kill_server,
    "kill -9 of EngineCore": kill_engine,
}

if __name__ == "__main__":
    raise SystemExit(main())
