"""One promise as a value: what a policy's line means, before any run is measured.

core/grammar reads the text; core/evidence says what the promise means on a measured run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from pytest_inferslo.core.metrics import Dimension, Metric
from pytest_inferslo.errors import UsageError

#: Shares of a whole, which lie between 0 % and 100 %.
BOUNDED = frozenset(
    ("error_rate", "goodput", "server_cpu", "gpu_utilization", "gpu_memory", "gpu_throttled", "loadgen_cpu")
)
SCOPE_KINDS = ("endpoint", "adapter", "phase", "stream")
SLOT_NS = 1_000_000_000


class ObjectiveError(UsageError, ValueError):
    """A text that is no objective; `offset` is where in the text, from 0."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True)
class Statistic:
    """`kind` is `percentile`, `mean`, `max`, `min` or `whole` (a ratio or total as it is).

    `share` is exact: 999/1000 for p99.9, so that the rank ceil(share x n) has no rounding of its own.
    """

    kind: str
    share: Fraction = Fraction(0)

    def __str__(self) -> str:
        if self.kind == "percentile":
            return "p" + f"{float(self.share * 100):.10f}".rstrip("0").rstrip(".")
        return "" if self.kind == "whole" else self.kind


@dataclass(frozen=True)
class ScopePattern:
    """Which requests an objective speaks of; None is all of them, `*` each one by itself."""

    endpoint: str | None = None
    adapter: str | None = None
    phase: str | None = None
    stream: str | None = None

    def __str__(self) -> str:
        parts = [(kind, getattr(self, kind)) for kind in SCOPE_KINDS]
        return ",".join(f"{kind}:{name}" for kind, name in parts if name is not None)


@dataclass(frozen=True)
class Limit:
    """`offset + factor x reference`, in the base unit of `dimension`; without a reference `offset` alone."""

    text: str
    dimension: Dimension
    offset: float
    factor: float = 0.0
    reference: str | None = None  # "baseline", "idle" or a scope kind
    reference_name: str = ""
    currency: str = "$"

    def at(self, reference: float) -> float:
        return self.offset + self.factor * reference


@dataclass(frozen=True)
class Condition:
    """`while METRIC OP LIMIT`: of a phase's mean reading."""

    metric: Metric
    op: str
    limit: Limit

    def holds(self, value: float) -> bool:
        return compare(value, self.op, self.limit.offset)


@dataclass(frozen=True)
class Objective:
    """A parsed promise. `window_ns` is 0 unless it says `for`; `source` is `file:line` of where it stands."""

    text: str
    metric: Metric
    statistic: Statistic
    op: str
    limit: Limit
    scope: ScopePattern = ScopePattern()
    window_ns: int = 0
    after: str | None = None
    condition: Condition | None = None
    optional: bool = False
    severity: str = "fail"
    weight: float = 1.0
    key: bool = False
    source: str = ""

    @property
    def upper(self) -> bool:
        """Whether the limit is a ceiling."""
        return self.op in ("<", "<=")

    @property
    def left(self) -> str:
        """What is promised about, without the limit: the identity by which an override replaces it."""
        parts = [self.metric.name, str(self.statistic)]
        parts += [f"for {self.window_ns // SLOT_NS}s"] if self.window_ns else []
        parts += [f"within {self.scope}"] if str(self.scope) else []
        parts += [f"after {self.after}"] if self.after else []
        parts += [f"while {self.condition.metric.name}"] if self.condition else []
        return " ".join(part for part in parts if part)

    def negated(self) -> Objective:
        """The promise that is broken exactly when this condition holds (for a rubric's penalties)."""
        return replace(self, op={"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[self.op])


def compare(value: float, op: str, limit: float) -> bool:
    """`value OP limit`, on unrounded numbers."""
    return {"<": value < limit, "<=": value <= limit, ">": value > limit, ">=": value >= limit}[op]
