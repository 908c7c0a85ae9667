"""Whole reads that are recognised at once: the fast path for what nearly all reads of a load bring.

A read that begins where a chunk begins and ends where one ends is cut at the answer's opening (the bytes that
all its events share, see lexicon), with one `split`. Each piece is then one event without its opening, up to
the beginning of the next one:

    <rest of the event>\\n\\n\\r\\n  and  <size of the next chunk>\\r\\n | [DONE]'s chunk, the last chunk, or nothing

Why this is sound: a piece is known only as the same bytes (but for the text of one plain JSON string) as an
event that the lexicon has proven by parsing, followed by one of the continuations of `_AFTER`. Each chunk's
announced size is compared with the size of the event that stands there. So a read that is recognised is, byte
for byte, well-formed chunks of proven events, and nothing else. Whatever does not fit, in one byte, is
left untouched for the general reader.
"""

from __future__ import annotations

import re
from typing import Final

from pytest_inferslo.loadgen.answer import NO_OUTPUT
from pytest_inferslo.loadgen.framing import CHUNK_SIZES
from pytest_inferslo.loadgen.lexicon import Lexicon, Said, opening_of

#: `Part.following`, where no chunk's size is announced.
END_OF_READ: Final = -1
END_OF_ANSWER: Final = 0

_MOST_PIECES = 4096
_EVENT_END: Final = b"\n\n\r\n"
_AFTER = re.compile(rb"([1-9a-f][0-9a-f]{0,7})\r\n|(e\r\ndata: \[DONE\]\n\n\r\n)?(0\r\n\r\n)?")


class Part:
    """A known piece: what its event says, the size of that event without opening and text, the size that
    it announces for the `following` chunk, and whether `[DONE]` came after it.
    """

    __slots__ = ("done", "following", "said", "size")

    def __init__(self, said: Said, size: int, following: int, done: bool) -> None:
        self.said = said
        self.size = size
        self.following = following
        self.done = done


#: Of a piece with no text that is known.
_NOTHING: tuple[bytes, dict[bytes, Part]] = (b"", {})


class Phrasebook:
    """The pieces known of one dialect, derived from its lexicon."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._silent: dict[bytes, Part] = {}
        self._texts: dict[bytes, dict[bytes, Part]] = {}
        self._last = _NOTHING

    def read(self, data: bytes, begin: int, opening: bytes = b"") -> tuple[Part, ...] | None:
        """The events of `data[begin:]`, which stands at the beginning of a chunk; None unless all are known.

        `opening` is the answer's; empty before its first event. The last part's `following` is END_OF_READ or
        END_OF_ANSWER.
        """
        start = data.find(b"\n", begin) + 1
        if start < begin + 3:  # a digit at least, and the line's end
            return None
        size = CHUNK_SIZES.get(data[begin : start - 2], 0)
        if not opening:
            opening = opening_of(data, start)
        pieces = data.split(opening)
        if len(pieces[0]) != start or data[start - 2 : start] != b"\r\n":
            return None
        lexicon, silent = self._lexicon, self._silent
        plain = lexicon.plain
        before, afters = self._last
        opening_size = len(opening)
        parts = []
        for piece in pieces[1:]:
            size -= opening_size
            # most pieces begin as the one before them does
            if not before or not piece.startswith(before):
                before, afters = self._last = self._beginning(piece)
            at = len(before)
            end = piece.find(b'"', at)
            part = afters.get(piece[end:]) if end > at else None
            if part is not None and ((text := piece[at:end]) in plain or lexicon.is_plain(text)):
                size += at - end
            else:
                part = silent.get(piece)
                if part is None:
                    self._learn(piece)
                    return None
            if size != part.size:
                return None
            size = part.following
            parts.append(part)
        if size > 0 or not parts:
            return None
        lexicon.credit += 1
        return tuple(parts)

    def _beginning(self, piece: bytes) -> tuple[bytes, dict[bytes, Part]]:
        """What stands before the text of `piece`, and what may follow that text; of an unknown one nothing."""
        for mark in self._lexicon.used_marks:
            at = piece.find(mark) + len(mark)
            afters = self._texts.get(piece[:at])
            if afters is not None:
                return piece[:at], afters
        return _NOTHING

    def _learn(self, piece: bytes) -> None:
        """Makes the piece known for the next time, if its event is."""
        end = piece.find(_EVENT_END)
        after = piece[end + len(_EVENT_END) :]
        match = _AFTER.fullmatch(after)
        rest = piece[:end]
        said = self._lexicon.find(rest, 0) if match is not None and end > 0 else None
        if match is None or said is None:
            return
        if match[1]:
            following = int(match[1], 16)
        else:
            following = END_OF_ANSWER if match[3] else END_OF_READ
        done = bool(match[2])
        if said.kind == NO_OUTPUT:
            if len(self._silent) >= _MOST_PIECES:
                self._silent.clear()
            self._silent[piece] = Part(said, end + 2, following, done)
            return
        text = self._lexicon.text_of(rest)
        if text is None:
            return
        start, stop = text
        before = rest[:start]
        if len(self._texts) >= _MOST_PIECES:
            self._texts.clear()
        afters = self._texts.setdefault(before, {})
        if len(afters) >= _MOST_PIECES:
            afters.clear()
        afters[piece[stop:]] = Part(said, end + 2 - (stop - start), following, done)


_phrasebooks: dict[int, Phrasebook] = {}


def phrasebook_of(lexicon: Lexicon) -> Phrasebook:
    """The one that all replies of a process share."""
    key = id(lexicon)  # which lives as long as the process
    if key not in _phrasebooks:
        _phrasebooks[key] = Phrasebook(lexicon)
    return _phrasebooks[key]
