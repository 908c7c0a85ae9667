"""A test that several policies judge: all of them must hold, live and again."""

import json
import sys

from gate_project import POLICY, run


def inferslo(pytester, *arguments):
    return pytester.run(sys.executable, "-m", "pytest_inferslo.cli", *arguments)


def test_each_policy_of_the_command_line_must_hold(project):
    pytester = project(rate=100, seconds=3)
    strict = POLICY.format(limit="1ms", more="").replace("policy: quick", "policy: strict")
    (pytester.path / "slo_policies" / "strict.yaml").write_text(strict)
    result = run(
        pytester, "--slo-policy=strict", "--slo-policy=slo_policies/quick.yaml", "--slo-policy=quick"
    )
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAIL: steady*policy strict", "PASS: steady*policy quick"])

    record = json.loads((pytester.path / ".inferslo" / "latest" / "run.json").read_text())
    assert [policy["name"] for policy in record["policies"]] == [
        "strict",
        "quick",
    ]  # named twice, judged once

    again = inferslo(pytester, "judge", ".inferslo/latest")
    assert again.ret == 1
    again.stdout.fnmatch_lines(["FAIL: steady*policy strict", "PASS: steady*policy quick"])
    listed = inferslo(pytester, "judge", ".inferslo/latest", "--json").stdout.str()
    assert [verdict["status"] for verdict in json.loads(listed)] == ["FAIL", "PASS"]
    one = inferslo(pytester, "judge", ".inferslo/latest", "--json", "--slo-policy=quick")
    assert (one.ret, json.loads(one.stdout.str())["status"]) == (0, "PASS")
    useless = inferslo(
        pytester, "judge", ".inferslo/latest", "--slo-policy=quick", "--baseline=.inferslo/latest"
    )
    useless.stderr.fnmatch_lines(["*--baseline had no effect*"])
    side_by_side = inferslo(pytester, "compare", ".inferslo/latest", ".inferslo/latest")
    assert side_by_side.ret == 4
    side_by_side.stderr.fnmatch_lines(["*several policies*--slo-policy*"])


def test_the_configuration_may_name_several(project):
    pytester = project()
    pytester.makeini("[pytest]\ninferslo_slo_policy = quick nowhere\n")
    result = run(pytester, "--collect-only")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*nowhere*no such policy*"])


def test_a_name_means_the_policy_of_the_tests_own_folder(pytester):
    """Two services of one repository, each with a policy of the same name."""
    for folder, metric in (("a", "e2e"), ("b", "tttf")):
        policies = pytester.mkdir(folder) / "slo_policies"
        policies.mkdir()
        (policies / "quick.yaml").write_text(f"policy: quick\nobjectives: [{metric} p50 <= 1s]\n")
        (pytester.path / folder / f"test_{folder}.py").write_text(
            "import pytest\n\n@pytest.mark.slo('quick')\ndef test_it(offer_load): pass\n"
        )
    result = run(pytester, "--collect-only")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*b/slo_policies/quick.yaml:2*tttf*"])
