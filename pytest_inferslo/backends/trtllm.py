"""TensorRT-LLM: `trtllm-serve`, written against its public source (several revisions of it).

Not yet run against the real engine.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from pytest_inferslo.backends.flags import refuse_flags, require_model
from pytest_inferslo.backends.ignored import ATTACHED_ONLY
from pytest_inferslo.backends.protocol import BackendOptions, Launch
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.errors import BackendConfigError


class TensorRTLLM:
    """`--backend=trtllm`. `--model` is a checkpoint folder or name, or an engine folder."""

    name = "trtllm"
    ignores = ATTACHED_ONLY

    def launch(self, options: BackendOptions, port: int) -> Launch:
        refuse_flags(self.name, options.args, ("--host", "--port"))
        require_model(self.name, options)
        model = options.model or ""
        if options.lora or options.lora_runtime:
            raise BackendConfigError(
                "trtllm-serve takes LoRA adapters by a `lora_config` in its YAML "
                "(--backend-arg=--extra_llm_api_options=FILE) and by `lora_request` in each request's body"
            )
        command = [*(list(options.command) or _program(options.python)), model]
        command += [
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            *(_underscored(word) for word in options.args),
        ]
        url = f"http://127.0.0.1:{port}"
        return Launch(
            command=tuple(command),
            endpoints=(Endpoint(url, listed_name(model), api_key_env=options.api_key_env),),
            version_path="/version",
            # /metrics is JSON; Prometheus text is here, with `return_perf_metrics: true` in the YAML alone.
            metrics_url=f"{url}/prometheus/metrics",
            # It gives its own children ten seconds before it kills them.
            stop_grace_s=12.0,
        )


def listed_name(model: str) -> str:
    """trtllm-serve lists the last part of a local folder's path, and any other name as it is."""
    return Path(model).resolve().name if Path(model).is_dir() else model


def _underscored(word: str) -> str:
    """`--max-batch-size=8` as `--max_batch_size=8`: this engine spells all its flags so."""
    flag, equals, value = word.partition("=")
    return f"{flag[:2]}{flag[2:].replace('-', '_')}{equals}{value}" if word.startswith("--") else word


def _program(python: str | None) -> list[str]:
    """The console script beside the interpreter, else on PATH, else the module form."""
    interpreter = Path(python or sys.executable)
    beside = interpreter.parent / "trtllm-serve"
    if beside.is_file():
        return [str(beside)]
    if python is None and (found := shutil.which("trtllm-serve")):
        return [found]
    return [str(interpreter), "-m", "tensorrt_llm.commands.serve"]
