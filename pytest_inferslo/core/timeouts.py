"""How long a request may take in each of its stages."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from pytest_inferslo.core import fields as check
from pytest_inferslo.core.fields import Seconds


@dataclass(frozen=True)
class Timeouts:
    """After which a request has failed: a time with a unit or seconds. Stored as seconds.

    `connect` until the connection stands; `first_output` from the send to the first output; `stall` between
    two output events; `total` from the send to the end.
    """

    kind: ClassVar[str] = "timeouts"
    connect: Seconds = 5.0
    first_output: Seconds = 60.0
    stall: Seconds = 30.0
    total: Seconds = 300.0

    def __post_init__(self) -> None:
        for item in fields(self):
            object.__setattr__(
                self, item.name, check.seconds(f"timeouts.{item.name}", getattr(self, item.name))
            )

    def in_seconds(self) -> tuple[float, float, float, float]:
        """connect, first_output, stall, total."""
        return float(self.connect), float(self.first_output), float(self.stall), float(self.total)
