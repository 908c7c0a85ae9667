"""Raises the rate step by step. The policy compares each step's p99 with the first one's: where it breaks is the knee.

Heavy: 30 s for each of eight steps, and the policy needs a GPU whose utilisation can be read. Choose the rates around
what one instance of yours serves; 0.8 x the knee's rate
times its mean latency is the concurrency cap to set per instance (Little's law).
"""

import pytest

from pytest_inferslo import Scenario, steps, synthetic

RATES = [f"{rate}/s" for rate in (20, 40, 60, 80, 100, 120, 140, 160)]


@pytest.mark.heavy
@pytest.mark.slo("latency-flat")
def test_knee(offer_load):
    offer_load(
        Scenario(
            arrivals=steps(RATES, every="30s", process="poisson"),
            warmup="10s",
            duration="4m",
            prompts=synthetic(input_tokens=(64, 256), output_tokens=(16, 64)),
        )
    )
