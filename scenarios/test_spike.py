"""A spike from 150 to 3,500 requests/s and back: what breaks, and how long the server needs to recover.

Heavy: it wants replicas or a server that takes the spike; run it with `-m heavy`.
"""

import pytest

from pytest_inferslo import Scenario, spike, synthetic


@pytest.mark.heavy
@pytest.mark.slo("reliability-first")
def test_spike(offer_load):
    offer_load(
        Scenario(
            arrivals=spike(base="150/s", peak="3500/s", at="20s", length="10s", edge="1s", process="poisson"),
            warmup="10s",
            duration="90s",
            prompts=synthetic(input_tokens=(32, 96), output_tokens=(8, 16)),
            max_in_flight=20_000,
            max_connections=20_000,
        )
    )
