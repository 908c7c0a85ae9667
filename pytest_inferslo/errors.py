"""The exception tree. Every message says what was seen, where, and what to do next.

InfersloError
├── UsageError            the user asked for something that cannot be (exit code 4)
│   ├── PolicyError       a policy file; carries every Problem found in it
│   ├── ScriptError       a script for the scripted server; likewise
│   ├── ScenarioError     a scenario, its arrivals or its prompts
│   └── BackendConfigError  an unknown backend, a missing model, a flag that clashes
├── BackendError          the server under test
│   ├── BackendStartError   never became ready; carries the tail of its log
│   └── BackendDiedError    went away while it was needed
├── LoadError             the load generator (master, workers, calibration)
└── RecordError           a run directory that is missing, damaged or of another version
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class InfersloError(Exception):
    """Base of every error that this package raises on purpose."""


class UsageError(InfersloError):
    """The user asked for something that cannot be; nothing was started."""


@dataclass(frozen=True)
class Problem:
    """One fault in a file: `line` and `column` count from 1; 0 means the whole file."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.message}"


class PolicyError(UsageError):
    """A policy file that cannot be trusted; `problems` holds all of its faults, in file order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ScriptError(UsageError):
    """A server script that cannot be played; `problems` holds all of its faults, in file order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ScenarioError(UsageError):
    """A scenario that cannot be offered as it is written."""


class BackendConfigError(UsageError):
    """A backend that is not known or not configured well enough to be started."""


class BackendError(InfersloError):
    """The server under test misbehaved as a process."""


class BackendStartError(BackendError):
    """The server exited, or was not ready within its deadline."""


class BackendDiedError(BackendError):
    """The server went away in the middle of its work."""


class LoadError(InfersloError):
    """The load generator could not start, lost a worker, or broke."""


class RecordError(InfersloError):
    """A saved run that is missing, damaged, or written by another version."""
