"""Events that repeat but for their token text, recognised without parsing them.

Within one stream the output events are mostly the same bytes around another text. Once two parses have proven
which bytes those are, an event `prefix TEXT suffix` whose TEXT is not empty and holds neither quote,
backslash nor line end is the same JSON with another string in it: it carries output, and no finish reason,
usage or error. Anything else is parsed.
"""

from __future__ import annotations

import orjson

from pytest_inferslo.loadgen.answer import NO_OUTPUT, Answer
from pytest_inferslo.loadgen.dialects import Dialect

#: After so many proofs in one stream its events are taken as too varied (logprobs, usage in every event).
_PROOFS = 3


class OutputTemplate:
    """`kind` is what a matching event carries. An empty `prefix` matches nothing."""

    __slots__ = ("_proofs", "kind", "least", "prefix", "suffix")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.prefix = b""
        self.suffix = b""
        self.least = 1 << 62  # a matching event is longer than this
        self.kind = NO_OUTPUT
        self._proofs = 0

    def learn(self, event: bytes, kind: int, dialect: Dialect) -> None:
        """`event` was parsed and carried output of `kind` and nothing else."""
        if self._proofs >= _PROOFS or event[:6] != b"data: " or b"\n" in event:
            return
        self._proofs += 1
        for key in dialect.output_keys:
            mark = b'"%b":"' % key
            begin = event.find(mark)
            if begin < 0:
                continue
            begin += len(mark)
            end = event.find(b'"', begin)
            prefix, suffix = event[:begin], event[end:]
            if end > begin and b"\\" not in event[begin:end] and _proven(prefix, suffix, kind, dialect):
                self.prefix, self.suffix, self.kind = prefix, suffix, kind
                self.least = len(prefix) + len(suffix)
                return

    def matches(self, event: bytes) -> bool:
        if len(event) > self.least and event.startswith(self.prefix) and event.endswith(self.suffix):
            text = event[len(self.prefix) : len(event) - len(self.suffix)]
            return b'"' not in text and b"\\" not in text and b"\n" not in text
        return False


def _proven(prefix: bytes, suffix: bytes, kind: int, dialect: Dialect) -> bool:
    """Only the text between them makes output: none without it, `kind` with it; nothing else is said."""
    empty, filled = Answer(), Answer()
    if dialect.read_event(orjson.loads(prefix[6:] + suffix), empty) != NO_OUTPUT:
        return False
    if dialect.read_event(orjson.loads(prefix[6:] + b"x" + suffix), filled) != kind:
        return False
    return _says_nothing(empty) and _says_nothing(filled)


def _says_nothing(answer: Answer) -> bool:
    return (
        answer.failure is None
        and not answer.completed
        and answer.output_tokens < 0
        and answer.prompt_tokens < 0
        and not any(answer.choices.values())
    )
