"""How long an answer becomes, and why it ends."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from random import Random

from pytest_inferslo.backends.simulated.asks import Ask
from pytest_inferslo.backends.simulated.tokens import answer_words


@dataclass(frozen=True, slots=True)
class Ending:
    """`tokens` of output, ended for `reason` (`length` or `stop`), by the string `stop` if it was one."""

    tokens: int
    reason: str
    stop: str | None = None


def ending(ask: Ask, eos_mean_tokens: float, random: Random) -> Ending:
    """The limit of the request, unless a stop string or the profile's end of sequence comes first.

    A stop string matches within one token. Neither counts before `min_tokens`; `ignore_eos` leaves stop
    strings alone.
    """
    result = Ending(ask.output_tokens, "length" if ask.limited else "stop")
    if eos_mean_tokens > 1 and not ask.ignore_eos:
        drawn = 1 + int(log(1.0 - random.random()) / log(1.0 - 1.0 / eos_mean_tokens))
        drawn = max(drawn, ask.min_tokens)
        if drawn < result.tokens:
            result = Ending(drawn, "stop")
    if ask.stop:
        for index, word in enumerate(answer_words(ask.answer_start, result.tokens)):
            stop = next((text for text in ask.stop if text and text in word), None)
            if stop is not None and index + 1 >= ask.min_tokens:
                return Ending(index + 1, "stop", stop)
    return result
