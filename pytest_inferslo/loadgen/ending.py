"""How an answer ended, as the columns of its row: packed once for all the answers that end alike."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass, field

from pytest_inferslo.core.samples import SAMPLE_DTYPE, Outcome

#: C's `long` is the quicker of two ways to the same eight bytes, where it has them.
INT64 = "l" if struct.calcsize("l") == 8 else "q"
_FORMATS = {"<i8": "q", "<i4": "i", "<i2": "h", "|i1": "b"}


def packing(*names: str, more: str = "") -> struct.Struct:
    """Of these columns of SAMPLE_DTYPE, which stand beside one another, then what `more` says."""
    columns = "".join(_FORMATS[SAMPLE_DTYPE[name].str] for name in names) + more
    packed = struct.Struct("<" + columns)
    native = struct.Struct("@" + columns.replace("q", INT64))
    return native if sys.byteorder == "little" and native.size == packed.size else packed


ENDING = packing(
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
    "chunks",
    "bursts",
    "status",
    "outcome",
)


@dataclass(frozen=True, slots=True)
class Ending:
    """Of an answer that came whole in one read, in success, with one output event; all its times are the read's.

    `content`: whether that output was content (and not reasoning).
    """

    content: bool
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    packed: bytes = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        tokens = (self.prompt_tokens, self.cached_tokens, self.output_tokens, self.reasoning_tokens)
        object.__setattr__(self, "packed", ENDING.pack(*tokens, 1, 0, 200, Outcome.SUCCESS))
