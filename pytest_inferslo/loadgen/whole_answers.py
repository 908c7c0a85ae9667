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

from pytest_inferslo.loadgen.ending import Ending
from pytest_inferslo.loadgen.framing import known_head
from pytest_inferslo.loadgen.lexicon import Lexicon, is_opening, opening_of

_MOST = 4096
_MOST_HEADS = 64
#: Answers of one length differ where they end, in their usage.
_TAIL = 96
_EVENT_END = b"\n\n\r\n"
_END = b"0\r\n\r\n"


class _Form:
    """A proven answer: the edges of its parts, and the pieces around its text and between its openings."""

    __slots__ = (
        "after",
        "before",
        "body",
        "ending",
        "opening_end",
        "opening_start",
        "text_end",
        "text_start",
    )

    def __init__(self, data: bytes, body: int, opening: slice, text: slice, ending: Ending) -> None:
        self.body = body
        self.opening_start, self.opening_end = opening.start, opening.stop
        self.text_start, self.text_end = text.start, text.stop
        self.before = data[body : text.start].split(data[opening])
        self.after = data[text.stop :].split(data[opening])
        self.ending = ending


class WholeAnswers:
    """Those known of one dialect, by their length and end."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._plain = lexicon.plain
        self._forms: dict[tuple[int, bytes], _Form] = {}
        self._heads: set[bytes] = set()

    def ending(self, data: bytes) -> Ending | None:
        """What became of the answer that is `data`; None where that is not known."""
        form = self._forms.get((len(data), data[-_TAIL:]))
        if form is None:
            return None
        body, begin, end = form.body, form.text_start, form.text_end
        head, text, opening = data[:body], data[begin:end], data[form.opening_start : form.opening_end]
        if (
            (head in self._heads or self._is_usual(head))
            and (text in self._plain or self._lexicon.is_plain(text))
            and is_opening(opening)
            and data[body:begin] == opening.join(form.before)
            and data[end:] == opening.join(form.after)
        ):
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
        place = slice(start, start + len(opening))
        self._forms[len(data), data[-_TAIL:]] = _Form(data, body, place, text, ending)

    def _text_of(self, data: bytes, start: int, opening: bytes) -> slice | None:
        """Where the text of the answer's one output event stands, if that is an event of a known shape."""
        while data.startswith(opening, start):
            begin, end = start + len(opening), data.find(b"\n", start)
            text = self._lexicon.text_of(data[begin:end])
            if text is not None:
                return slice(begin + text.start, begin + text.stop)
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
