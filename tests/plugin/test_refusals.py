"""What would be taken without a word and have no effect is refused before a server starts, or told at the end."""

import shutil
from pathlib import Path

import pytest
from gate_project import run

SKIPPED = """\
import pytest

@pytest.mark.skip
@pytest.mark.slo("quick")
def test_steady(offer_load):
    pass
"""


def refused(pytester, *arguments):
    result = run(pytester, *arguments)
    assert result.ret == 4
    assert not (pytester.path / ".inferslo" / "runs").exists()
    return result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--backend=vllm"], "*--backend=vllm needs --model*"),
        (["--backend=trtllm"], "*--backend=trtllm needs --model*"),
        (["--backend=pair.yaml"], "*big: --backend=vllm needs --model*"),
        (["--backend=http://127.0.0.1:1", "--api-key-env=NO_SUCH_VARIABLE"], "*NO_SUCH_VARIABLE*not set*"),
        (["--backend=http://127.0.0.1:1", "--backend-arg=--x"], "*server arguments*cannot be given*"),
        (["--backend=http://127.0.0.1:1", "--backend-env=A=b"], "*--backend-env has no effect*"),
        (["--backend-env=A=1", "--backend-env=A=2"], "*--backend-env: A is given twice*"),
        (["--server-pid=1"], "*--server-pid has no effect on --backend=sim*"),
        (["--backend-python=/usr/bin/python3"], "*--backend-python has no effect on --backend=sim*"),
        (["--inferslo-baseline=nowhere"], "*--inferslo-baseline=nowhere*"),
        (["--inferslo-expect-workers=2"], "*needs --inferslo-bind*"),
        (["--inferslo-bind=10.0.0.5:5557"], "*has no effect*"),
        (["--inferslo-expect-workers=1", "--inferslo-bind=here"], "*expected ADDR:PORT*"),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else "",
)
def test_options(project, arguments, says):
    pytester = project(test=SKIPPED)
    (pytester.path / "pair.yaml").write_text("backends:\n- {backend: sim}\n- {backend: vllm, name: big}\n")
    refused(pytester, *arguments).fnmatch_lines([says])


def test_under_xdist_the_refusal_is_told_as_ever(project):
    said = refused(
        project(test=SKIPPED.replace("@pytest.mark.skip\n", "")), "-n", "1", "--slo-policy=nowhere"
    )
    said.fnmatch_lines(["ERROR: nowhere: there is no such policy*"])
    said.no_fnmatch_line("*INTERNALERROR*")


def test_what_one_of_several_backends_needs_may_be_given(project):
    arguments = ["--backend=sim", "--backend=http://127.0.0.1:1", "--server-pid=1"]
    assert run(project(test=SKIPPED), *arguments).ret == 0


def test_what_is_configured_for_other_sessions_is_told_and_not_refused(project):
    pytester = project(test=SKIPPED)
    pytester.makeini(
        "[pytest]\ninferslo_backend_python = /opt/engine/bin/python\ninferslo_bind = 10.0.0.5:5557\n"
    )
    result = run(pytester)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["note: the configured --backend-python has no effect on --backend=sim"])


def test_to_list_tests_needs_no_engine(project):
    assert run(project(test=SKIPPED), "--backend=vllm", "--collect-only").ret == 0


@pytest.mark.parametrize(
    ("test", "says"),
    [
        (SKIPPED.replace("offer_load", "tmp_path"), "*test_steady: is marked with slo*takes no offer_load*"),
        (
            SKIPPED.replace('"quick"', '"quick", policy="slow"'),
            "*slo() takes policy names or paths, and no keywords*",
        ),
        (
            SKIPPED.replace("def test", "@pytest.mark.engine_args(max_num_seqs=[])\ndef test"),
            "*names no value*",
        ),
    ],
    ids=["no load", "keyword", "no value"],
)
def test_marks(project, test, says):
    result = run(project(test=test.replace("{", "{{").replace("}", "}}")))
    assert result.ret != 0
    assert result.stdout.str() + result.stderr.str()
    (result.stderr if result.ret == 4 else result.stdout).fnmatch_lines([says])


def test_a_load_that_pytest_did_not_see_coming_is_not_judged_by_nothing(project):
    test = SKIPPED.replace("@pytest.mark.skip\n", "").replace('@pytest.mark.slo("quick")\n', "")
    test = test.replace(
        "(offer_load):\n    pass", "(request):\n    request.getfixturevalue('offer_load')(None)"
    )
    result = run(project(test=test))
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*offer_load*"])


def test_a_backend_that_a_policy_misspells_is_refused(project):
    pytester = project(test=SKIPPED, more="overrides: {{backends: {{vlm: {{confidence: 95%}}}}}}".format())
    refused(pytester).fnmatch_lines(["*quick.yaml: overrides for backend 'vlm': did you mean 'vllm'?*"])


@pytest.mark.parametrize("arguments", [(), ("-n1",)], ids=["alone", "xdist"])
def test_overrides_for_what_nobody_knows_are_told(project, arguments):
    overrides = """\
overrides:
  backends: {sim: {confidence: 95%}, sglang: {confidence: 95%}, old-cluster: {confidence: 95%}}
  scenarios: {steady: {confidence: 95%}, other: {confidence: 95%}, staedy: {confidence: 95%}}
"""
    test = SKIPPED + "\n\ndef test_other(): pass\n"
    result = run(project(test=test, more=overrides), "-k", "steady", *arguments)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["note: policy quick has overrides for scenario 'staedy'*did you mean 'steady'*"]
    )
    result.stdout.fnmatch_lines(["note: policy quick has overrides for backend 'old-cluster'*"])
    assert result.stdout.str().count("note:") == 2


def test_a_baseline_that_no_policy_refers_to_is_told(project, tmp_path):
    pytester = project(test=SKIPPED)
    shutil.copy(Path(__file__).parents[1] / "storage" / "data" / "run.json", tmp_path)
    result = run(pytester, f"--inferslo-baseline={tmp_path}")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["note: --inferslo-baseline=*had no effect*"])


BAD_SCENARIOS = """\
import pytest
from pytest_inferslo import Scenario, constant, synthetic

PROMPTS = synthetic(input_tokens=16, output_tokens=4)

def scenario(**changed):
    return Scenario(**{"arrivals": constant("20/s"), "duration": "2s", "prompts": PROMPTS} | changed)

@pytest.fixture
def made():
    return scenario(duration="-2s")

@pytest.mark.slo("quick")
def test_in_the_test(offer_load):
    offer_load(
        scenario(arrivals=constant("20")),
    )

@pytest.mark.slo("quick")
def test_in_a_fixture(offer_load, made):
    offer_load(made)

@pytest.mark.xfail(raises=ValueError, strict=True)
@pytest.mark.slo("quick")
def test_that_expects_another_error(offer_load):
    scenario(duration="0s")
"""


def test_a_scenario_that_cannot_be_is_told_by_its_place(project):
    pytester = project(test=SKIPPED)
    pytester.makepyfile(test_load=BAD_SCENARIOS, test_top=BAD_SCENARIOS + "\nTOP = scenario(seed=-1)\n")
    result = run(pytester, "test_load.py")
    assert result.ret == 1
    assert result.parseoutcomes() == {"errors": 2, "failed": 1}
    text = result.stdout.str()
    assert "\ntest_load.py:7: duration is '-2s': " in text
    assert "\ntest_load.py:16: rate is '20': " in text
    assert "ERROR test_load.py::test_in_the_test - UnofferedLoad: test_load.py:16: " in text
    assert "scenario.py" not in text.partition("test_that_expects_another_error")[0]

    top = run(pytester, "test_top.py")
    assert top.ret == 2
    top.stdout.fnmatch_lines(["test_top.py:7: seed is -1*"])
    whole = run(pytester, "test_top.py", "--tb=long")
    whole.stdout.fnmatch_lines(["*scenario.py:*"])
