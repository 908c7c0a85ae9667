"""Independent users: the same mean rate as `sustained`, but arrivals cluster as they do in life."""

import pytest

from pytest_inferslo import Scenario, poisson, synthetic


@pytest.mark.slo("interactive-chat")
def test_poisson(offer_load):
    offer_load(
        Scenario(
            arrivals=poisson("36/s"),
            warmup="2s",
            duration="28s",
            prompts=synthetic(input_tokens=(16, 64), output_tokens=8),
        )
    )
