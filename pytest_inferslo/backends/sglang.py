"""SGLang: `python -m sglang.launch_server`, written against its documentation.

Not yet run against the real engine.
"""

from __future__ import annotations

import sys

from pytest_inferslo.backends.flags import has_flag, refuse_flags, require_model
from pytest_inferslo.backends.ignored import ATTACHED_ONLY
from pytest_inferslo.backends.protocol import BackendOptions, Launch, LoraPaths
from pytest_inferslo.backends.vllm import served_name
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.errors import BackendConfigError


class SGLang:
    """`--backend=sglang`. `--enable-metrics` is added, since the page of metrics is absent without it."""

    name = "sglang"
    ignores = ATTACHED_ONLY

    def launch(self, options: BackendOptions, port: int) -> Launch:
        refuse_flags(self.name, options.args, ("--host", "--port"))
        require_model(self.name, options, "--model-path", "--model")
        if has_flag(options.args, "--api-key") and not options.api_key_env:
            raise BackendConfigError(
                "with --api-key, name the variable that holds the key for the load: --api-key-env"
            )
        command = list(options.command) or [options.python or sys.executable, "-m", "sglang.launch_server"]
        if options.model:
            command += ["--model-path", options.model]
        command += ["--host", "127.0.0.1", "--port", str(port), *options.args]
        if not has_flag(options.args, "--enable-metrics"):
            command.append("--enable-metrics")
        if options.lora or options.lora_runtime:
            command += ["--enable-lora"] if not has_flag(options.args, "--enable-lora") else []
        if options.lora:
            command += ["--lora-paths", *(f"{name}={path}" for name, path in options.lora.items())]
        url = f"http://127.0.0.1:{port}"
        return Launch(
            command=tuple(command),
            endpoints=(Endpoint(url, served_name(options), api_key_env=options.api_key_env),),
            version_path="/get_server_info",
            metrics_url=f"{url}/metrics",
            reset_cache_path="/flush_cache",
            lora_paths=LoraPaths("/load_lora_adapter", "/unload_lora_adapter")
            if options.lora_runtime
            else None,
            adapters=tuple(options.lora),
            stop_grace_s=6.0,
        )
