"""The simulator that this package ships, as a server of its own: no engine, no GPU, no download."""

from __future__ import annotations

import sys

from pytest_inferslo.backends.flags import flag_value, refuse_flags
from pytest_inferslo.backends.ignored import ATTACHED_ONLY
from pytest_inferslo.backends.protocol import BackendOptions, Launch, LoraPaths
from pytest_inferslo.core.endpoint import Endpoint


class Simulator:
    """`--backend=sim`. Flags pass through to `inferslo simulate`; what it measures is marked as simulated."""

    name = "sim"
    ignores = ATTACHED_ONLY | {"python"}

    def launch(self, options: BackendOptions, port: int) -> Launch:
        refuse_flags(self.name, options.args, ("--host", "--port"))
        # Not options.python: that is the interpreter of an engine, which need not have this package.
        command = list(options.command) or [sys.executable, "-m", "pytest_inferslo.backends.simulated"]
        command += ["--port", str(port), *options.args]
        if options.model:
            command += ["--model", options.model]
        if options.lora:
            command += ["--lora-modules", *(f"{name}={path}" for name, path in options.lora.items())]
        url = f"http://127.0.0.1:{port}"
        return Launch(
            command=tuple(command),
            endpoints=(
                Endpoint(
                    url,
                    options.model or flag_value(options.args, "--model") or "",
                    api_key_env=options.api_key_env,
                ),
            ),
            version_path="/version",
            metrics_url=f"{url}/metrics",
            reset_cache_path="/reset_prefix_cache",
            lora_paths=LoraPaths("/v1/load_lora_adapter", "/v1/unload_lora_adapter"),
            adapters=tuple(options.lora),
            stop_grace_s=2.0,
            simulated=True,
        )
