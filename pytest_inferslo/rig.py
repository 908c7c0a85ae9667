"""What a session keeps between its tests: the server that runs and the load generator. Closed once, at the end."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_inferslo import backends
from pytest_inferslo.backends.ignored import ignored_by
from pytest_inferslo.backends.ports import free_port
from pytest_inferslo.collection import BackendChoice
from pytest_inferslo.errors import BackendConfigError
from pytest_inferslo.loadgen import calibration, envelope
from pytest_inferslo.loadgen.offer import LoadGenerator
from pytest_inferslo.options import Options, address
from pytest_inferslo.storage.run_directory import make_base

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_inferslo.backends import (
        Backend,
        BackendOptions,
        Group,
        RunningGroup,
        RunningServer,
        StartProgress,
    )
    from pytest_inferslo.core.scenario import Scenario
    from pytest_inferslo.loadgen.envelope import Envelope

    OnProgress = Callable[[StartProgress], None]

_LOCK_WAIT_S = 600.0
_STARTED = time.strftime("%Y%m%dT%H%M%S")


def resolve_backend(config: pytest.Config, options: Options, choice: BackendChoice) -> Backend | Group:
    """The backend of `choice`, shipped or registered by a hook; raises BackendConfigError before anything starts."""
    return backends.resolve(choice.spec, backend_options(options, choice), _registered(config))


def _registered(config: pytest.Config) -> dict[str, Backend]:
    registered: dict[str, Backend] = {}
    for offered in config.hook.pytest_inferslo_backends(config=config):
        registered |= offered or {}
    return registered


def names_of(backend: Backend | Group) -> tuple[str, ...]:
    """By which a policy's overrides may call it, as `Policy.for_record` knows it: its kind, its name, its URL."""
    if isinstance(backend, backends.Group):
        return "group", backend.name
    url = getattr(backend, "url", None)
    return ("attached", backend.name, url) if url else ("launched", backend.name)


def known_names(config: pytest.Config, chosen: Sequence[Backend | Group]) -> list[str]:
    """All by which a policy may call a backend: kinds, shipped and registered names, and those of `chosen`."""
    mine = [name for backend in chosen for name in names_of(backend)]
    return list(
        dict.fromkeys([*mine, "launched", "attached", "group", *backends.shipped(), *_registered(config)])
    )


def check_launch(config: pytest.Config, options: Options, choice: BackendChoice) -> None:
    """Raises BackendConfigError for options with which `choice` could not be started, such as a missing model."""
    backend, mine = resolve_backend(config, options, choice), backend_options(options, choice)
    if not isinstance(backend, backends.Group):
        backend.launch(mine, free_port())
        return
    for member in backend.members:
        try:
            member.backend.launch(member.options, free_port())
        except BackendConfigError as error:
            raise BackendConfigError(f"{member.name}: {error}") from None


def useless_options(options: Options, chosen: Sequence[Backend | Group]) -> list[str]:
    """The options that were given and that no backend of the session has a use for, as `--flag`."""
    given = {
        "model": ("--model", options.model),
        "args": ("--backend-arg", options.backend_args),
        "env": ("--backend-env", options.backend_env),
        "lora": ("--lora", options.lora),
        "python": ("--backend-python", options.backend_python),
        "server_pid": ("--server-pid", options.server_pid),
        "api_key_env": ("--api-key-env", options.api_key_env),
    }
    named = [name for name, (_, value) in given.items() if value]
    unused = [ignored_by(backend, named) for backend in chosen]
    return [given[name][0] for name in named if unused and all(name in each for each in unused)]


def backend_options(options: Options, choice: BackendChoice) -> BackendOptions:
    """The session's options in the backend's words, with the engine arguments of this test variant appended."""
    chosen = backends.BackendOptions(
        model=options.model,
        args=(*options.backend_args, *choice.command_line()),
        env=options.backend_env,
        lora=options.lora,
        python=options.backend_python,
        server_pid=options.server_pid,
        api_key_env=options.api_key_env,
        log_path=options.directory / "servers" / f"{_file_name(choice.label)}-{os.getpid()}-{_STARTED}.log",
    )
    if options.start_timeout_s is None:
        return chosen
    return replace(chosen, start_timeout_s=options.start_timeout_s)


class BackendUnderTest:
    """One `--backend` (with one set of engine arguments); `start()` gives its ready server."""

    def __init__(self, rig: Rig, choice: BackendChoice) -> None:
        self._rig = rig
        self.choice = choice

    @property
    def name(self) -> str:
        """What `--backend` said; `label` adds the engine arguments."""
        return self.choice.spec

    @property
    def label(self) -> str:
        return self.choice.label

    @property
    def names(self) -> tuple[str, ...]:
        """By which a policy's overrides may call it."""
        return self._rig.names(self.choice)

    @property
    def endpoint_names(self) -> tuple[str, ...] | None:
        """By which `within endpoint:NAME` may call its parts; None where only the running server tells."""
        return self._rig.endpoint_names(self.choice)

    def start(self, on_progress: OnProgress | None = None) -> RunningServer | RunningGroup:
        """The running server, started if need be. Raises BackendStartError with the tail of its log."""
        return self._rig.serve(self.choice, on_progress)

    def __repr__(self) -> str:
        return f"<backend {self.label}>"


class Rig:
    """The server and the load generator of one pytest session, and the host's lock while they exist."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self.options = options
        self._config = config
        self._open = contextlib.ExitStack()
        self._fleet: backends.Fleet | None = None
        self._generator: LoadGenerator | None = None
        self._envelope: Envelope | None = None
        self._host_taken = False

    def backend(self, choice: BackendChoice) -> BackendUnderTest:
        return BackendUnderTest(self, choice)

    def names(self, choice: BackendChoice) -> tuple[str, ...]:
        return names_of(resolve_backend(self._config, self.options, choice))

    def endpoint_names(self, choice: BackendChoice) -> tuple[str, ...] | None:
        chosen = resolve_backend(self._config, self.options, choice)
        return tuple(member.name for member in chosen.members) if isinstance(chosen, backends.Group) else None

    def serve(self, choice: BackendChoice, on_progress: OnProgress | None) -> RunningServer | RunningGroup:
        self._take_host(on_progress)
        if self._fleet is None:
            self._fleet = self._open.enter_context(backends.Fleet())
        options = backend_options(self.options, choice)
        make_base(self.options.directory)
        options.log_path.parent.mkdir(parents=True, exist_ok=True)
        return self._fleet.server(resolve_backend(self._config, self.options, choice), options, on_progress)

    def check_envelope(self, scenario: Scenario, on_progress: OnProgress | None) -> None:
        """Raises ScenarioError when the load is beyond what this machine's workers were measured to offer.

        Measures them first if that was never done here (some eight seconds), with the host to ourselves.
        """
        self._take_host(on_progress)
        if self._envelope is None:
            if on_progress is not None and envelope.cached() is None:
                on_progress(
                    backends.StartProgress(
                        0.0, "measuring what this machine can offer", "some eight seconds, once"
                    )
                )
            self._envelope = calibration.ensure()
        self._envelope.check(scenario, self.options.workers, self.options.expect_workers)

    def _take_host(self, on_progress: OnProgress | None) -> None:
        """One measured server and one load at a time: the lock is held until the session's end."""
        if not self._host_taken:
            begun = time.monotonic()

            def tell(who: str) -> None:
                if on_progress is not None:
                    waited = time.monotonic() - begun
                    on_progress(backends.StartProgress(waited, "another load test runs on this host", who))

            self._open.enter_context(backends.exclusive(wait_s=_LOCK_WAIT_S, on_wait=tell))
            self._host_taken = True

    def before_the_load(self) -> str:
        """What is waited for between a ready server and the first request."""
        if self.options.expect_workers:
            return f"waiting for {self.options.expect_workers} workers of other hosts at {self.options.bind}"
        return "watching the server at rest, and starting the load generator"

    def load_generator(self) -> LoadGenerator:
        """The master and its workers; one set serves the whole session."""
        if self._generator is None:
            host, port = address(self.options.bind) if self.options.bind else ("127.0.0.1", 0)
            self._generator = self._open.enter_context(
                LoadGenerator(
                    self.options.directory / "loadgen",
                    workers=self.options.workers,
                    expect_workers=self.options.expect_workers,
                    bind=host,
                    port=port,
                )
            )
        return self._generator

    def close(self) -> list[str]:
        """Stops all of it; returns what is worth saying about that, such as files that a server left behind."""
        self._open.close()
        return self._fleet.notes if self._fleet is not None else []


def _file_name(label: str) -> str:
    return (
        re.sub(r"[^A-Za-z0-9_.=-]+", "-", Path(label).name if "://" not in label else label).strip("-")
        or "server"
    )
