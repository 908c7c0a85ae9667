"""Triton Inference Server: a model repository behind `tritonserver`, asked by its generate extension."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from pytest_inferslo.backends import ports
from pytest_inferslo.backends.flags import flag_value, has_flag, refuse_flags
from pytest_inferslo.backends.ignored import ATTACHED_ONLY
from pytest_inferslo.backends.protocol import BackendOptions, Launch
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.errors import BackendConfigError

#: How long Triton lets requests finish and models unload (a Python model: over a second per instance); 30 s
#: is its own default, spent whole when a client keeps an idle connection open.
_EXIT_TIMEOUT_S = 9


@dataclass(frozen=True)
class _Program:
    """How `tritonserver` is run.

    The copy inside the package pytriton brings its backends and libraries with it.
    """

    path: str
    flags: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


class Triton:
    """`--backend=triton`. `--model` is a model repository, or a model's name beside `--model-repository`.

    Of a repository with several models, `ensemble` (the interface of TensorRT-LLM's backend) is the one that
    is asked.
    """

    name = "triton"
    ignores = ATTACHED_ONLY | {"lora", "lora_runtime", "api_key_env"}

    def launch(self, options: BackendOptions, port: int) -> Launch:
        refuse_flags(
            self.name,
            options.args,
            ("--http-port", "--http-address", "--grpc-port", "--metrics-port", "--allow-http"),
        )
        repository, model = _repository_and_model(options)
        program = (
            _Program(options.command[0], tuple(options.command[1:]))
            if options.command
            else _find(options.python)
        )
        metrics_port = ports.free_port()
        flags = (
            [f"--model-repository={repository}"] if not has_flag(options.args, "--model-repository") else []
        )
        flags += [
            "--http-address=127.0.0.1", f"--http-port={port}", "--metrics-address=127.0.0.1",
            f"--metrics-port={metrics_port}", "--grpc-address=127.0.0.1", f"--grpc-port={ports.free_port()}",
        ]  # fmt: skip
        if not has_flag(options.args, "--exit-timeout-secs"):
            flags.append(f"--exit-timeout-secs={_EXIT_TIMEOUT_S}")
        if flag_value(options.args, "--model-control-mode") == "explicit" and not has_flag(
            options.args, "--load-model"
        ):
            flags.append(f"--load-model={model}")
        return Launch(
            command=(program.path, *program.flags, *flags, *options.args),
            env=program.env,
            endpoints=(Endpoint(f"http://127.0.0.1:{port}", model, api="triton"),),
            # The server's own readiness waits for every model; only this one's matters here.
            health_path=f"/v2/models/{model}/ready",
            models_path=None,
            version_path="/v2",
            metrics_url=f"http://127.0.0.1:{metrics_port}/metrics",
            stop_grace_s=_EXIT_TIMEOUT_S + 3.0,
        )


def _repository_and_model(options: BackendOptions) -> tuple[str, str]:
    repository = flag_value(options.args, "--model-repository", "--model-store")
    if repository is not None and options.model:
        return repository, options.model
    repository = repository or options.model
    if not repository or not Path(repository).is_dir():
        raise BackendConfigError(
            f"--backend=triton needs a model repository: --model={repository or ''} is no folder. Give the "
            "folder, or --backend-arg=--model-repository=DIR and a model's name as --model"
        )
    models = sorted(
        entry.name
        for entry in Path(repository).iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
    )
    if "ensemble" in models:
        return repository, "ensemble"
    if len(models) == 1:
        return repository, models[0]
    raise BackendConfigError(
        f"{repository} holds {', '.join(models) or 'no model'}: name the one to ask as --model, and the "
        "folder as --backend-arg=--model-repository=DIR"
    )


def _find(python: str | None) -> _Program:
    """pytriton's copy in the environment of `python`, else PATH's, else that of NVIDIA's images."""
    interpreter = Path(python or sys.executable)
    for bundle in sorted(interpreter.parent.parent.glob("lib/python3*/site-packages/pytriton/tritonserver")):
        libraries = bundle.parent.parent / "nvidia_pytriton.libs"
        # The Python that runs models is embedded: it finds its packages by the first python3 on PATH.
        env = {
            "LD_LIBRARY_PATH": _prepended(libraries, "LD_LIBRARY_PATH"),
            "PATH": _prepended(interpreter.parent, "PATH"),
        }
        flags = (f"--backend-directory={bundle / 'backends'}",)
        return _Program(str(bundle / "bin" / "tritonserver"), flags, env)
    for candidate in (shutil.which("tritonserver"), "/opt/tritonserver/bin/tritonserver"):
        if candidate and Path(candidate).is_file():
            return _Program(candidate)
    raise BackendConfigError(
        "tritonserver is neither in the environment of --backend-python (pip install nvidia-pytriton) nor on "
        "PATH"
    )


def _prepended(folder: Path, variable: str) -> str:
    return ":".join(filter(None, [str(folder), os.environ.get(variable)]))
