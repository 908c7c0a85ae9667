"""The two fixtures: `backend`, the server under test, and `offer_load`, which offers a scenario and gates the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_inferslo.collection import POLICIES, BackendChoice, options_of
from pytest_inferslo.session import NOTES, RAISED, RUNS

if TYPE_CHECKING:
    from pytest_inferslo.gate import LoadOffer
    from pytest_inferslo.rig import BackendUnderTest, Rig

RIG = pytest.StashKey["Rig"]()


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> BackendUnderTest:
    """The backend that this test runs on. It starts when it is first needed and serves later tests too."""
    options = options_of(request.config)
    choice = getattr(request, "param", None) or BackendChoice(options.backends[0])
    return _rig(request.config).backend(choice)


@pytest.fixture
def offer_load(request: pytest.FixtureRequest, backend: BackendUnderTest) -> LoadOffer:
    """Call it with a `Scenario`: it offers that load to the backend, and the test fails unless its policies hold."""
    from pytest_inferslo.gate import LoadOffer

    item = request.node
    runs: list[dict[str, Any]] = []
    raised: list[BaseException] = []
    item.stash[RUNS], item.stash[RAISED] = runs, raised
    return LoadOffer(item, _rig(request.config), backend, item.stash.get(POLICIES, ()), runs, raised)


def _rig(config: pytest.Config) -> Rig:
    if RIG not in config.stash:
        from pytest_inferslo.rig import Rig

        config.stash[RIG] = Rig(config, options_of(config))
    return config.stash[RIG]


def close_rig(config: pytest.Config) -> None:
    """Stops every server and load-generating process of the session."""
    rig = config.stash.get(RIG, None)
    if rig is not None:
        del config.stash[RIG]
        config.stash.setdefault(NOTES, []).extend(rig.close())
