"""A verdict is the session's: no test can go on as if its load had not been judged."""

import pytest

HEAD = """\
import pytest
from pytest_inferslo import Scenario, constant, synthetic

LOAD = Scenario(arrivals=constant("{rate}/s"), duration="1s", drain="5s", {more}
                prompts=synthetic(input_tokens=8, output_tokens=2))
pytestmark = pytest.mark.slo("p.yaml")

def test_caught(offer_load):
    try:
        offer_load(LOAD)
    except BaseException:
        pass
"""

BREACHED = """
from pytest_inferslo.errors import RecordError
from pytest_inferslo.storage.run_directory import RunDirectory

def test_skipped(offer_load):
    try:
        offer_load(LOAD)
    except BaseException:
        pytest.skip("never mind")

def test_raises(offer_load):
    with pytest.raises(BaseException):
        offer_load(LOAD)

@pytest.mark.xfail
def test_xfail(offer_load):
    offer_load(LOAD)

def test_refused(offer_load):
    with pytest.raises(BaseException):
        offer_load("no scenario")

def test_nothing(offer_load):
    pass

@pytest.fixture
def loaded(offer_load):
    with pytest.raises(BaseException):
        offer_load(LOAD)

def test_fixture(loaded):
    pass

def full(self, name, text):
    raise RecordError("no space left")

def test_full_disk(offer_load, monkeypatch):
    monkeypatch.setattr(RunDirectory, "write_file", full)
    offer_load(LOAD)
"""

POLICY = """\
policy: p
confidence: 90%
objectives: [e2e p50 <= {limit}]
guards: {{send_lag: 1s, loop_lag: 5s}}
"""


@pytest.fixture
def session(pytester, monkeypatch):
    """A pytest session of the tests above, with a load that breaks its policy unless `limit` says otherwise."""
    monkeypatch.setenv("TMPDIR", str(pytester.path))  # a host lock of its own

    def run(*arguments, limit="1us", rate=40, more="", tests=""):
        (pytester.path / "p.yaml").write_text(POLICY.format(limit=limit))
        pytester.makepyfile(HEAD.format(rate=rate, more=more) + tests)
        return pytester.runpytest_subprocess("-rA", "-p", "no:cacheprovider", *arguments, timeout=90)

    return run


def test_only_xfail_forgives_a_breach(session, pytester):
    result = session(tests=BREACHED)
    assert result.ret == 1
    lines = ["FAILED*::test_caught*", "FAILED*::test_skipped*", "FAILED*::test_raises*", "FAILED*::test_fixture*",
             "XFAIL*::test_xfail*", "ERROR*::test_refused*", "ERROR*::test_nothing*",
             "ERROR*::test_full_disk*"]  # fmt: skip
    for line in ["*e2e p50*FAIL*", "*takes a Scenario*", "*passed without offering a load*", *lines]:
        result.stdout.fnmatch_lines([line])
    assert result.parseoutcomes() == {"failed": 4, "xfailed": 1, "errors": 3}
    assert not (
        pytester.path / ".inferslo" / "latest" / "verdict.json"
    ).exists()  # the disk was full before it


def test_an_invalid_run_that_the_test_swallows_is_an_error(session):
    result = session(limit="10s", rate=400, more="max_in_flight=1, max_connections=1,")
    assert (result.ret, result.parseoutcomes()) == (9, {"errors": 1})


@pytest.mark.parametrize(("action", "code"), [("fail", 8), ("warn", 0)])
def test_an_inconclusive_run_is_forgiven_by_the_option_alone(session, action, code):
    assert session(f"--inconclusive={action}", limit="10s", rate=3).ret == code
