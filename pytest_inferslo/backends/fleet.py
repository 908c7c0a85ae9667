"""The servers of one pytest session.

At most one runs at a time, and it is kept while the same one is asked for.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from pytest_inferslo.backends.group import Group, RunningGroup
from pytest_inferslo.backends.protocol import Backend, BackendOptions
from pytest_inferslo.backends.readiness import OnProgress
from pytest_inferslo.backends.server import RunningServer
from pytest_inferslo.backends.starting import start
from pytest_inferslo.errors import BackendDiedError


class Fleet:
    """A context manager; leaving it stops what runs.

    Two servers at a time would share the machine that is being measured, so another backend or other options
    stop the one that runs before the next one starts.
    """

    def __init__(self) -> None:
        self.notes: list[
            str
        ] = []  # for the end of the session: what servers left behind, which died in between
        self._running: RunningServer | RunningGroup | None = None
        self._identity: Any = None

    def server(
        self, backend: Backend | Group, options: BackendOptions, on_progress: OnProgress | None = None
    ) -> RunningServer | RunningGroup:
        """A ready server for these options: the one that runs, its prefix cache emptied, or a fresh one.

        One that died since it was last asked for is replaced. Raises what `start` raises.
        """
        wanted = _identity(backend, options)
        if self._running is not None and self._identity == wanted:
            try:
                self._running.reset_between_scenarios()
                return self._running
            except BackendDiedError as error:
                self.notes.append(f"started anew, since it died between two scenarios: {error}")
        self.stop()
        self._running, self._identity = start(backend, options, on_progress), wanted
        return self._running

    def stop(self) -> None:
        """Stops what runs, if anything does."""
        running, self._running, self._identity = self._running, None, None
        if running is not None:
            running.stop()
            self.notes += (f"{running.name}: {note}" for note in running.notes)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _identity(backend: Backend | Group, options: BackendOptions) -> Any:
    if isinstance(backend, Group):
        return tuple(
            (member.name, member.weight, _identity(member.backend, member.options))
            for member in backend.members
        )
    return (type(backend), backend.name, getattr(backend, "url", None), options.identity())
