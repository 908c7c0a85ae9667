"""Reading what a user passes through to a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_inferslo.backends.protocol import BackendOptions
from pytest_inferslo.errors import BackendConfigError


def has_flag(args: Sequence[str], *names: str) -> bool:
    """Whether one of `names` stands there, as `--flag`, `--flag value` or `--flag=value`.

    `-` and `_` are the same.
    """
    return any(_name(word) in {_name(name) for name in names} for word in args if word.startswith("-"))


def flag_value(args: Sequence[str], *names: str) -> str | None:
    """The last value given for one of `names`, the first word of it when it takes several.

    None without it.
    """
    wanted = {_name(name) for name in names}
    found = None
    for index, word in enumerate(args):
        if word.startswith("-") and _name(word) in wanted:
            _, equals, value = word.partition("=")
            if equals:
                found = value
            elif index + 1 < len(args) and not args[index + 1].startswith("-"):
                found = args[index + 1]
    return found


def refuse_flags(backend: str, args: Sequence[str], names: Sequence[str]) -> None:
    """Raises BackendConfigError for flags that the plugin itself decides."""
    for name in names:
        if has_flag(args, name):
            raise BackendConfigError(
                f"--backend-arg={name}: pytest-inferslo chooses where {backend} listens; leave this "
                "flag out, or start the server yourself and pass its URL as --backend"
            )


def require_model(backend: str, options: BackendOptions, *flags: str) -> None:
    """Raises BackendConfigError without a model, or for a path that leads nowhere."""
    if not options.model and not (flags and has_flag(options.args, *flags)):
        raise BackendConfigError(f"--backend={backend} needs --model: a folder, or a name that it can load")
    model = options.model or ""
    if model.startswith(("/", "./", "../", "~")) and not ((options.cwd or Path()) / model).exists():
        raise BackendConfigError(f"--model={model}: there is no such file or folder")


def _name(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")
