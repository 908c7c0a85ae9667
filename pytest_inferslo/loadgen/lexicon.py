"""Stream events that are recognised by their bytes, so that JSON is parsed only where something new is said.

Two kinds of events repeat in the streams of one server:

- *silent* events carry no output (a role, usage, a finish reason alone) and are the same bytes but for the
  answer's opening;
- *output* events differ, besides, in the text of one string. A `Shape` is such an event without opening and
  text, once two parses have proven that this text, and nothing else in it, makes the output.

What all events of one answer begin with, its *opening*, is not looked at beyond its grammar: `data: {`, and
the `id`, `object` and `created` that follow, which no dialect reads in these forms.

An event whose bytes after the opening are a known silent event, or a shape around a text that is not empty and
holds neither quote, backslash nor control character, is the same JSON as the one that was parsed, with
another string in it. So token text like `"error"`, `data: ` or `[DONE]` can never be misread: what is not
proven is parsed.
"""

from __future__ import annotations

import re
from typing import Final

import orjson

from pytest_inferslo.loadgen.answer import NO_OUTPUT, Answer
from pytest_inferslo.loadgen.dialects import Dialect

_MOST_ENTRIES = 4096
_MOST_SHAPES = 8
_LONGEST = 4096
_MOST_TEXTS = 65536
_LONGEST_TEXT = 64
#: Proofs that may be spent before shapes have been of use, and events that earn another one.
_FIRST_CREDIT = 32
_MOST_CREDIT = 64
_HITS_PER_PROOF = 8

_NOT_TEXT: Final = re.compile(rb'[\x00-\x1f"\\]')
_OBJECT: Final = b"data: {"
_PLAIN = rb'"[ !#-\[\]-~]*"'
_OPENING: Final = re.compile(
    rb'data: \{(?:"id":%b,(?:"object":"(?:chat\.completion\.chunk|text_completion)",)?(?:"created":\d{1,18},)?)?'
    % _PLAIN
)


class Said:
    """What a known event says: its output's `kind`, finish reasons by choice, choices without one, token
    counts.
    """

    __slots__ = ("counts", "finished", "kind", "open")

    def __init__(self, answer: Answer, kind: int) -> None:
        self.kind = kind
        self.finished = {index: reason for index, reason in answer.choices.items() if reason is not None}
        self.open = tuple(index for index, reason in answer.choices.items() if reason is None)
        counts = (answer.prompt_tokens, answer.cached_tokens, answer.output_tokens, answer.reasoning_tokens)
        self.counts = counts if max(counts) >= 0 else None


class Shape:
    """An output event: `after` its text, the least length, and what it says."""

    __slots__ = ("after", "least", "said", "size")

    def __init__(self, before: bytes, after: bytes, said: Said) -> None:
        self.after = after
        self.size = len(after)
        self.least = len(before) + len(after)
        self.said = said


class Lexicon:
    """What was learned of one dialect's events. `silent` and `shapes` are keyed by bytes that follow the opening.

    `used_marks` are what texts were found behind, `plain` texts that were found plain; `credit` pays for proofs.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.silent: dict[bytes, Said] = {}
        self.shapes: dict[bytes, list[Shape]] = {}
        self._marks = tuple(b'"%b":"' % key for key in dialect.output_keys)
        self.plain: set[bytes] = set()
        self.used_marks: tuple[bytes, ...] = ()
        self._dialect = dialect
        self.credit = _FIRST_CREDIT * _HITS_PER_PROOF

    def find(self, rest: bytes, outputs: int) -> Said | None:
        """What an event without its opening says; None when it must be parsed.

        `outputs`: how many there were in this answer; it chooses what is looked up first.
        """
        if not outputs:
            said = self.silent.get(rest)
            if said is not None:
                return said
        for mark in self.used_marks:
            at = rest.find(mark) + len(mark)
            if at < len(mark):
                continue
            for shape in self.shapes.get(rest[:at], ()):
                if len(rest) > shape.least and rest.endswith(shape.after):
                    text = rest[at : len(rest) - shape.size]
                    if text not in self.plain and not self.is_plain(text):
                        return None
                    self.credit += 1
                    return shape.said
        return self.silent.get(rest) if outputs else None

    def text_of(self, rest: bytes) -> tuple[int, int] | None:
        """Where the text of an output event of a known shape begins and ends; None where there is none."""
        for mark in self.used_marks:
            at = rest.find(mark) + len(mark)
            end = rest.find(b'"', at)
            if at >= len(mark) and any(shape.after == rest[end:] for shape in self.shapes.get(rest[:at], ())):
                return at, end
        return None

    def is_plain(self, text: bytes) -> bool:
        """`_is_text`, and not empty (that is no output); texts that are plain are remembered."""
        if not text or not _is_text(text):
            return False
        if len(text) <= _LONGEST_TEXT:
            if len(self.plain) >= _MOST_TEXTS:
                self.plain.clear()
            self.plain.add(text)
        return True

    def learn(self, opening: bytes, rest: bytes, kind: int) -> None:
        """The event `opening` + `rest` was parsed, was well-formed and carried `kind`."""
        # a member must follow, for any opening to be one
        if len(rest) > _LONGEST or rest[:1] != b'"' or b"\n" in rest or b"\r" in rest:
            return
        if kind == NO_OUTPUT:
            answer = Answer()
            self._dialect.read_event(orjson.loads(opening[6:] + rest), answer)
            if answer.failure is None and not answer.completed:
                if len(self.silent) >= _MOST_ENTRIES:
                    self.silent.clear()
                self.silent[rest] = Said(answer, NO_OUTPUT)
        elif self.credit >= _HITS_PER_PROOF:
            self.credit = min(self.credit, _MOST_CREDIT * _HITS_PER_PROOF) - _HITS_PER_PROOF
            self._learn_shape(opening[6:], rest, kind)

    def _learn_shape(self, opening: bytes, rest: bytes, kind: int) -> None:
        for mark in self._marks:
            at = rest.find(mark) + len(mark)
            end = rest.find(b'"', at)
            if at < len(mark) or end <= at or b"\\" in rest[at:end]:
                continue
            before, after = rest[:at], rest[end:]
            answer = self._proven(opening + before, after, kind)
            if answer is None:
                continue
            if len(self.shapes) >= _MOST_ENTRIES:
                self.shapes.clear()
            shapes = self.shapes.setdefault(before, [])
            shapes.insert(0, Shape(before, after, Said(answer, kind)))
            del shapes[_MOST_SHAPES:]
            if mark not in self.used_marks:
                self.used_marks = (*self.used_marks, mark)
            return

    def _proven(self, before: bytes, after: bytes, kind: int) -> Answer | None:
        """What the event says besides its output, if only the text makes that: none without it, `kind` with
        it.
        """
        empty, filled = Answer(), Answer()
        if self._dialect.read_event(orjson.loads(before + after), empty) != NO_OUTPUT:
            return None
        if self._dialect.read_event(orjson.loads(before + b"x" + after), filled) != kind:
            return None
        if filled.failure is not None or filled.completed or not filled.same_as(empty):
            return None
        return filled


_lexicons: dict[int, Lexicon] = {}


def lexicon_of(dialect: Dialect) -> Lexicon:
    """The one that all replies of a process share."""
    key = id(dialect)
    if key not in _lexicons:
        _lexicons[key] = Lexicon(dialect)  # which keeps the dialect, and so its id, alive
    return _lexicons[key]


def opening_of(data: bytes, begin: int = 0) -> bytes:
    """What of an answer's events is not looked at, from the first that starts at `begin`."""
    match = _OPENING.match(data, begin)
    return match.group() if match else _OBJECT


is_opening: Final = _OPENING.fullmatch


def _is_text(between_quotes: bytes) -> bool:
    """Whether these bytes, as they are, can stand in a JSON string: UTF-8 without quote, backslash, control."""
    if _NOT_TEXT.search(between_quotes):
        return False
    try:
        between_quotes.decode()
    except UnicodeDecodeError:
        return False
    return True
