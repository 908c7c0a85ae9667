import pytest
from gate_project import POLICY, TEST


@pytest.fixture(autouse=True)
def measured_once(monkeypatch, tmp_path_factory):
    """What this machine can offer is kept for all tests, though each has a home of its own."""
    monkeypatch.setenv("INFERSLO_CACHE", str(tmp_path_factory.getbasetemp().parent / "inferslo-cache"))


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
