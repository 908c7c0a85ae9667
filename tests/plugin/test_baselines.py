"""A run compared with an earlier one of the same load, and with one that cannot be compared with."""

import json
import shutil
import sys

import pytest
from gate_project import TEST, run


def test_a_baseline_of_the_same_load_counts_and_of_another_is_refused_before_the_load(project):
    pytester = project(rate=100, seconds=3)
    assert run(pytester).ret == 0
    (first,) = (pytester.path / ".inferslo" / "runs").iterdir()
    (pytester.path / "slo_policies" / "follow.yaml").write_text(
        "policy: follow\nobjectives: [e2e p50 <= 1000% of baseline]\n"
        "guards: {send_lag: 500ms, loop_lag: 2s, simulator_lag: 2s}\n"
    )
    compared = run(pytester, "--slo-policy=follow", f"--inferslo-baseline={first}", "--load-seconds=60")
    assert compared.ret == 0
    compared.stdout.fnmatch_lines(["*--load-seconds=60 leaves its 3 s as they are*"])
    compared.stdout.fnmatch_lines(["PASS: steady*policy follow"])
    compared.stdout.no_fnmatch_line("*differs in*")

    pytester.makepyfile(test_load=TEST.format(rate=50, seconds=3))
    other = run(pytester, "--slo-policy=follow", f"--inferslo-baseline={first}")
    assert other.ret == 1
    other.stdout.fnmatch_lines(["*another load (other arrivals)*"])
    assert len(list((pytester.path / ".inferslo" / "runs").iterdir())) == 2


def test_a_saved_run_is_judged_and_compared_against_the_same_baseline_and_policy(project):
    pytester = project(rate=100, seconds=3)
    assert run(pytester).ret == 0
    (first,) = (pytester.path / ".inferslo" / "runs").iterdir()
    policy = pytester.path / "slo_policies" / "follow.yaml"
    policy.write_text(
        "policy: follow\nobjectives: [e2e p50 <= 1000% of baseline]\n"
        "guards: {send_lag: 500ms, loop_lag: 2s, simulator_lag: 2s}\n"
    )
    assert run(pytester, "--slo-policy=follow", f"--inferslo-baseline={first}").ret == 0
    (second,) = set((pytester.path / ".inferslo" / "runs").iterdir()) - {first}

    def inferslo(*arguments):
        return pytester.run(sys.executable, "-m", "pytest_inferslo.cli", *map(str, arguments))

    again = inferslo("judge", second, "--json")
    assert again.ret == 0
    assert again.stdout.str().strip() == (second / "verdict.json").read_text().strip()
    alone = inferslo("compare", second)
    assert alone.ret == 0
    alone.stderr.fnmatch_lines(["*this is one run, and nothing to compare it with*"])
    assert inferslo("compare", first, second, "--slo-policy=follow").ret == 1  # the first has none
    assert inferslo("compare", second, second, "--slo-policy=follow", "--baseline", first).ret == 0

    kept = policy.read_text()
    policy.write_text(kept.replace("1000%", "2000%"))
    for command in ("judge", "compare"):
        refused = inferslo(command, second)
        assert refused.ret == 4
        refused.stderr.fnmatch_lines(["*follow.yaml has changed since it judged the run*--slo-policy*"])
        assert inferslo(command, second, "--slo-policy=follow").ret == 0

    policy.write_text(kept)
    shutil.move(first, pytester.path / "elsewhere")
    for command in ("judge", "compare"):
        refused = inferslo(command, second)
        assert refused.ret == 4
        refused.stderr.fnmatch_lines([f"*baseline {first.name}*--baseline*"])


FOLLOW = """\
policy: follow
objectives:
  - error_rate <= 50%
  - e2e p50 <= 1000% of baseline
guards: {send_lag: 500ms, loop_lag: 2s, simulator_lag: 2s}
"""


def test_what_needs_a_baseline_is_refused_before_a_server_starts_and_recorded_on_demand(project):
    pytester = project(rate=100, seconds=3)
    policy = pytester.path / "slo_policies" / "follow.yaml"
    policy.write_text(FOLLOW)
    refused = run(pytester, "--slo-policy=follow")
    assert refused.ret == 4
    refused.stderr.fnmatch_lines(
        [
            "*follow.yaml:4: e2e p50 <= 1000% of baseline*",
            "*--inferslo-baseline=RUN*--inferslo-record-baseline*",
        ]
    )
    assert not (pytester.path / ".inferslo").exists()
    assert run(pytester, "--slo-policy=follow", "--collect-only").ret == 0

    first = run(pytester, "--slo-policy=follow", "--inferslo-record-baseline")
    assert first.ret == 8
    first.stdout.fnmatch_lines(
        [
            "note: *follow.yaml:4: *INCONCLUSIVE at best",
            "INCONCLUSIVE: steady*",
            "note: *--inferslo-baseline=*",
        ]
    )
    (recorded,) = (pytester.path / ".inferslo" / "runs").iterdir()
    assert f"--inferslo-baseline=.inferslo/runs/{recorded.name}" in first.stdout.str()
    judged = pytester.run(sys.executable, "-m", "pytest_inferslo.cli", "judge", recorded)
    assert judged.ret == 8, "a saved run keeps its verdict"

    latest = ("--slo-policy=follow", "--inferslo-baseline=.inferslo/latest")
    twice = run(pytester, *latest, "--backend=sim", "--backend=sim")
    assert twice.ret in (0, 8), "what three seconds prove is not the question here"
    for path in set((pytester.path / ".inferslo" / "runs").iterdir()) - {recorded}:
        assert json.loads((path / "run.json").read_text())["baseline"]["run_id"] == recorded.name


@pytest.mark.parametrize(
    ("settings", "says"), [("optional: true", "left out of the verdict"), ("severity: warn", "cannot warn")]
)
def test_a_promise_that_does_not_decide_is_told_of_before_the_load(project, settings, says):
    pytester = project(rate=100, seconds=1)
    promise = f"{{objective: e2e p50 <= 1000% of baseline, {settings}}}"
    (pytester.path / "slo_policies" / "follow.yaml").write_text(
        FOLLOW.replace("e2e p50 <= 1000% of baseline", promise)
    )
    result = run(pytester, "--slo-policy=follow", "--setup-plan")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["collected 1 item", f"note: *follow.yaml:4: *{says}*"])


@pytest.mark.parametrize(
    ("more", "options", "code"),
    [
        ("overrides: {scenarios: {steady: {remove: [e2e p50]}}}", ["--setup-plan"], 0),
        ("overrides: {scenarios: {other: {confidence: 90%}}}", [], 4),
        ("overrides: {scenarios: {other: {remove: [e2e p50]}}}", ["--setup-plan"], 0),
        ("overrides: {scenarios: {other: {remove: [e2e p50]}}}", [], 1),
    ],
)
def test_overrides_decide_whether_a_baseline_is_needed(project, more, options, code):
    """A load may be given another name than its test's: what that leaves open is refused at the load."""
    pytester = project(rate=100, seconds=1)
    (pytester.path / "slo_policies" / "follow.yaml").write_text(FOLLOW + more + "\n")
    result = run(pytester, "--slo-policy=follow", *options)
    assert result.ret == code
    assert not (pytester.path / ".inferslo").exists()
    if code == 1:
        result.stdout.fnmatch_lines(["*--inferslo-record-baseline*", "offered at test_load.py*"])


def test_to_record_and_to_compare_exclude_each_other(project):
    pytester = project()
    result = run(pytester, "--inferslo-record-baseline", "--inferslo-baseline=x")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--inferslo-record-baseline and --inferslo-baseline exclude each other*"])
