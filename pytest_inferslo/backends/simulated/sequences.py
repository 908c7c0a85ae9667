"""What the simulated engine works on: requests, and the steps that compute them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class Request:
    """One sequence. `prompt` holds its tokens (words or ids); times are simulated seconds.

    `output_tokens` 0 is a pooling request (an embedding): it ends with its prefill.
    """

    prompt: Sequence[object]
    output_tokens: int
    adapter: str | None = None
    sink: Any = None
    """Whatever the owner of the request needs to deliver its tokens; the engine never looks at it."""
    finish_reason: str = "length"
    output: Sequence[object] | None = None
    """The tokens that will be generated, when the prefix cache shall know them for the next turn."""

    arrived: float = 0.0
    ready: float = 0.0
    scheduled: float = -1.0
    first_token: float = -1.0
    last_token: float = -1.0
    cached_tokens: int = -1
    generated: int = 0
    computed: int = 0
    target: int = 0
    capacity: int = 0
    private: int = 0
    held: list[int] = field(default_factory=list)
    hashes: list[int] | None = None
    preemptions: int = 0
    finished: bool = False


@dataclass(slots=True)
class Step:
    """One forward pass: who computes how many tokens, and when it ends."""

    start: float
    end: float
    work: list[tuple[Request, int]]
    prefill_tokens: int
    sequences: int
