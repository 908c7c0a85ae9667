"""From the word after `--backend` to a backend."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path

from pytest_inferslo.backends.group import Group
from pytest_inferslo.backends.group_file import read_group
from pytest_inferslo.backends.llamacpp import LlamaCpp
from pytest_inferslo.backends.openai import OpenAI
from pytest_inferslo.backends.protocol import Backend, BackendOptions
from pytest_inferslo.backends.sglang import SGLang
from pytest_inferslo.backends.sim import Simulator
from pytest_inferslo.backends.triton import Triton
from pytest_inferslo.backends.trtllm import TensorRTLLM
from pytest_inferslo.backends.vllm import Vllm
from pytest_inferslo.errors import BackendConfigError

_SHIPPED: Mapping[str, Callable[[], Backend]] = {
    "sim": Simulator,
    "vllm": Vllm,
    "trtllm": TensorRTLLM,
    "triton": Triton,
    "sglang": SGLang,
    "llamacpp": LlamaCpp,
}


def shipped() -> tuple[str, ...]:
    """The names of the backends of this package."""
    return tuple(_SHIPPED)


def resolve(
    spec: str, options: BackendOptions, registered: Mapping[str, Backend] | None = None
) -> Backend | Group:
    """The backend that `spec` names: a shipped or registered one, a URL, or the path of a group file.

    `registered` comes from the hook `pytest_inferslo_backends`. Raises BackendConfigError for an unknown name
    (with the nearest known ones), a name registered over a shipped one, or a faulty group file.
    """
    registered = dict(registered or {})
    if taken := sorted(set(registered) & set(_SHIPPED)):
        raise BackendConfigError(
            f"pytest_inferslo_backends registers {taken[0]!r}, which this package ships itself"
        )
    if spec in registered:
        return registered[spec]
    if spec in _SHIPPED:
        return _SHIPPED[spec]()
    if "://" in spec:
        return OpenAI(spec)
    if Path(spec).suffix in (".yaml", ".yml"):
        return read_group(Path(spec), options, lambda name, own: resolve(name, own, registered))
    known = [*_SHIPPED, *registered]
    near = difflib.get_close_matches(spec, known, n=2)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise BackendConfigError(
        f"--backend={spec}: no such backend. {hint}Known are {', '.join(known)}, a URL "
        "(http://HOST:PORT) and the path of a .yaml file that names several"
    )
