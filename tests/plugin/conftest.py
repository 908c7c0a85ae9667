import pytest
from gate_project import POLICY, TEST


@pytest.fixture
def project(pytester, monkeypatch):
    """A user's project: `project(limit=...)` writes a policy and a scenario into it."""
    monkeypatch.setenv("TMPDIR", str(pytester.path))  # a host lock of its own

    def write(limit="10s", rate=100, seconds=5, more="", test=TEST):
        (pytester.path / "slo_policies").mkdir(exist_ok=True)
        (pytester.path / "slo_policies" / "quick.yaml").write_text(POLICY.format(limit=limit, more=more))
        pytester.makepyfile(test_load=test.format(rate=rate, seconds=seconds))
        return pytester

    return write
