"""From saved runs to a verdict: the one way, for the live session and for `inferslo judge`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_inferslo.core.baseline import Baseline
from pytest_inferslo.core.fold import Fold
from pytest_inferslo.core.guards import cut_short
from pytest_inferslo.core.judge import baseline_from, judge_together
from pytest_inferslo.core.policy import Policy
from pytest_inferslo.core.questions import questions
from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import Verdict
from pytest_inferslo.errors import PolicyError, RecordError, UsageError
from pytest_inferslo.policies import load_policy
from pytest_inferslo.reports.hdr import histogram_files
from pytest_inferslo.reports.json_document import render_json, verdict_document
from pytest_inferslo.reports.markdown import render_markdown
from pytest_inferslo.reports.prometheus import render_prometheus
from pytest_inferslo.reports.terminal import render_verdict
from pytest_inferslo.storage.run_directory import RunDirectory

Record = dict[str, Any]


@dataclass(frozen=True)
class Judged:
    """One policy's answer on one run, or on its repeats; `directory`, `record` and `summary` are the last one's."""

    directory: RunDirectory
    record: Record
    summary: Summary
    verdict: Verdict
    policy: Policy
    directories: tuple[RunDirectory, ...] = ()  # of all repeats

    def write(self) -> None:
        """Leaves the verdict, the histograms and a readable report beside the samples."""
        self.directory.write_file("verdict.md", render_markdown(self.verdict, self.record, self.summary))
        for name, text in histogram_files(self.summary, self.record).items():
            self.directory.write_file(name, text)
        # Last: whoever finds a verdict finds all of it, also where the disk ran full.
        self.directory.write_verdict(verdict_document(self.verdict, self.record, self.summary))


def judge_runs(directories: Sequence[RunDirectory], policy: Policy, levels: Baseline | None = None) -> Judged:
    """The verdict of `policy` on one run, or on several repeats judged together.

    `levels` are what `of baseline` limits refer to. Reads each run's samples once. Raises RecordError for a run that is
    damaged, UsageError for a baseline that is of another scenario, empty, or the run itself.
    """
    folded = [_folded(directory, policy, levels) for directory in directories]
    verdict = judge_together(policy, [(summary, record) for record, summary in folded], baseline=levels)
    record, summary = folded[-1]
    return Judged(directories[-1], record, summary, verdict, policy, tuple(directories))


def baseline_of(
    named: Path | None, directories: Sequence[RunDirectory], policies: Sequence[Policy]
) -> RunDirectory | None:
    """What `of baseline` limits refer to: the run named, or that of the live verdicts; None where no limit does.

    Raises UsageError where the latter is not to be found, or where there are several.
    """
    if not any(policy.refers_to("baseline") for policy in policies):
        return None
    if named is not None:
        return RunDirectory.open(named)
    recorded = {
        b["run_id"]: b for each in directories if (b := each.read_record().get("baseline")) is not None
    }
    if not recorded:
        return None
    if len(recorded) > 1:
        raise UsageError(f"the runs have several baselines ({', '.join(recorded)}): name one with --baseline")
    ((run_id, told),) = recorded.items()
    for path in (Path(told["path"]), directories[0].path.parent / run_id):
        if path.is_dir() and (found := RunDirectory.open(path)).run_id == run_id:
            return found
    raise UsageError(
        f"run {directories[0].run_id} was judged against the baseline {run_id}, which is neither at {told['path']} nor "
        "beside it: name it with --baseline"
    )


def baseline_levels(directory: RunDirectory | None, policy: Policy) -> Baseline | None:
    """What an earlier run measured of everything that the policy compares with `baseline`; None without one."""
    if directory is None:
        return None
    record, summary = _folded(directory, policy, None)
    return baseline_from(policy, summary, record)


def _folded(directory: RunDirectory, policy: Policy, baseline: Baseline | None) -> tuple[Record, Summary]:
    record = directory.read_record()
    mine = policy.for_record(record)
    fold = Fold(record, questions(mine, record, baseline), mine.goals())
    try:
        for batch in directory.batches():
            fold.add(batch)
        for readings in directory.readings():
            fold.add_readings(readings)
    except RecordError as error:
        if not cut_short(record):
            raise
        raise RecordError(
            f"{error}\nthe run was ended before its time: {'; '.join(record['errors'])}"
        ) from error
    return record, fold.result()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="run directory; several are judged together"
    )
    parser.add_argument(
        "--slo-policy",
        action="append",
        metavar="POLICY",
        help="policy file or name, repeatable; default: those that judged it live",
    )
    add_baseline_argument(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--json",
        action="store_true",
        help="print the verdict as JSON (schemas/verdict.schema.json), of several policies a list of them",
    )
    form.add_argument("--markdown", action="store_true", help="print it as Markdown, for a CI job summary")
    form.add_argument(
        "--prometheus",
        action="store_true",
        help="print it as Prometheus text, for a Pushgateway or a textfile",
    )


def add_baseline_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--inferslo-baseline",
        "--baseline",
        type=Path,
        metavar="RUN",
        help="run that `of baseline` refers to; default: the one that it referred to live",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the verdict of each policy; the exit code is the worst: 1 fail, 9 invalid, 8 inconclusive, 0 pass."""
    directories = [RunDirectory.open(path) for path in arguments.runs]
    policies = policies_of(arguments.slo_policy, [directory.read_record() for directory in directories])
    baseline = baseline_of(arguments.inferslo_baseline, directories, policies)
    if arguments.inferslo_baseline and baseline is None:
        print("inferslo judge: --baseline had no effect: no objective is compared with one", file=sys.stderr)
    judged = [judge_runs(directories, policy, baseline_levels(baseline, policy)) for policy in policies]
    print(_rendered(judged, arguments), end="")
    return worst_exit_code(judged)


def worst_exit_code(judged: Sequence[Judged]) -> int:
    worst_first = (1, 9, 8, 0)
    return min((each.verdict.status.exit_code for each in judged), key=worst_first.index)


def _rendered(judged: Sequence[Judged], arguments: argparse.Namespace) -> str:
    if arguments.prometheus:
        return render_prometheus([(each.verdict, each.record) for each in judged])
    if arguments.json:
        documents = [render_json(each.verdict, each.record, each.summary) for each in judged]
        return documents[0] if len(documents) == 1 else f"[{','.join(documents)}]\n"
    if arguments.markdown:
        return "\n".join(render_markdown(each.verdict, each.record, each.summary) for each in judged)
    colour = sys.stdout.isatty()
    tables = [render_verdict(each.verdict, each.record, each.summary, colour=colour) for each in judged]
    return "\n\n".join(tables) + "\n"


def policies_of(names: Sequence[str] | None, records: Sequence[Record]) -> list[Policy]:
    """The policies `names`, or all that judged the runs live. Raises UsageError or PolicyError."""
    if names:
        found = [load_policy(name) for name in names]
    else:
        found = [_recorded_policy(named) for record in records for named in _named_policies(record)]
    return list({policy.file: policy for policy in found}.values())


def _named_policies(record: Record) -> list[Record]:
    named = [one for one in record.get("policies") or [record.get("policy")] if one and one.get("path")]
    if not named:
        raise UsageError(f"run {record['run_id']} was judged by no policy file: name one with --slo-policy")
    return named


def _recorded_policy(recorded: Record) -> Policy:
    try:
        policy = load_policy(recorded["path"])
    except PolicyError as error:
        raise UsageError(f"{error}\nname the policy with --slo-policy") from error
    if policy.sha256 != recorded.get("sha256"):
        raise UsageError(
            f"{recorded['path']} has changed since it judged the run: name it with --slo-policy to judge by it as it "
            "is now"
        )
    return policy
