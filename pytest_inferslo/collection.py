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

from pytest_inferslo.errors import InfersloError, UsageError
from pytest_inferslo.options import Options, on_command_line, read_options

if TYPE_CHECKING:
    from pytest_inferslo.core.policy import Policy

OPTIONS = pytest.StashKey[Options]()
POLICIES = pytest.StashKey["tuple[Policy, ...]"]()
#: What each policy file names: {file: {policy: its name, scenarios: that must be evaluated, overridden: scenarios with
#: promises of their own, strangers: backends with promises of their own that nobody knows}}.
NAMED = pytest.StashKey["dict[str, dict[str, Any]]"]()
#: What the end of the session should say about the options.
REMARKS = pytest.StashKey[list[str]]()


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
            if not axes[name]:
                raise pytest.UsageError(
                    f"{metafunc.definition.nodeid}: engine_args({name}=[]) names no value"
                )
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def check_before_any_server(config: pytest.Config, items: Sequence[pytest.Item]) -> list[str]:
    """Loads the policies of all items and tries what can be tried of all backends without a start.

    Returns what the user should know before the first load. `pytest.UsageError` carries every problem.
    """
    from pytest_inferslo.core.policy import misnamed_backends

    problems: list[str] = []
    known = _check_backends(config, items, problems)
    loaded = _load_policies(options_of(config), items, problems)
    for policy in loaded:
        problems += misnamed_backends(policy, known)
    _check_baseline(config, loaded, problems)
    known_before = [] if config.option.collectonly else _foresee_no_baseline(config, items, problems)
    if problems:
        raise pytest.UsageError("\n".join(dict.fromkeys(problems)))
    config.stash[NAMED] = {
        policy.file: {
            "policy": policy.name,
            "scenarios": list(policy.scenarios),
            "overridden": [name for kind, name in policy.overrides if kind == "scenario"],
            "strangers": [name for kind, name in policy.overrides if kind == "backend" and name not in known],
        }
        for policy in loaded
    }
    return known_before


def _check_backends(config: pytest.Config, items: Sequence[pytest.Item], problems: list[str]) -> list[str]:
    """The names by which policies may call a backend: those of the session, and all that are shipped or registered."""
    from pytest_inferslo import rig

    options = options_of(config)
    chosen = []
    for spec in options.backends:
        try:
            chosen.append(rig.resolve_backend(config, options, BackendChoice(spec)))
        except UsageError as error:
            problems.append(str(error))
    if not problems:
        for flag in rig.useless_options(options, chosen):
            told = f"{flag} has no effect on --backend={', '.join(options.backends)}"
            if on_command_line(config, flag):
                problems.append(f"{told}: leave it out")
            else:
                config.stash.setdefault(REMARKS, []).append(f"the configured {told}")
    if not problems and not config.option.collectonly:  # to list tests needs no engine
        for choice in {choice.label: choice for item in items for choice in _choices(item, options)}.values():
            try:
                rig.check_launch(config, options, choice)
            except UsageError as error:
                problems.append(str(error))
    return rig.known_names(config, chosen)


def _choices(item: pytest.Item, options: Options) -> Sequence[BackendChoice]:
    callspec = getattr(item, "callspec", None)
    chosen = callspec.params.get("backend") if callspec is not None else None
    return [chosen if isinstance(chosen, BackendChoice) else BackendChoice(options.backends[0])]


def _load_policies(options: Options, items: Sequence[pytest.Item], problems: list[str]) -> list[Policy]:
    """Each file once; every item's own are put into its stash."""
    from pytest_inferslo.policies import load_policy

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
    return list({policy.file: policy for policy in loaded.values() if policy is not None}.values())


def _check_baseline(config: pytest.Config, policies: Sequence[Policy], problems: list[str]) -> None:
    options = options_of(config)
    named = options.baseline
    compared = any(policy.refers_to("baseline") for policy in policies)
    if options.record_baseline and not compared:
        remark = "--inferslo-record-baseline had no effect: no policy of these tests compares with a baseline"
        config.stash.setdefault(REMARKS, []).append(remark)
    if named is None:
        return
    from pytest_inferslo.storage.run_directory import RunDirectory

    try:
        RunDirectory.open(Path(named))
    except InfersloError as error:
        problems.append(f"--inferslo-baseline={named}: {error}")
        return
    if not compared:
        remark = (
            f"--inferslo-baseline={named} had no effect: no policy of these tests compares with a baseline"
        )
        config.stash.setdefault(REMARKS, []).append(remark)


def _foresee_no_baseline(
    config: pytest.Config, items: Sequence[pytest.Item], problems: list[str]
) -> list[str]:
    """What comes of promises that need a baseline where none is named; those that would decide are problems.

    A load may have another name than its test, and a test may skip itself: what is not sure is left to `offer_load`.
    """
    from pytest_inferslo import baselines, rig
    from pytest_inferslo.session import scenario_name

    options = options_of(config)
    if problems or options.baseline is not None:
        return []
    met: list[Policy] = []
    for item in items:
        if any(item.get_closest_marker(name) for name in ("skip", "skipif")):
            continue
        for choice in _choices(item, options):
            names = rig.names_of(rig.resolve_backend(config, options, choice))
            for policy in item.stash[POLICIES]:
                met.append(policy.resolved(scenario_name(item), *names))
                renamed = [name for kind, name in policy.overrides if kind == "scenario"]
                sure = all(baselines.uncomparable(policy.resolved(name, *names)) for name in renamed)
                if not options.record_baseline and sure:
                    problems += baselines.uncomparable(met[-1])
    if problems:
        problems[:] = [*dict.fromkeys(problems), baselines.HINT]
    return baselines.recording(met) if options.record_baseline else baselines.left_out(met)


def refuse_unmeasured(items: Sequence[pytest.Item]) -> None:
    """Raises `pytest.UsageError` for a test that is marked to keep promises and offers no load to judge them by."""
    idle = [
        item.nodeid
        for item in items
        if "offer_load" not in getattr(item, "fixturenames", ())
        and any(mark.name in ("slo", "engine_args") for mark in item.own_markers)
    ]
    if idle:
        raise pytest.UsageError(
            "\n".join(
                f"{nodeid}: is marked with slo or engine_args and takes no offer_load" for nodeid in idle
            )
        )


def _marked_policies(item: pytest.Item, problems: list[str]) -> Sequence[str]:
    marks = list(item.iter_markers("slo"))
    names = [name for mark in marks for name in mark.args]
    if any(mark.kwargs for mark in marks):
        problems.append(f"{item.nodeid}: slo() takes policy names or paths, and no keywords")
    if not names:
        problems.append(
            f'{item.nodeid}: offers a load but promises nothing: mark it with @pytest.mark.slo("policy") '
            "or give --slo-policy"
        )
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        problems.append(f"{item.nodeid}: slo() takes policy names or paths, not {wrong[0]!r}")
    return [name for name in names if isinstance(name, str)]
