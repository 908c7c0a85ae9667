"""Secrets stay out of the record: run directories are uploaded by CI and passed around.

What is hidden goes by its name: `--hf-token X`, `HF_TOKEN=X`, a header `Authorization`. Names that only look
alike (`--max-num-batched-tokens`, `--tokenizer`, `--api-key-env`) keep their values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"(^|[-_])(token|(api|access|secret)?[-_]?key|secret|password|credentials?)$", re.IGNORECASE
)
_SECRET_HEADER = re.compile(r"authorization|cookie|token|key|secret", re.IGNORECASE)
#: user:password@ in a URL
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")


def redacted(record: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a run record with the secrets of its command lines, headers and URLs replaced by `***`."""
    return {name: _value(name, value) for name, value in record.items()}


def _value(name: str, value: Any) -> Any:
    if name == "command" and isinstance(value, (list, tuple)):
        return _arguments(value)
    if name == "headers" and isinstance(value, Mapping):
        return {key: HIDDEN if _SECRET_HEADER.search(str(key)) else each for key, each in value.items()}
    if isinstance(value, Mapping):
        return {key: _value(str(key), each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_value(name, each) for each in value]
    return _URL_LOGIN.sub(f"{HIDDEN}@", value) if name == "url" and isinstance(value, str) else value


def _arguments(arguments: Sequence[Any]) -> list[str]:
    """A command line; a value may follow its option, or be an assignment itself (`--backend-env=HF_TOKEN=X`)."""
    shown: list[str] = []
    hide_next = False
    for argument in map(str, arguments):
        *names, _ = argument.split("=")
        if hide_next and not argument.startswith("-"):
            shown.append(HIDDEN)
        elif names and any(_SECRET_NAME.search(name) for name in names):
            secret = next(i for i, name in enumerate(names) if _SECRET_NAME.search(name))
            shown.append("=".join([*names[: secret + 1], HIDDEN]))
        else:
            shown.append(_URL_LOGIN.sub(f"{HIDDEN}@", argument))
        hide_next = not names and argument.startswith("-") and bool(_SECRET_NAME.search(argument))
    return shown
