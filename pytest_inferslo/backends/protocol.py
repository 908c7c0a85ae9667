"""What an adapter is, what it is given, and what it answers: the words of all backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pytest_inferslo.core.endpoint import Endpoint


@dataclass(frozen=True)
class BackendOptions:
    """What the user asked for, the same words for every backend.

    `model`: folder or name that the server loads (for a URL: the name to ask for).
    `args`: passed to the server as they are. `env`: added to the environment it inherits.
    `python`: interpreter of the virtual environment that holds the engine; default: the one that runs pytest.
    `command`: replaces the program (and its leading words) that the adapter would choose.
    `lora`: adapters loaded at the start, name to folder; `lora_runtime`: allow loading and unloading later.
    `server_pid`: the process whose CPU and memory are the server's, for one that runs already.
    `api_key_env`: name of the environment variable that holds the key; the key itself never stands here.
    `start_timeout_s`: seconds from the start to the first completion.
    `log_path`: where the server's output goes; it is appended to.
    """

    model: str | None = None
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    command: Sequence[str] = ()
    cwd: Path | None = None
    lora: Mapping[str, str] = field(default_factory=dict)
    lora_runtime: bool = False
    server_pid: int | None = None
    api_key_env: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    ca_file: str | None = None
    verify_tls: bool = True
    start_timeout_s: float = 600.0
    log_path: Path = Path("server.log")

    def identity(self) -> tuple[Any, ...]:
        """Equal for options that want the same server: all but where its log goes and how long to wait."""
        return (
            self.model, tuple(self.args), tuple(sorted(self.env.items())), self.python, tuple(self.command),
            self.cwd, tuple(sorted(self.lora.items())), self.lora_runtime, self.server_pid, self.api_key_env,
            tuple(sorted(self.headers.items())), self.ca_file, self.verify_tls,
        )  # fmt: skip


@dataclass(frozen=True)
class LoraPaths:
    """Where a server loads and unloads adapters at run time (`POST` of `lora_name` and `lora_path`)."""

    load: str
    unload: str


@dataclass(frozen=True)
class Launch:
    """One server: how it is started and where it answers.

    `command` is empty for a server that runs already: nothing is started, nothing stopped.
    An endpoint whose `model` is "" takes the first base model that the server lists.
    `health_path` and `models_path` are below the endpoint's URL; None when the server has no such page.
    `version_path` answers JSON with a key `version` (or, for Triton, `version` too). `metrics_url` is where
    Prometheus text is looked for; it is dropped when the page answers anything else.
    `reset_cache_path` takes a `POST` that empties the prefix cache.
    `stop_grace_s`: from SIGTERM to SIGKILL, for a server that does not end.
    """

    command: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    health_path: str | None = "/health"
    models_path: str | None = "/v1/models"
    version_path: str | None = None
    version: str | None = None
    metrics_url: str | None = None
    reset_cache_path: str | None = None
    lora_paths: LoraPaths | None = None
    adapters: tuple[str, ...] = ()
    stop_grace_s: float = 5.0
    simulated: bool = False


class Backend(Protocol):
    """A kind of server. `name` is what `--backend` takes and what test ids and records show.

    It may have `ignores` too: the fields of BackendOptions that mean nothing to it. To give it one is refused then.
    """

    @property
    def name(self) -> str: ...

    def launch(self, options: BackendOptions, port: int) -> Launch:
        """The server that `options` ask for, to listen on 127.0.0.1:`port`.

        Starts nothing. Raises BackendConfigError for options that this backend cannot serve.
        """
        ...


@dataclass(frozen=True)
class StartProgress:
    """`step`: what is waited for now; `detail`: what was seen last, for one line on a terminal."""

    elapsed_s: float
    step: str
    detail: str
