"""llama.cpp: `llama-server`, written against its documentation; not yet run against the real engine."""

from __future__ import annotations

import shutil
from pathlib import Path

from pytest_inferslo.backends.flags import flag_value, has_flag, refuse_flags
from pytest_inferslo.backends.ignored import ATTACHED_ONLY
from pytest_inferslo.backends.protocol import BackendOptions, Launch
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.errors import BackendConfigError


class LlamaCpp:
    """`--backend=llamacpp`.

    `--model` is a GGUF file; `--metrics` is added, since its page is absent without it.
    """

    name = "llamacpp"
    ignores = ATTACHED_ONLY | {"python", "lora_runtime"}

    def launch(self, options: BackendOptions, port: int) -> Launch:
        refuse_flags(self.name, options.args, ("--host", "--port"))
        if options.model and not Path(options.model).is_file():
            raise BackendConfigError(
                f"--model={options.model}: llama-server loads a GGUF file, and there is none"
            )
        if not options.model and not has_flag(options.args, "-m", "--model", "-hf", "-hfr", "--hf-repo"):
            raise BackendConfigError(
                "--backend=llamacpp needs --model: a GGUF file (or --backend-arg=-hf ...)"
            )
        command = list(options.command) or [_program()]
        if options.model:
            command += ["--model", options.model]
        command += ["--host", "127.0.0.1", "--port", str(port), *options.args]
        if not has_flag(options.args, "--metrics"):
            command.append("--metrics")
        for path in options.lora.values():
            command += ["--lora", path]
        url = f"http://127.0.0.1:{port}"
        # Without an alias some versions list the file's path, others its name: the listing decides.
        model = flag_value(options.args, "-a", "--alias") or ""
        return Launch(
            command=tuple(command),
            endpoints=(Endpoint(url, model, api_key_env=options.api_key_env),),
            metrics_url=f"{url}/metrics",
            adapters=(),
        )


def _program() -> str:
    found = shutil.which("llama-server")
    if found is None:
        raise BackendConfigError(
            "llama-server is not on PATH: install llama.cpp, or start it and pass its URL"
        )
    return found
