"""A run compared with an earlier one of the same load, and with one that cannot be compared with."""

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
