"""A constant rate: what the server does under the load that it is built for."""

import pytest

from pytest_inferslo import Scenario, constant, synthetic


@pytest.mark.slo("interactive-chat")
def test_sustained(offer_load):
    offer_load(
        Scenario(
            arrivals=constant("36/s"),
            warmup="2s",
            duration="28s",
            prompts=synthetic(input_tokens=(16, 64), output_tokens=8),
        )
    )
