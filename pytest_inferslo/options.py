"""Command-line options and their ini equivalents, read once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_inferslo.option_table import OPTIONS, Option


@dataclass(frozen=True)
class Options:
    """What the user asked for; one per session."""

    backends: tuple[str, ...]
    model: str | None
    backend_args: tuple[str, ...]
    backend_env: dict[str, str]
    lora: dict[str, str]
    backend_python: str | None
    server_pid: int | None
    start_timeout_s: float | None
    api_key_env: str | None
    policies: tuple[str, ...]
    baseline: str | None
    record_baseline: bool
    directory: Path
    workers: int
    expect_workers: int
    bind: str | None
    pacing: str
    load_seconds: float | None
    inconclusive: str
    rootdir: Path


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("inferslo", "SLO gates for inference servers")
    for option in OPTIONS:
        kwargs: dict[str, Any] = {
            "dest": option.ini,
            "help": option.help,
            "metavar": option.metavar,
            "default": None,
        }
        if option.kind == "flag":
            group.addoption(option.flag, dest=option.ini, help=option.help, action="store_true", default=None)
            continue
        if option.kind == "append":
            kwargs["action"] = "append"
        if option.choices:
            kwargs["choices"] = option.choices
            del kwargs["metavar"]
        group.addoption(option.flag, **kwargs)
        if option.kind == "append":
            parser.addini(option.ini, option.help, type="args", default=[])
        else:
            parser.addini(option.ini, option.help, type="string", default=None)


def read_options(config: pytest.Config) -> Options:
    """Command line first, then ini, then the default. Raises `pytest.UsageError` naming the option and the value."""
    values = {option.ini: _value(config, option) for option in OPTIONS}
    if not values["inferslo_expect_workers"] and not on_command_line(config, "--inferslo-bind"):
        values["inferslo_bind"] = None  # a configured address waits for a session with workers of other hosts
    _check_workers(
        values["inferslo_workers"], values["inferslo_expect_workers"], values["inferslo_bind"] or ""
    )
    if values["inferslo_record_baseline"] and on_command_line(config, "--inferslo-baseline"):
        raise pytest.UsageError(
            "--inferslo-record-baseline and --inferslo-baseline exclude each other: leave one out"
        )
    return Options(
        backends=tuple(values["inferslo_backend"]) or ("sim",),
        model=values["inferslo_model"],
        backend_args=tuple(values["inferslo_backend_args"]),
        backend_env=_pairs("--backend-env", values["inferslo_backend_env"], "KEY=VALUE"),
        lora=_pairs("--lora", values["inferslo_lora"], "NAME=PATH"),
        backend_python=values["inferslo_backend_python"],
        server_pid=values["inferslo_server_pid"],
        start_timeout_s=values["inferslo_backend_start_timeout"],
        api_key_env=values["inferslo_api_key_env"],
        policies=tuple(dict.fromkeys(values["inferslo_slo_policy"])),
        baseline=None if values["inferslo_record_baseline"] else _pinned(values["inferslo_baseline"]),
        record_baseline=values["inferslo_record_baseline"],
        directory=Path(values["inferslo_dir"]),
        workers=values["inferslo_workers"],
        expect_workers=values["inferslo_expect_workers"],
        bind=values["inferslo_bind"],
        pacing=values["inferslo_pacing"],
        load_seconds=values["inferslo_load_seconds"],
        inconclusive=values["inferslo_inconclusive"],
        rootdir=config.rootpath,
    )


def _pinned(run: str | None) -> str | None:
    """What a link such as `.inferslo/latest` names now: the session's own runs move it."""
    return os.path.realpath(run) if run is not None and os.path.lexists(run) else run


def on_command_line(config: pytest.Config, flag: str) -> bool:
    """Whether an option was given for this session, rather than configured for all of them."""
    return any(config.getoption(option.ini) is not None for option in OPTIONS if option.flag == flag)


def _check_workers(local: int, expected: int, bind: str) -> None:
    if not local + expected:
        raise pytest.UsageError(
            "--inferslo-workers=0 needs --inferslo-expect-workers: somebody must offer the load"
        )
    if expected and not bind:
        raise pytest.UsageError(
            "--inferslo-expect-workers needs --inferslo-bind=ADDR:PORT, where workers of other hosts connect to"
        )
    if bind and not expected:
        raise pytest.UsageError(
            f"--inferslo-bind={bind} has no effect: it is where the workers of --inferslo-expect-workers connect to"
        )
    if bind:
        address(bind)


def address(bind: str) -> tuple[str, int]:
    """Host and port of `--inferslo-bind`; raises `pytest.UsageError` for what is none."""
    host, colon, port = bind.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise pytest.UsageError(f"--inferslo-bind={bind!r}: expected ADDR:PORT, as in 10.0.0.5:5557")
    return host.strip("[]"), int(port)


def _value(config: pytest.Config, option: Option) -> Any:
    given = config.getoption(option.ini)
    place = option.flag
    if option.kind == "flag":
        return bool(given)
    if given == "" or (isinstance(given, list) and "" in given):
        raise pytest.UsageError(f"{place} is empty: give it a value, or leave it out")
    if given is None:
        given = config.getini(option.ini)
        place = option.ini
    if given in (None, "", []):
        return option.default if option.kind != "append" else []
    if option.kind in ("integer", "number"):
        return _number(place, given, option)
    if option.choices and given not in option.choices:
        raise pytest.UsageError(f"{place}={given!r}: expected one of {', '.join(option.choices)}")
    return given


def _number(place: str, given: Any, option: Option) -> float | int:
    try:
        number = int(given) if option.kind == "integer" else float(given)
    except ValueError:
        raise pytest.UsageError(f"{place}={given!r}: expected a number") from None
    least = option.least if option.kind == "integer" else 0.001
    if not least <= number < 1e9:
        raise pytest.UsageError(f"{place}={given!r}: expected a number of at least {least}")
    return number


def _pairs(flag: str, given: list[str], form: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise pytest.UsageError(f"{flag}={word!r}: expected {form}")
        if pairs.get(name, value) != value:
            raise pytest.UsageError(f"{flag}: {name} is given twice, as {pairs[name]!r} and as {value!r}")
        pairs[name] = value
    return pairs
