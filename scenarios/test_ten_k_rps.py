"""10,000 requests/s for a minute, over as many replicas as that takes: no single engine does it.

Heavy: run it with `-m heavy` and a group of replicas as the backend. It is about CPU overhead at peak.
"""

import pytest

from pytest_inferslo import Scenario, constant, synthetic


@pytest.mark.heavy
@pytest.mark.slo("performance-first")
def test_ten_k_rps(offer_load):
    offer_load(
        Scenario(
            arrivals=constant("10000/s"),
            warmup="10s",
            duration="60s",
            prompts=synthetic(input_tokens=32, output_tokens=8),
            max_in_flight=20_000,
            max_connections=20_000,
        )
    )
