"""What is settled while pytest collects: which backends each test runs on, and that every policy can be trusted.

Nothing has been started yet, so everything that can be refused is refused here.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_inferslo.errors import UsageError
from pytest_inferslo.options import Options, read_options

if TYPE_CHECKING:
    from pytest_inferslo.core.policy import Policy

OPTIONS = pytest.StashKey[Options]()
POLICIES = pytest.StashKey["tuple[Policy, ...]"]()
#: The scenarios that each policy file names, with the policy's own name: {file: (name, scenarios)}.
REQUIRED = pytest.StashKey["dict[str, tuple[str, list[str]]]"]()


@dataclass(frozen=True)
class BackendChoice:
    """One backend with the engine arguments of one test variant; the value behind a test id like `[vllm]`."""

    spec: str
    engine_args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        arguments = [f"{name}={value}" for name, value in self.engine_args.items()]
        return "-".join([self.spec, *arguments])

    def command_line(self) -> list[str]:
        """The engine arguments as flags: `max_num_batched_tokens=2048` is `--max-num-batched-tokens 2048`."""
        words = []
        for name, value in self.engine_args.items():
            flag = "--" + name.replace("_", "-")
            if value is True:
                words.append(flag)
            elif value is False or value is None:
                continue
            else:
                words += [flag, str(value)]
        return words


def options_of(config: pytest.Config) -> Options:
    if OPTIONS not in config.stash:
        config.stash[OPTIONS] = read_options(config)
    return config.stash[OPTIONS]


def parametrize_backends(metafunc: pytest.Metafunc) -> None:
    """Each `--backend` times each combination of `engine_args`; ids only where there is a choice."""
    backends = options_of(metafunc.config).backends
    sweeps = _sweeps(metafunc)
    choices = [BackendChoice(spec, arguments) for spec in backends for arguments in sweeps]
    if len(choices) > 1 or choices[0].engine_args:
        ids = [choice.label for choice in choices]
        metafunc.parametrize("backend", choices, ids=ids, indirect=True, scope="session")


def _sweeps(metafunc: pytest.Metafunc) -> list[dict[str, Any]]:
    axes: dict[str, Sequence[Any]] = {}
    for mark in metafunc.definition.iter_markers("engine_args"):
        if mark.args or not mark.kwargs:
            raise pytest.UsageError(
                f"{metafunc.definition.nodeid}: engine_args takes keywords only, as in "
                "engine_args(max_num_batched_tokens=[2048, 4096])"
            )
        for name, values in mark.kwargs.items():
            axes.setdefault(name, values if isinstance(values, (list, tuple)) else [values])
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def check_before_any_server(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Loads the policies of all items and resolves all backends; `pytest.UsageError` carries every problem."""
    from pytest_inferslo.policies import load_policy
    from pytest_inferslo.rig import resolve_backend

    options = options_of(config)
    problems: list[str] = []
    for spec in options.backends:
        try:
            resolve_backend(config, options, BackendChoice(spec))
        except UsageError as error:
            problems.append(str(error))
    loaded: dict[tuple[str, Path], Policy | None] = {}  # a name may mean another file in another folder
    for item in items:
        near = item.path.parent
        names = options.policies or _marked_policies(item, problems)
        for name in names:
            if (name, near) in loaded:
                continue
            try:
                loaded[name, near] = load_policy(name, rootdir=options.rootdir, near=near)
            except UsageError as error:
                loaded[name, near] = None
                problems.append(str(error))
        mine = [policy for name in names if (policy := loaded[name, near]) is not None]
        item.stash[POLICIES] = tuple({policy.file: policy for policy in mine}.values())
    if problems:
        raise pytest.UsageError("\n".join(dict.fromkeys(problems)))
    config.stash[REQUIRED] = {
        policy.file: (policy.name, list(policy.scenarios))
        for policy in loaded.values()
        if policy is not None and policy.scenarios
    }


def _marked_policies(item: pytest.Item, problems: list[str]) -> Sequence[str]:
    names = [name for mark in item.iter_markers("slo") for name in mark.args]
    if not names:
        problems.append(
            f'{item.nodeid}: offers a load but promises nothing: mark it with @pytest.mark.slo("policy") '
            "or give --slo-policy"
        )
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        problems.append(f"{item.nodeid}: slo() takes policy names or paths, not {wrong[0]!r}")
    return [name for name in names if isinstance(name, str)]
