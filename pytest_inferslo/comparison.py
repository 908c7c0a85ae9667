"""Saved runs side by side: the same scenario on several backends, builds or engine arguments."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_inferslo.errors import UsageError
from pytest_inferslo.judgement import (
    Judged,
    add_baseline_argument,
    baseline_levels,
    baseline_of,
    judge_runs,
    policies_of,
    worst_exit_code,
)
from pytest_inferslo.policies import load_policy
from pytest_inferslo.reports.terminal import comparison_table
from pytest_inferslo.storage.run_directory import RunDirectory


def compare_runs(notes: Sequence[dict[str, Any]]) -> str:
    """The table of a session's runs of one scenario under one policy; `notes` are as on the test reports."""
    judged = []
    for note in notes:
        directories = [RunDirectory.open(Path(path)) for path in note["directories"]]
        named = note["baseline"]
        baseline = RunDirectory.open(Path(named)) if named else None
        policy = load_policy(note["policy_file"])
        judged.append((note["backend"], judge_runs(directories, policy, baseline_levels(baseline, policy))))
    return f"{notes[0]['scenario']} compared, policy {notes[0]['policy']}\n" + _table(judged)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories, two or more")
    parser.add_argument(
        "--slo-policy",
        action="append",
        metavar="POLICY",
        help="judge all by this policy; default: each run's own",
    )
    add_baseline_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the table; the exit code is that of the worst verdict."""
    if len(arguments.runs) == 1:
        print("inferslo compare: this is one run, and nothing to compare it with", file=sys.stderr)
    judged = [
        _judged(RunDirectory.open(path), arguments.slo_policy, arguments.inferslo_baseline)
        for path in arguments.runs
    ]
    print(_table([(_label(each), each) for each in judged]))
    return worst_exit_code(judged)


def _judged(directory: RunDirectory, names: list[str] | None, baseline: Path | None) -> Judged:
    record = directory.read_record()
    policies = policies_of(names, [record])
    if len(policies) > 1:
        listed = ", ".join(policy.file for policy in policies)
        raise UsageError(
            f"several policies ({listed}) for run {record['run_id']}: a column shows one; name it with --slo-policy"
        )
    return judge_runs(
        [directory], policies[0], baseline_levels(baseline_of(baseline, [directory], policies), policies[0])
    )


def _label(judged: Judged) -> str:
    backend = judged.record.get("backend") or {}
    letters = judged.record["run_id"].rpartition("-")[2]  # they alone tell two runs of one scenario apart
    return f"{judged.record['scenario']['name']}\n{backend.get('name')}\n{letters}"


def _table(judged: Sequence[tuple[str, Judged]]) -> str:
    return comparison_table(
        [(label, each.record, each.verdict, each.summary) for label, each in judged],
        colour=sys.stdout.isatty(),
    )
