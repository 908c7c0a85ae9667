"""A parsed document with the place of every word in it, whatever language it was written in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pytest_inferslo.core.metrics import Dimension
from pytest_inferslo.core.units import QuantityError, nearest, parse_quantity
from pytest_inferslo.errors import Problem


@dataclass(frozen=True)
class Scalar:
    """One word or text; `kind` is what the language took it for: str, int, float, bool or null."""

    text: str
    kind: str
    line: int
    column: int


@dataclass(frozen=True)
class ListNode:
    items: tuple[Node, ...]
    line: int
    column: int


@dataclass(frozen=True)
class MapNode:
    """`entries` in file order; a key may stand twice here, and the reader refuses it."""

    entries: tuple[tuple[Scalar, Node], ...]
    line: int
    column: int


Node = Scalar | ListNode | MapNode

_KINDS = {Scalar: "text", ListNode: "a list", MapNode: "a mapping"}


def described(node: Node) -> str:
    if isinstance(node, Scalar):
        return f"{node.text!r}" if node.kind != "null" else "nothing"
    return _KINDS[type(node)]


@dataclass
class Reader:
    """Walks a document and collects everything that is wrong with it; nothing raises."""

    file: str
    problems: list[Problem] = field(default_factory=list)

    def fault(self, node: Node, message: str, offset: int = 0) -> None:
        self.problems.append(Problem(self.file, node.line, node.column + offset, message))

    def place(self, node: Node) -> str:
        return f"{self.file}:{node.line}"

    def mapping(self, node: Node, what: str, known: tuple[str, ...] | None = None) -> dict[str, Node]:
        """The entries by key; with `known`, any other key is a fault."""
        if not isinstance(node, MapNode):
            self.fault(node, f"{what} must be a mapping, not {described(node)}")
            return {}
        seen: dict[str, Scalar] = {}
        entries: dict[str, Node] = {}
        before = 0  # the line of the entry before
        for key, value in node.entries:
            if key.text in seen:
                first = seen[key.text].line
                self.fault(
                    key, f"{key.text!r} stands twice in {what}: in line {first} and in line {key.line}"
                )
            elif known is not None and key.text not in known:
                hint = nearest(key.text, known)
                told = f"unknown key {key.text!r} in {what}{hint}; known are {', '.join(known)}"
                if key.line == before and isinstance(value, Scalar) and value.kind == "null":
                    told = f"the comma before {key.text!r} ends the text: put a text that holds one in quotes"
                self.fault(key, told)
            else:
                entries[key.text] = value
            seen.setdefault(key.text, key)
            before = key.line
        return entries

    def items(self, node: Node | None, what: str) -> Iterator[Node]:
        """The items of a list; a missing node is an empty one."""
        if node is None:
            return
        if not isinstance(node, ListNode):
            self.fault(node, f"{what} must be a list, not {described(node)}")
            return
        yield from node.items

    def text(self, node: Node | None, what: str) -> str | None:
        if node is None:
            return None
        if not isinstance(node, Scalar) or node.kind == "null" or not node.text.strip():
            self.fault(node, f"{what} must be a text, not {described(node)}")
            return None
        return node.text.strip()

    def flag(self, node: Node | None, what: str) -> bool:
        if node is None:
            return False
        if not isinstance(node, Scalar) or node.kind != "bool":
            self.fault(node, f"{what} must be true or false, not {described(node)}")
            return False
        return node.text.lower() == "true"

    def choice(self, node: Node | None, what: str, known: tuple[str, ...]) -> str | None:
        text = self.text(node, what)
        if text is not None and node is not None and text not in known:
            self.fault(node, f"{what} is {text!r}{nearest(text, known)}; use {' or '.join(known)}")
            return None
        return text

    def quantity(self, node: Node | None, what: str, dimension: Dimension) -> float | None:
        if node is None:
            return None
        if not isinstance(node, Scalar):
            self.fault(node, f"{what} must be a {dimension.value}, not {described(node)}")
            return None
        try:
            return parse_quantity(node.text, dimension)
        except QuantityError as error:
            self.fault(node, f"{what}: {error}")
            return None

    def positive(self, node: Node | None, what: str, default: float) -> float:
        if node is None:
            return default
        if not isinstance(node, Scalar) or node.kind not in ("int", "float"):
            self.fault(node, f"{what} must be a number over 0, not {described(node)}")
            return default
        value = number(node.text)
        if value is None or not 0 < value < 1e9:
            self.fault(node, f"{what} must be a number over 0, not {described(node)}")
            return default
        return value

    def seconds(self, node: Node | None, what: str) -> int:
        value = self.quantity(node, what, Dimension.TIME)
        if value is not None and node is not None and (value < 1e9 or value % 1e9):
            self.fault(node, f"{what} must be whole seconds, at least 1s")
            return 0
        return int(value / 1e9) if value is not None else 0

    def names(self, node: Node | None, what: str) -> tuple[str, ...]:
        texts = [self.text(item, f"an entry of {what}") for item in self.items(node, what)]
        return tuple(dict.fromkeys(text for text in texts if text))


def number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", text) else None
