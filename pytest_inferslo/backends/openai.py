"""A server that runs already, by its URL: nothing is started and nothing stopped."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from pytest_inferslo.backends.ignored import LAUNCHED_ONLY
from pytest_inferslo.backends.protocol import BackendOptions, Launch
from pytest_inferslo.backends.supervisor import read_process
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.errors import BackendConfigError


class OpenAI:
    """`--backend=https://host/prefix`: any OpenAI-compatible server.

    A trailing `/v1` is the API's, not the prefix's.
    """

    ignores = LAUNCHED_ONLY

    def __init__(self, url: str) -> None:
        self.url = base_url(url)
        self.name = urlsplit(self.url).netloc

    def launch(self, options: BackendOptions, port: int) -> Launch:
        if options.server_pid is not None and read_process(options.server_pid) is None:
            raise BackendConfigError(
                f"--server-pid={options.server_pid}: there is no such process on this host"
            )
        if options.api_key_env and not os.environ.get(options.api_key_env):
            raise BackendConfigError(
                f"--api-key-env={options.api_key_env}: this environment variable is not set"
            )
        if options.ca_file and not Path(options.ca_file).is_file():
            raise BackendConfigError(f"no such file of certificates: {options.ca_file}")
        if options.lora or options.args:
            raise BackendConfigError(
                f"{self.url} runs already: server arguments and adapters cannot be given to it"
            )
        endpoint = Endpoint(
            self.url,
            options.model or "",
            headers=dict(options.headers),
            api_key_env=options.api_key_env,
            verify_tls=options.verify_tls,
            ca_file=options.ca_file,
        )
        return Launch(
            command=(),
            endpoints=(endpoint,),
            version_path="/version",
            metrics_url=f"{self.url}/metrics",
            reset_cache_path=None,
        )


def base_url(url: str) -> str:
    """The URL below which `/v1/...` is found.

    Raises BackendConfigError for one that cannot be used as it is.
    """
    parts = urlsplit(url)
    try:
        port_is_wrong = parts.port == 0
    except ValueError:
        port_is_wrong = True
    if parts.scheme not in ("http", "https") or not parts.hostname or port_is_wrong:
        raise BackendConfigError(f"--backend={url}: expected http://HOST:PORT or https://HOST/PREFIX")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BackendConfigError(
            f"--backend: {parts.scheme}://{parts.hostname}: leave user, query and fragment out of the URL; a "
            "key goes into an environment variable named by --api-key-env"
        )
    path = parts.path.rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path.removesuffix("/v1"), "", ""))
