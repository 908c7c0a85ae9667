"""What an earlier run measured, for limits such as `<= 120% of baseline`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_inferslo.core.likeness import load_differences, place_differences
from pytest_inferslo.core.units import nearest
from pytest_inferslo.errors import UsageError


@dataclass(frozen=True)
class Level:
    """A statistic as it was seen, with the one-sided bounds of core/statistics, in base units."""

    observed: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True)
class Baseline:
    """Levels of one run by what they are of: `ttft p99`, `e2e p95 within adapter:a`."""

    run_id: str
    scenario: str
    levels: Mapping[str, Level]
    #: Why the run could not be trusted itself: its broken guards. Nothing may be measured by it then.
    invalid: str = ""
    #: The parts of its record that tell what it was offered and where it ran.
    about: Mapping[str, Any] = field(default_factory=dict)

    def refuse_for(self, record: Mapping[str, Any]) -> None:
        """Raises UsageError when this baseline says nothing about the run of `record`."""
        scenario = (record.get("scenario") or {}).get("name") or ""
        if self.run_id and self.run_id == record.get("run_id"):
            raise UsageError(f"the baseline is the run that is judged, {self.run_id}: name an earlier one")
        if self.scenario != scenario:
            raise UsageError(
                f"the baseline {self.run_id} is of scenario {self.scenario!r}, but {scenario!r} is judged"
                f"{nearest(self.scenario, [scenario])}; record a baseline of that scenario"
            )
        if changed := load_differences(record, self.about):
            raise UsageError(
                f"the baseline {self.run_id} was offered another load (other {', '.join(changed)}): nothing can be "
                "compared with it; record a baseline of this one"
            )
        simulated = [(about.get("backend") or {}).get("simulated") for about in (record, self.about)]
        if set(simulated) == {True, False}:
            raise UsageError(
                f"the baseline {self.run_id} is of {'an engine' if simulated[0] else 'a simulator'}, and the run that "
                f"is judged is of {'a simulator' if simulated[0] else 'an engine'}: they say nothing about each other"
            )
        if not self.levels:
            raise UsageError(
                f"the baseline {self.run_id} is empty: nothing that the policy compares was measured"
            )
        if self.invalid:
            raise UsageError(
                f"the baseline {self.run_id} is INVALID itself ({self.invalid}): record another one"
            )

    def notes_for(self, record: Mapping[str, Any]) -> list[str]:
        """What a reader of the comparison should know: how this baseline ran otherwise than the run of `record`."""
        return [
            f"the baseline {self.run_id} differs in {difference}"
            for difference in place_differences(self.about, record)
        ]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Baseline:
        levels = {name: Level(**level) for name, level in data["levels"].items()}
        return cls(data["run_id"], data["scenario"], levels, data["invalid"], data.get("about", {}))
