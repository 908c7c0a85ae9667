"""A run's progress while it goes.

One line that is redrawn on a terminal, a plain line now and then elsewhere.
"""

from __future__ import annotations

import math
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from pytest_inferslo.reports.wording import count, duration, printable

_REDRAW_SECONDS = 0.1
_PLAIN_SECONDS = 5.0
_RATE_SECONDS = 2.0
_BAR = 16
_LABEL = 20
#: What a narrow terminal does without, the least first.
_LESSER = ("done", "now", "whole", "median", "in flight")
_RATES = 2  # of them, for whose sake no label is cut


class LoadProgress(Protocol):
    """How far a load is: seconds since the schedule's zero (negative before it), and requests so far.

    `intended`: of the whole schedule; in a closed loop, which has none, those that ended.
    """

    @property
    def elapsed_s(self) -> float: ...
    @property
    def intended(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def succeeded(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def in_flight(self) -> int: ...


class Latency(Protocol):
    """A latency so far: its name and its percentiles in ns, None while there are none and inf where failures reach."""

    @property
    def metric(self) -> str: ...
    def percentile(self, p: float) -> float | None: ...


class ProgressLine:
    """Writes to `stream`. On a TTY the line is redrawn in place at most ten times a second and erased by
    `close`; elsewhere a line is added about every five seconds, so that a CI log shows life and stays short.

    `width` None is the terminal's own at that moment.
    """

    def __init__(
        self,
        stream: TextIO,
        width: int | None = None,
        is_tty: bool | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._width, self._clock = stream, width, clock
        self._is_tty = stream.isatty() if is_tty is None else is_tty
        self._every = _REDRAW_SECONDS if self._is_tty else _PLAIN_SECONDS
        self._next = float("-inf")
        self._drawn = False
        self._recent: deque[tuple[float, int, int]] = deque()

    def update(
        self, progress: LoadProgress, total_s: float, *, label: str = "", latency: Latency | None = None
    ) -> None:
        """Show a load under way; `total_s` is its whole length, warm-up included."""
        done = progress.succeeded + progress.failed
        if self._recent and progress.elapsed_s < self._recent[-1][0]:
            self._recent.clear()
        self._recent.append((progress.elapsed_s, progress.sent, done))
        while len(self._recent) > 2 and self._recent[1][0] <= progress.elapsed_s - _RATE_SECONDS:
            self._recent.popleft()
        if self._due():
            self._write(self._text(progress, total_s, label, latency))

    def say(self, text: str) -> None:
        """Show any other state (the start of a server), at the same pace."""
        if self._due():
            self._write(self._clean(text))

    def close(self) -> None:
        """Leave the terminal as it was, for the next writer's line; the next load starts at once."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._drawn, self._next = False, float("-inf")
        self._recent.clear()

    def _due(self) -> bool:
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._every
        return True

    def _write(self, text: str) -> None:
        if self._is_tty:
            room = self._room()
            shown = text if len(text) <= room else f"{text[: max(0, room - 2)]}.."
            self._stream.write(f"\r\x1b[K{shown}")
            self._drawn = True
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def _text(self, progress: LoadProgress, total_s: float, label: str, latency: Latency | None) -> str:
        label = self._clean(label)
        if not self._is_tty:
            return f"{label} {self._figures(progress, total_s, latency)}".strip()
        elapsed = max(0.0, min(progress.elapsed_s, total_s))
        filled = round(_BAR * elapsed / total_s) if total_s else 0
        bar = f"[{'#' * filled}{'.' * (_BAR - filled)}]"
        for dropped in range(len(_LESSER) + 1):
            figures = self._figures(progress, total_s, latency, without=_LESSER[:dropped])
            labelled = min(len(label), _LABEL) + 1 if dropped < _RATES else 0
            if labelled + len(figures) <= self._room():
                break
        return self._fitted(label, bar, figures)

    def _figures(
        self,
        progress: LoadProgress,
        total_s: float,
        latency: Latency | None,
        without: Sequence[str] = (),
    ) -> str:
        elapsed = max(0.0, min(progress.elapsed_s, total_s))
        parts = [f"{elapsed:.0f}/{total_s:.0f} s", f"sent {_sent(progress, whole='whole' not in without)}"]
        parts += [text for name, text in self._rates().items() if name not in without]
        if "in flight" not in without:
            parts.append(f"in flight {count(progress.in_flight)}")
        if progress.failed:
            parts.append(f"failed {count(progress.failed)}")
        parts += self._percentiles(latency, (0.99,) if "median" in without else (0.5, 0.99))
        if progress.elapsed_s > total_s:
            parts.append("draining")
        return ", ".join(parts)

    def _percentiles(self, latency: Latency | None, shares: Sequence[float]) -> list[str]:
        seen = [(f"p{100 * p:g}", latency.percentile(p)) for p in shares] if latency is not None else []
        known = [
            f"{name} {self._clean(duration(ns)) if math.isfinite(ns) else 'failed'}"
            for name, ns in seen
            if ns is not None
        ]
        return [f"{latency.metric} {' '.join(known)}"] if latency is not None and known else []

    def _fitted(self, label: str, bar: str, figures: str) -> str:
        """What there is room for: the figures before the label, the label before the bar."""
        room = self._room() - len(figures) - 1
        shown = label if len(label) <= room else label[: max(0, room - 2)] + ".." if room > 6 else ""
        if len(bar) + 1 <= room - len(shown):
            shown = f"{shown} {bar}".strip()
        return f"{shown} {figures}".strip()

    def _room(self) -> int:
        return (self._width or shutil.get_terminal_size().columns) - 1

    def _clean(self, text: str) -> str:
        encoding = (getattr(self._stream, "encoding", None) or "").lower().replace("-", "")
        return printable(text, ascii_only=encoding != "utf8")

    def _rates(self) -> dict[str, str]:
        """Requests per second of the last two seconds: sent, and ended in any way."""
        (then, sent, done), (now, last_sent, last_done) = self._recent[0], self._recent[-1]
        if now - then <= 0:
            return {}
        sending, finishing = (last_sent - sent) / (now - then), (last_done - done) / (now - then)
        return {"now": f"now {sending:,.0f}/s", "done": f"done {finishing:,.0f}/s"}


def _sent(progress: LoadProgress, *, whole: bool) -> str:
    """Of how many, where that is wanted and the schedule knows it."""
    known = whole and progress.intended > progress.succeeded + progress.failed
    return f"{count(progress.sent)} of {count(progress.intended)}" if known else count(progress.sent)
