"""Values inside a script: times (fixed or drawn), numbers, texts, headers, and plain data."""

from __future__ import annotations

import re
from typing import Any

from pytest_inferslo.core.document import ListNode, MapNode, Node, Reader, Scalar, described
from pytest_inferslo.core.metrics import Dimension
from pytest_inferslo.servers.script import NO_DELAY, Delay

#: What a drawn time is made of, in the order of Delay.parameters.
DELAYS = {
    "uniform": ("low", "high"),
    "exponential": ("mean",),
    "lognormal": ("median", "sigma"),
    "bimodal": ("low", "high", "share"),
}


class ScriptValues(Reader):
    """What a step asks of a node. What is wrong is collected, and something harmless returned."""

    def status(self, node: Node | None) -> int:
        status = int(self.whole(node, "status", 200))
        if node is not None and not 100 <= status <= 599:
            self.fault(node, f"status {status} is none of HTTP's (100 to 599)")
        return status

    def headers(self, node: Node | None) -> tuple[tuple[str, str], ...]:
        if node is None:
            return ()
        entries = self.mapping(node, "headers")
        return tuple((name, self.string(value, f"header {name}")) for name, value in entries.items())

    def string(self, node: Node, what: str) -> str:
        """Any text, blanks included."""
        if isinstance(node, Scalar):
            return node.text if node.kind != "null" else ""
        self.fault(node, f"{what} must be a text, not {described(node)}")
        return ""

    def whole(self, node: Node | None, what: str, default: Any, least: int = 0) -> Any:
        """A whole number from `least` on; `default` where there is no node."""
        if node is None:
            return default
        if isinstance(node, Scalar) and re.fullmatch(r"[0-9]{1,12}", node.text) and int(node.text) >= least:
            return int(node.text)
        self.fault(node, f"{what} must be a whole number from {least} on, not {described(node)}")
        return least

    def delay(self, node: Node | None, what: str) -> Delay:
        """`20ms`, or `{lognormal: {median: 20ms, sigma: 0.5}}` and the like."""
        if node is None:
            return NO_DELAY
        if isinstance(node, Scalar):
            return Delay("fixed", (self.quantity(node, what, Dimension.TIME) or 0.0,))
        entries = self.mapping(node, what, tuple(DELAYS))
        if len(entries) != 1:
            self.fault(node, f"{what} must be a time or one of {', '.join(DELAYS)}")
            return NO_DELAY
        kind, value = next(iter(entries.items()))
        parameters = self.mapping(value, kind, DELAYS[kind])
        missing = [name for name in DELAYS[kind] if name not in parameters]
        if missing:
            self.fault(value, f"{kind} needs {' and '.join(missing)}")
            return NO_DELAY
        return Delay(kind, tuple(self._parameter(name, parameters[name]) for name in DELAYS[kind]))

    def _parameter(self, name: str, node: Node) -> float:
        if name == "share":
            return self.quantity(node, name, Dimension.SHARE) or 0.0
        if name == "sigma":
            return self.positive(node, name, 1.0)
        value = self.quantity(node, name, Dimension.TIME)
        if value == 0 and name in ("mean", "median"):
            self.fault(node, f"{name} must be over 0")
            return 1.0
        return value or 0.0


def plain(node: Node) -> Any:
    """A document as plain values, to be written as JSON."""
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    if isinstance(node, MapNode):
        return {key.text: plain(value) for key, value in node.entries}
    if node.kind == "null":
        return None
    if node.kind == "bool":
        return node.text.lower() == "true"
    if node.kind == "int" and re.fullmatch(r"-?[0-9]{1,18}", node.text):
        return int(node.text)
    if node.kind == "float":
        return float(node.text)
    return node.text
