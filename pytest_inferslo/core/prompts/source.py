"""What a prompt is, and the protocol of everything that makes prompts."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, NamedTuple, Protocol


class Prompt(NamedTuple):
    """One request's question.

    `messages` in the chat form; `text` the flat form, for completions, embeddings and generate. `inputs` are
    the texts of an embeddings request, one or more. `max_tokens` limits the answer; `input_tokens` is the
    length that was asked for (0 when not known: a dataset), to be compared with the server's count. `hash` is
    signed 64 bits of the whole content: equal hashes are equal prompts. `session` numbers the conversation,
    `turn` its turn from 0.
    """

    messages: list[dict[str, Any]]
    text: str
    inputs: tuple[str, ...]
    max_tokens: int
    input_tokens: int
    hash: int
    session: int
    turn: int


class PromptSource(Protocol):
    """Prompts of one run; memory does not grow with their number."""

    def prompt(
        self,
        index: int,
        *,
        warm_up: bool = False,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
    ) -> Prompt:
        """The prompt of request `index`: always the same one, in any order and in any process.

        No prompt with `warm_up` equals one without it, unless a trace repeats it. `input_tokens` and
        `output_tokens` replace the drawn lengths (a trace says them per request).
        """
        ...


class Prompts(Protocol):
    """What a scenario declares about its prompts."""

    kind: ClassVar[str]

    @property
    def reuse(self) -> bool:
        """Whether prompts, or their beginnings, repeat on purpose."""
        ...

    def source(self, seed: int, run: str = "") -> PromptSource:
        """The prompts of one run. `run`, its id, changes the salts alone; lengths and words depend on `seed`.

        So a server that stays up between two runs has not seen the second one's prompts.
        """
        ...


def flat(messages: list[dict[str, Any]]) -> str:
    """The texts of `messages`, one after another, for APIs without roles."""
    parts: list[str] = []
    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            parts.append(content)
        else:
            parts.extend(part["text"] for part in content if part.get("type") == "text")
    return "\n".join(parts)


def hash_of(content: str) -> int:
    """Signed 64 bits of `content`, the same in every process."""
    return int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest(), "little", signed=True)
