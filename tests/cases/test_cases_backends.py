"""Situations of a server that looks alive."""

from __future__ import annotations

import pytest
from gate_runs import SCRIPTS

from pytest_inferslo import backends
from pytest_inferslo.backends import BackendOptions
from pytest_inferslo.errors import BackendStartError
from pytest_inferslo.servers.scripted import scripted
from pytest_inferslo.servers.scripted_cli import load_script


def test_case_42_ready_means_one_real_completion() -> None:
    with scripted(load_script(SCRIPTS / "hangs.yaml")) as server:
        options = BackendOptions(start_timeout_s=1.0)
        backend = backends.resolve(server.url, options)
        with pytest.raises(BackendStartError, match="completion"), backends.start(backend, options):
            pytest.fail("a server without a completion was called ready")
        assert server.log
    with scripted(load_script(SCRIPTS / "good.yaml")) as server:
        backend = backends.resolve(server.url, options)
        with backends.start(backend, options) as running:
            assert running.endpoints[0].model == "scripted"


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_case_40_probes_go_direct(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with scripted(load_script(SCRIPTS / "good.yaml")) as server:
        options = BackendOptions(start_timeout_s=5.0)
        with backends.start(backends.resolve(server.url, options), options):
            assert server.log
