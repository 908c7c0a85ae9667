"""A script as data: which answer the n-th request gets, and the steps that it is made of.

docs/scripted-server.md has the language; script_reader reads it, scripted plays it.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Delay:
    """A time that is waited, ns: `fixed`, or drawn for each wait.

    | kind        | parameters                         |
    |-------------|------------------------------------|
    | fixed       | value                              |
    | uniform     | low, high                          |
    | exponential | mean                               |
    | lognormal   | median, sigma (of the logarithm)   |
    | bimodal     | low, high, share of the high ones  |
    """

    kind: str
    parameters: tuple[float, ...]

    def draw(self, random: random.Random) -> int:
        p = self.parameters
        if self.kind == "fixed":
            value = p[0]
        elif self.kind == "uniform":
            value = random.uniform(p[0], p[1])
        elif self.kind == "exponential":
            value = random.expovariate(1 / p[0])
        elif self.kind == "lognormal":
            value = random.lognormvariate(math.log(p[0]), p[1])
        else:
            value = p[1] if random.random() < p[2] else p[0]
        return round(value)


NO_DELAY = Delay("fixed", (0.0,))
UNTIL_CLOSE = -1  # a head's length: the body ends with the connection


@dataclass(frozen=True)
class When:
    """Which requests an answer is for. `number` counts the requests from 1, `tries` those of the same
    body.
    """

    first: int = 1
    last: int | None = None
    every: int = 1  # of those from `first` on: first + every - 1, then each `every`-th
    attempt: int | None = None
    path: str | None = None

    def holds(self, number: int, tries: int, path: str) -> bool:
        if self.path is not None and self.path != path:
            return False
        if self.attempt is not None and self.attempt != tries:
            return False
        if number < self.first or (self.last is not None and number > self.last):
            return False
        return (number - self.first + 1) % self.every == 0


@dataclass(frozen=True)
class Wait:
    delay: Delay


@dataclass(frozen=True)
class Head:
    """The status line and headers. `length` None sends the body chunked."""

    status: int
    headers: tuple[tuple[str, str], ...]
    length: int | None


@dataclass(frozen=True)
class Raw:
    """Exactly these bytes on the wire."""

    data: bytes


@dataclass(frozen=True)
class Body:
    """Bytes of the body, framed as the head announced (one chunk of a chunked body)."""

    data: bytes


@dataclass(frozen=True)
class Event:
    """`data: JSON` and a blank line, as bytes of the body."""

    value: Any


@dataclass(frozen=True)
class Token:
    """One output event of the script's API; `kind` is content, reasoning or tool."""

    text: str
    kind: str = "content"


@dataclass(frozen=True)
class Role:
    """The first event of a chat stream: a role and no content."""


@dataclass(frozen=True)
class Finish:
    reason: str


@dataclass(frozen=True)
class Usage:
    """The token counts; None for `output` takes the tokens that were sent so far."""

    prompt: int
    output: int | None
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Done:
    """`data: [DONE]`, where the API has it."""


@dataclass(frozen=True)
class End:
    """The last chunk of a chunked body."""


@dataclass(frozen=True)
class Reply:
    """A whole answer with its length."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Answer:
    """A whole good answer: streamed where the request asked for that, else one JSON body at the same end.

    `tokens` None takes the request's own limit. `first` is waited before the first token, `every` before each
    further event of `per_event` tokens.
    """

    tokens: int | None
    first: Delay
    every: Delay
    per_event: int
    reasoning: int
    finish: str
    usage: Usage | None


@dataclass(frozen=True)
class Repeat:
    times: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Split:
    """The bytes of the steps, joined and cut: `at` these positions, or into pieces of `every` bytes; `pause`
    before each further piece. Without both they leave in one write."""

    steps: tuple[Step, ...]
    at: tuple[int, ...]
    every: int | None
    pause: Delay


@dataclass(frozen=True)
class Close:
    """FIN."""


@dataclass(frozen=True)
class Reset:
    """RST."""


@dataclass(frozen=True)
class Hang:
    """Nothing more, until the peer goes away."""


Step = (
    Wait | Head | Raw | Body | Event | Token | Role | Finish | Usage | Done | End | Reply | Answer | Repeat
    | Split | Close | Reset | Hang
)  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """The steps for the requests that `when` holds for; `line` is where it stands in the file."""

    when: When
    steps: tuple[Step, ...]
    line: int


@dataclass(frozen=True)
class Script:
    """The first rule that holds answers. The first `uncounted` requests get a plain answer and no number."""

    name: str
    api: str
    model: str
    rules: tuple[Rule, ...]
    seed: int = 0
    uncounted: int = 0
