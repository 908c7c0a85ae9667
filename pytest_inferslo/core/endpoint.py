"""Where requests go: one server address with the model it serves there."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Endpoint:
    """One address that takes requests.

    `url` is the base without the API's own path: `http://127.0.0.1:8000` for a server whose chat endpoint
    is `http://127.0.0.1:8000/v1/chat/completions`; a path prefix (`https://host/team/a`) is kept.
    `api` names the dialect family: `openai` or `triton`.
    `headers` are sent with every request. A secret never stands here: `api_key_env` names the environment
    variable that each worker reads for `Authorization: Bearer`.
    `ca_file` and `verify_tls` apply to https alone.
    """

    url: str
    model: str
    name: str = "default"
    api: str = "openai"
    weight: float = 1.0
    headers: dict[str, str] = field(default_factory=dict)
    api_key_env: str | None = None
    verify_tls: bool = True
    ca_file: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Endpoint:
        return cls(**data)
