"""Performance profiles: how long one step of the simulated engine takes, and how large the engine is."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import resources
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

from pytest_inferslo.errors import BackendConfigError


@dataclass(frozen=True)
class Profile:
    """The figures of one simulated server. Times are milliseconds in files and here, as people read them."""

    name: str
    description: str = ""
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 4096
    block_size: int = 16
    num_gpu_blocks: int = 16384
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    max_loras: int = 8
    lora_load_ms: float = 20.0
    lora_step_share: float = 0.0
    """Share by which a step with at least one adapter is longer."""
    frontend_ms: float = 0.2
    """CPU time of the front end for one request; requests pass through it one after another."""
    latency_ms: float = 0.0
    """Fixed delay before the scheduler sees a request; requests pass it side by side."""
    prefill_ms: tuple[tuple[float, float], ...] = ((1.0, 5.0), (8192.0, 200.0))
    """(tokens, milliseconds) of a step that computes prompts; straight lines between and beyond."""
    decode_ms: tuple[tuple[float, float], ...] = ((1.0, 5.0),)
    """(sequences, milliseconds) of a step that only decodes; straight lines between and beyond."""
    jitter: float = 0.0
    """Standard deviation of a step's time, as a share of it."""
    stream_interval: int = 1
    """Tokens in one event of a stream, after the first."""
    chat_output_tokens: int = 128
    """Length of an answer to a request without a limit of its own (completions: 16, as in the OpenAI API)."""
    eos_mean_tokens: float = 0.0
    """Mean of a geometric distribution that ends answers early, unless `ignore_eos`; 0: never."""

    def __post_init__(self) -> None:
        for name in (
            "max_num_seqs",
            "max_num_batched_tokens",
            "max_model_len",
            "block_size",
            "num_gpu_blocks",
            "max_loras",
            "stream_interval",
            "chat_output_tokens",
        ):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for field in fields(self):
            if field.type == "float":
                self._require(field.name, 0 <= getattr(self, field.name) < inf, "not negative, and finite")
        if self.num_gpu_blocks * self.block_size < self.max_model_len:
            raise BackendConfigError(
                f"simulator profile {self.name!r}: {self.num_gpu_blocks} blocks of {self.block_size} tokens "
                f"cannot hold one request of max_model_len {self.max_model_len}"
            )
        for name in ("prefill_ms", "decode_ms"):
            rows = getattr(self, name)
            rising = bool(rows) and all(low[0] < high[0] for low, high in pairwise(rows))
            self._require(name, rising, "rows of rising counts")
            self._require(
                name, all(0 <= milliseconds < inf for _, milliseconds in rows), "times not negative"
            )

    def _require(self, name: str, holds: bool, wanted: str) -> None:
        if not holds:
            raise BackendConfigError(
                f"simulator profile {self.name!r}: {name} is {getattr(self, name)}; wanted: {wanted}"
            )

    def step_seconds(self, prefill_tokens: int, sequences: int) -> float:
        """Time of one step in seconds, before jitter and adapter loads.

        A step that only decodes is bound by memory: `decode_ms`. One with prompts is bound by computation, to
        which each decoding sequence adds a token: `prefill_ms`, unless its decodes alone would take longer.
        """
        decode = _interpolate(self.decode_ms, sequences) if sequences else 0.0
        if not prefill_tokens:
            return decode / 1e3
        return max(decode, _interpolate(self.prefill_ms, prefill_tokens + sequences)) / 1e3

    def with_options(self, options: Mapping[str, Any]) -> Profile:
        """This profile with the options that are not None laid over it."""
        return replace(self, **{name: value for name, value in options.items() if value is not None})


def _interpolate(rows: tuple[tuple[float, float], ...], count: float) -> float:
    """The value at `count` on straight lines through rows; constant below the first row."""
    if count <= rows[0][0] or len(rows) == 1:
        return rows[0][1]
    at = min(bisect_right(rows, (count, float("inf"))), len(rows) - 1)
    (x0, y0), (x1, y1) = rows[at - 1], rows[at]
    return max(0.0, y0 + (y1 - y0) * (count - x0) / (x1 - x0))


def shipped_profiles() -> list[str]:
    """Names of the profiles that come with the package."""
    folder = resources.files(__package__) / "profiles"
    return sorted(
        entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")
    )


def load_profile(name_or_path: str) -> Profile:
    """A shipped profile by name, or a YAML or JSON file by path. Raises BackendConfigError."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml", ".json"):
        if not path.is_file():
            raise BackendConfigError(f"simulator profile {path}: no such file")
        text, where = path.read_text("utf-8"), str(path)
    elif name_or_path in shipped_profiles():
        text = (resources.files(__package__) / "profiles" / f"{name_or_path}.yaml").read_text("utf-8")
        where = f"profile {name_or_path}"
    else:
        raise BackendConfigError(
            f"unknown simulator profile {name_or_path!r}; shipped: {', '.join(shipped_profiles())}; "
            "or give the path of a .yaml or .json file"
        )
    return parse_profile(read_mapping(text, where), where, default_name=path.stem)


def read_mapping(text: str, where: str) -> dict[str, Any]:
    """A YAML or JSON mapping. Raises BackendConfigError."""
    if text.lstrip().startswith("{"):
        try:
            value = json.loads(text)
        except ValueError as error:
            raise BackendConfigError(f"{where}: {error}") from error
    else:
        from ruamel.yaml import YAML, YAMLError

        try:
            value = YAML(typ="safe", pure=True).load(text)
        except YAMLError as error:
            raise BackendConfigError(f"{where}: {error}") from error
    if not isinstance(value, dict):
        raise BackendConfigError(f"{where}: a mapping is wanted, got {type(value).__name__}")
    return value


def parse_profile(values: Mapping[str, Any], where: str, default_name: str) -> Profile:
    """A profile from the mapping of its file; unknown keys and wrong types raise BackendConfigError."""
    known = {field.name: field for field in fields(Profile)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise BackendConfigError(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(known)}")
    checked: dict[str, Any] = {"name": default_name}
    for key, value in values.items():
        try:
            checked[key] = _convert(known[key].type, value)
        except (TypeError, ValueError) as error:
            raise BackendConfigError(f"{where}: {key}: {value!r} is not {known[key].type}") from error
    return Profile(**checked)


def _convert(kind: Any, value: Any) -> Any:
    if kind == "bool":
        if not isinstance(value, bool):
            raise TypeError
        return value
    if kind == "int":
        if int(value) != value:
            raise ValueError
        return int(value)
    if kind == "float":
        return float(value)
    if kind == "str":
        return str(value)
    rows = value.items() if isinstance(value, Mapping) else value
    return tuple((float(sequences), float(milliseconds)) for sequences, milliseconds in rows)
