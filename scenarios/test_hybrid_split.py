"""Interactive requests on one backend, bulk requests on another, at the same time in one scenario.

    pytest --backend=scenarios/groups/hybrid.yaml scenarios/test_hybrid_split.py

Heavy: it needs a group of two endpoints named `interactive` and `bulk`.
"""

import pytest

from pytest_inferslo import Scenario, constant, poisson, stream, synthetic


@pytest.mark.heavy
@pytest.mark.slo("interactive-chat")
def test_hybrid_split(offer_load):
    offer_load(
        Scenario(
            arrivals=[
                stream("interactive", poisson("20/s"), endpoints={"interactive": 1}),
                stream(
                    "bulk",
                    constant("60/s"),
                    endpoints={"bulk": 1},
                    prompts=synthetic(input_tokens=(64, 256), output_tokens=16),
                ),
            ],
            warmup="5s",
            duration="60s",
            prompts=synthetic(input_tokens=(16, 64), output_tokens=8),
        )
    )
