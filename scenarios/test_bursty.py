"""Bursts: a second of three times the base rate in every five. Continuous batching cuts the tail here.

Policies may look at the bursts alone: `ttft p95 <= 300ms within phase:burst`.
"""

import pytest

from pytest_inferslo import Scenario, bursts, synthetic


@pytest.mark.slo("interactive-chat")
def test_bursty(offer_load):
    offer_load(
        Scenario(
            arrivals=bursts(base="28/s", peak="84/s", every="5s", length="1s"),
            warmup="3s",
            duration="25s",
            prompts=synthetic(input_tokens=(16, 64), output_tokens=8),
        )
    )
