"""Case 22: what a policy names and no test evaluated fails the session, however the session was run."""

import pytest

TEST = """\
import pytest

@pytest.mark.skip
@pytest.mark.slo("a/p.yaml", "b/p.yaml")
def test_one(offer_load):
    pass

def test_another():
    pass
"""


@pytest.mark.parametrize("arguments", [(), ("-n1",)], ids=["alone", "xdist"])
def test_skipped_scenarios_of_policies_of_one_name(pytester, arguments):
    for folder, scenarios in (("a", "[one, two]"), ("b", "[three]")):
        text = f"policy: p\nobjectives: [e2e p50 <= 1s]\nscenarios: {scenarios}\n"
        pytester.mkdir(folder).joinpath("p.yaml").write_text(text)
    pytester.makepyfile(TEST)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=60)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*policy p: 2 named scenarios were not evaluated: one, two"])
    result.stdout.fnmatch_lines(["*policy p: 1 named scenario was not evaluated: three"])
