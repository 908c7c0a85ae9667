"""Pages of plain or coloured text of an exact width. rich is imported when the first page is made."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_inferslo.reports.wording import printable

if TYPE_CHECKING:
    from rich.table import Table

STYLES = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow", "INVALID": "bold magenta"}


@dataclass(frozen=True)
class Column:
    """A column of a table.

    `least` and `most` bound its width; longer text is folded. `rest` takes what is left over.
    """

    title: str
    right: bool = False
    least: int | None = None
    most: int | None = None
    rest: bool = False


class Page:
    """Collects sections; `text()` gives lines of at most `width` cells.

    `colour` adds ANSI escapes; `unicode` draws lines with box characters and leaves foreign text as it is,
    otherwise everything is ASCII.
    """

    def __init__(self, width: int, *, colour: bool = False, unicode: bool = False) -> None:
        from rich.console import Console

        self._width, self._unicode = width, unicode
        self._buffer = io.StringIO()
        self._console = Console(
            file=self._buffer,
            width=width,
            force_terminal=colour,
            color_system="standard" if colour else None,
            emoji=False,
            markup=False,
            highlight=False,
            legacy_windows=False,
            _environ={},
        )

    def line(self, text: str, *, style: str = "", indent: int = 0, hang: int = 0) -> None:
        """One paragraph, wrapped; `hang` is how much further its later lines are indented."""
        from rich.padding import Padding
        from rich.text import Text

        cleaned = self._clean(text)
        room = self._width - indent
        lines = Text(cleaned, style=style).wrap(self._console, room - hang) if cleaned else [Text("")]
        if len(lines) > 1 and len(cleaned) <= room:
            lines = [Text(cleaned, style=style)]
        for number, part in enumerate(lines):
            self._console.print(Padding(part, (0, 0, 0, indent + (hang if number else 0))), no_wrap=True)

    def heading(self, text: str) -> None:
        self.gap()
        self.line(text, style="bold")

    def gap(self) -> None:
        self._console.print()

    def rule(self) -> None:
        self._console.print(("─" if self._unicode else "-") * self._width, no_wrap=True)

    def table(
        self, columns: Sequence[Column], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()
    ) -> None:
        """A table exactly as wide as the page. A cell may hold several lines; `styles[i]` is that of the last
        cell of row i."""
        from rich.table import Table
        from rich.text import Text

        table: Table = Table(
            box=_box(self._unicode),
            width=self._width,
            pad_edge=False,
            padding=(0, 2, 0, 0),
            show_edge=False,
            header_style="bold",
            collapse_padding=True,
        )
        for column in columns:
            table.add_column(
                column.title,
                justify="right" if column.right else "left",
                min_width=column.least,
                max_width=column.most,
                ratio=1 if column.rest else None,
                overflow="fold",
            )
        for number, row in enumerate(rows):
            style = styles[number] if number < len(styles) else ""
            cells: list[Any] = [
                Text("\n".join(self._clean(part) for part in cell.split("\n"))) for cell in row
            ]
            cells[-1].stylize(style)
            table.add_row(*cells)
        self.rule()
        self._console.print(table)
        self.rule()

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._buffer.getvalue().splitlines()).strip("\n")

    def _clean(self, text: str) -> str:
        return printable(text, ascii_only=not self._unicode)


def _box(unicode: bool) -> Any:
    from rich import box

    return (
        box.SIMPLE_HEAD
        if unicode
        else box.Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
    )
