"""A run compared with an earlier one of the same load, and with one that cannot be compared with."""

import shutil
import sys

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
    assert inferslo("compare", second).ret == 0
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
