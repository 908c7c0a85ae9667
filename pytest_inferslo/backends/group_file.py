"""Reads the YAML file of a group (its shape stands in group.py) and refuses what it does not understand."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_inferslo.backends.group import Group, Member
from pytest_inferslo.backends.ignored import ignored_by
from pytest_inferslo.backends.openai import OpenAI
from pytest_inferslo.backends.protocol import Backend, BackendOptions
from pytest_inferslo.errors import BackendConfigError

Resolve = Callable[[str, BackendOptions], "Backend | Group"]

_TEXT, _NUMBER, _COUNT, _LIST, _MAP, _FLAG = (
    "text",
    "a number",
    "a whole number",
    "a list",
    "a mapping",
    "true or false",
)
_KEYS = {
    "backend": _TEXT, "url": _TEXT, "name": _TEXT, "weight": _NUMBER, "replicas": _COUNT, "model": _TEXT,
    "args": _LIST, "env": _MAP, "python": _TEXT, "command": _LIST, "cwd": _TEXT, "lora": _MAP,
    "lora_runtime": _FLAG, "server_pid": _COUNT, "api_key_env": _TEXT, "headers": _MAP,
    "ca_file": _TEXT, "verify_tls": _FLAG,
}  # fmt: skip
_TYPES: dict[str, tuple[type, ...]] = {
    _TEXT: (str,), _NUMBER: (int, float), _COUNT: (int,), _LIST: (list,), _MAP: (dict,), _FLAG: (bool,),
}  # fmt: skip


def read_group(path: Path, options: BackendOptions, resolve: Resolve) -> Group:
    """Members inherit `options` where they say nothing themselves.

    Raises BackendConfigError with file and line.
    """
    entries = _load(path)
    members: list[Member] = []
    for line, entry in entries:
        _check(path, line, entry)
        members += _members(path, line, entry, options, resolve)
    names = [member.name for member in members]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BackendConfigError(f"{path}: two backends are named {twice!r}: give each a `name` of its own")
    if not any(member.weight > 0 for member in members):
        raise BackendConfigError(f"{path}: every weight is 0, so nobody would get a request")
    return Group(path.stem, tuple(members))


def _load(path: Path) -> list[tuple[int, dict[str, Any]]]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        document = YAML(typ="rt").load(path.read_text())
    except OSError as error:
        raise BackendConfigError(f"--backend={path}: cannot read this group file: {error.strerror}") from None
    except YAMLError as error:
        raise BackendConfigError(f"--backend={path}: not YAML: {error}") from None
    entries = document.get("backends") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise BackendConfigError(f"{path}: expected a list under the key `backends`, one entry per server")
    if unknown := [key for key in document if key != "backends"]:
        raise BackendConfigError(f"{path}: unknown key {unknown[0]!r} beside `backends`")
    marks: Any = entries  # ruamel's lists know where they stand
    return [(marks.lc.data[index][0] + 1, entry) for index, entry in enumerate(entries)]


def _check(path: Path, line: int, entry: Any) -> None:
    if not isinstance(entry, dict):
        raise BackendConfigError(f"{path}:{line}: expected a mapping with `backend` or `url`")
    for key, value in entry.items():
        where = f"{path}:{entry.lc.key(key)[0] + 1}"  # type: ignore[attr-defined]
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, n=1)
            raise BackendConfigError(
                f"{where}: unknown key {key!r}{f', did you mean {near[0]}?' if near else ''}"
            )
        kind = _KEYS[key]
        if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != _FLAG):
            raise BackendConfigError(f"{where}: {key} is {value!r}, expected {kind}")
    if ("backend" in entry) == ("url" in entry):
        raise BackendConfigError(f"{path}:{line}: expected either `backend` or `url`")
    if not entry.get("weight", 1) >= 0 or entry.get("weight") == float("inf"):
        raise BackendConfigError(f"{path}:{line}: weight is {entry['weight']}, expected at least 0")
    if not 1 <= entry.get("replicas", 1) <= 256:
        raise BackendConfigError(f"{path}:{line}: replicas is {entry['replicas']}, expected 1 to 256")
    if "url" in entry and entry.get("replicas", 1) != 1:
        raise BackendConfigError(f"{path}:{line}: a URL is one server; list each replica's URL instead")


def _members(
    path: Path, line: int, entry: Mapping[str, Any], options: BackendOptions, resolve: Resolve
) -> list[Member]:
    replicas = entry.get("replicas", 1)
    weight = float(entry.get("weight", 1.0)) / replicas
    is_url = "url" in entry
    base = str(entry.get("name") or (OpenAI(entry["url"]).name if is_url else Path(entry["backend"]).stem))
    members = []
    for replica in range(replicas):
        own = _options(entry, options, is_url, replica)
        backend = OpenAI(entry["url"]) if is_url else resolve(entry["backend"], own)
        if isinstance(backend, Group):
            raise BackendConfigError(f"{path}:{line}: a group cannot hold another group ({entry['backend']})")
        if useless := ignored_by(backend, entry):
            raise BackendConfigError(f"{path}:{line}: {useless[0]} has no effect on {base}: leave it out")
        members.append(Member(f"{base}-{replica}" if replicas > 1 else base, backend, own, weight))
    return members


def _options(entry: Mapping[str, Any], options: BackendOptions, is_url: bool, replica: int) -> BackendOptions:
    def numbered(text: Any) -> str:
        return str(text).replace("{replica}", str(replica))

    given: dict[str, Any] = {
        key: value for key, value in entry.items() if key in BackendOptions.__dataclass_fields__
    }
    for key in ("args", "command"):
        if key in given:
            given[key] = tuple(numbered(word) for word in given[key])
    for key in ("env", "lora", "headers"):
        if key in given:
            given[key] = {str(name): numbered(value) for name, value in given[key].items()}
    if "cwd" in given:
        given["cwd"] = Path(given["cwd"])
    given["env"] = {**options.env, **given.get("env", {})}
    inherited = replace(options, server_pid=None)
    if is_url:
        inherited = replace(inherited, args=(), lora={}, lora_runtime=False)
    return replace(inherited, **given)
