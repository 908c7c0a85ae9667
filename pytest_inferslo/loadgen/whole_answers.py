"""Answers that come whole in one read, and are like an earlier one: the fast path for short streams.

Such an answer is taken apart into its head, its opening (see lexicon), the text of its one output event, and
all the rest. It is known when it is, byte for byte, what the general reader has once read as a success, with

- another head that llhttp has parsed, of a kept connection, 200, a chunked stream of events (another date);
- another opening of the same length and grammar, in all its events (another id and time);
- another text of the same length that is plain: not a byte of it means anything to JSON, SSE or HTTP.

None of these can change how the answer ended, how many events it had or which tokens it counted: that is the
`Ending`, what the general reader made of the first one. The comparison puts the expected answer together from
the proven bytes, before the text and after it, so nothing is skipped. All else is for the general reader.
"""

from __future__ import annotations

from typing import Final

from pytest_inferslo.loadgen.ending import Ending
from pytest_inferslo.loadgen.framing import known_head
from pytest_inferslo.loadgen.lexicon import Lexicon, is_opening, opening_of

_MOST: Final = 4096
_MOST_HEADS: Final = 64
#: Answers of one length differ where they end, in their usage.
_TAIL: Final = 96
_EVENT_END: Final = b"\n\n\r\n"
_END: Final = b"0\r\n\r\n"
#: Texts of each form that are kept.
_MOST_TEXTS: Final = 4096

_Span = tuple[int, int]  # from, to


class _Form:
    """A proven answer: where its parts begin and end, the pieces around its text and between its openings.

    `tail`, `head`: the last bytes of all answers of this form, and the first ones of the answer read last.
    """

    __slots__ = (
        "_after",
        "_before",
        "body",
        "ending",
        "head",
        "opening_end",
        "opening_start",
        "pieces",
        "tail",
        "text_end",
        "text_start",
    )

    def __init__(self, data: bytes, body: int, opening: _Span, text: _Span, ending: Ending) -> None:
        self.body = body
        self.head = data[:body]
        self.tail = data[-_TAIL:]
        self.opening_start, self.opening_end = opening
        self.text_start, self.text_end = text
        shared = data[self.opening_start : self.opening_end]
        self._before = data[body : self.text_start].split(shared)
        self._after = data[self.text_end :].split(shared)
        self.pieces: dict[bytes, list[bytes]] = {}
        self.ending = ending

    def learn_text(self, text: bytes) -> list[bytes]:
        """What stands between the openings of the body around this plain text."""
        if len(self.pieces) >= _MOST_TEXTS:
            self.pieces.clear()
        middle = self._before[-1] + text + self._after[0]
        pieces = self.pieces[text] = [*self._before[:-1], middle, *self._after[1:]]
        return pieces


class WholeAnswers:
    """Those known of one dialect, by their length and end; the one of each length that was read last."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._latest: dict[int, _Form] = {}
        self._forms: dict[tuple[int, bytes], _Form] = {}
        self._heads: set[bytes] = set()

    def ending(self, data: bytes) -> Ending | None:
        """What became of the answer that is `data`; None where that is not known."""
        size = len(data)
        form = self._latest.get(size)
        if form is None or not data.endswith(form.tail):
            form = self._forms.get((size, data[-_TAIL:]))
            if form is None:
                return None
            self._latest[size] = form
        if not data.startswith(form.head):
            head = data[: form.body]
            if head not in self._heads and not self._is_usual(head):
                return None
            form.head = head
        text = data[form.text_start : form.text_end]
        pieces = form.pieces.get(text)
        if pieces is None:
            if not self._lexicon.is_plain(text):
                return None
            pieces = form.learn_text(text)
        opening = data[form.opening_start : form.opening_end]
        # head, and a body of the same length: so the body is all that follows the head
        if is_opening(opening) and data.endswith(opening.join(pieces)):
            return form.ending
        return None

    def _is_usual(self, raw: bytes) -> bool:
        """Whether this head was parsed, as a usual one; those are remembered."""
        head = known_head(raw)
        if head is None or not head.usual:
            return False
        if len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        self._heads.add(raw)
        return True

    def learn(self, data: bytes, ending: Ending) -> None:
        """The general reader read `data`, in one read, as a success with one output and these facts."""
        body = data.find(b"\r\n\r\n") + 4
        head = known_head(data[:body])
        if head is None or not head.usual or not data.endswith(_END):
            return
        start = data.find(b"\n", body) + 1
        opening = opening_of(data, start)
        text = self._text_of(data, start, opening)
        if text is None or not is_opening(opening):
            return
        if len(self._forms) >= _MOST:
            self._forms.clear()
            self._latest.clear()
        form = _Form(data, body, (start, start + len(opening)), text, ending)
        self._forms[len(data), form.tail] = self._latest[len(data)] = form

    def _text_of(self, data: bytes, start: int, opening: bytes) -> _Span | None:
        """Where the text of the answer's one output event stands, if that is an event of a known shape."""
        while data.startswith(opening, start):
            begin, end = start + len(opening), data.find(b"\n", start)
            text = self._lexicon.text_of(data[begin:end])
            if text is not None:
                return begin + text[0], begin + text[1]
            start = data.find(b"\n", end + len(_EVENT_END)) + 1
        return None


_known: dict[int, WholeAnswers] = {}


def whole_answers_of(lexicon: Lexicon) -> WholeAnswers:
    """Those that all replies of a process share."""
    key = id(lexicon)  # which lives as long as the process
    if key not in _known:
        _known[key] = WholeAnswers(lexicon)
    return _known[key]


def not_known(data: bytes) -> None:
    """For what is not streamed: only streams are known by their bytes."""
