"""5 % of the traffic on a candidate beside the stable server, judged against it while both run.

    pytest --backend=scenarios/groups/canary.yaml scenarios/test_canary.py

Heavy: a p99 of the candidate needs 459 requests of its own, so 20 times as many in all.
"""

import pytest

from pytest_inferslo import Scenario, poisson, synthetic


@pytest.mark.heavy
@pytest.mark.slo("canary-rollback")
def test_canary(offer_load):
    offer_load(
        Scenario(
            arrivals=poisson("100/s"),
            warmup="10s",
            duration="5m",
            prompts=synthetic(input_tokens=(16, 64), output_tokens=8),
            endpoints={"stable": 0.95, "candidate": 0.05},
        )
    )
