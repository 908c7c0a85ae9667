"""Options that mean nothing to a backend: given to it alone, they would be taken without a word.

A shipped backend names the fields of BackendOptions that it has no use for as `ignores`; one of another package may.
"""

from __future__ import annotations

from collections.abc import Iterable

from pytest_inferslo.backends.group import Group
from pytest_inferslo.backends.protocol import Backend

#: What only a server that runs already needs.
ATTACHED_ONLY = frozenset(("server_pid", "headers", "ca_file", "verify_tls"))
#: What only a server that is started needs.
LAUNCHED_ONLY = frozenset(("env", "python", "command", "cwd", "lora_runtime"))


def ignored_by(backend: Backend | Group, given: Iterable[str]) -> list[str]:
    """Those of the fields `given` for the whole of `--backend` that have no effect on it."""
    if isinstance(backend, Group):  # its members say themselves which process is whose
        members = [ignored_by(member.backend, given) for member in backend.members]
        return [name for name in given if name == "server_pid" or all(name in each for each in members)]
    ignores: Iterable[str] = getattr(backend, "ignores", ())
    return [name for name in given if name in ignores]
