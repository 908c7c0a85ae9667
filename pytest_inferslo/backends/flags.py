"""Reading the flags that a user passes through to a server."""

from __future__ import annotations

from collections.abc import Sequence

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


def _name(word: str) -> str:
    return word.partition("=")[0].replace("_", "-")
