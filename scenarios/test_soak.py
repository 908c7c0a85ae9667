"""24 hours with a day's rise and fall: leaks, drift and rare faults show in no shorter run.

Heavy: run it with `-m heavy`; `--load-seconds=600` squeezes the day into ten minutes for a try.
"""

import pytest

from pytest_inferslo import Scenario, sine, synthetic


@pytest.mark.heavy
@pytest.mark.slo("reliability-first")
def test_soak(offer_load):
    offer_load(
        Scenario(
            arrivals=sine(low="5/s", high="50/s", period="24h"),
            warmup="1m",
            duration="24h",
            prompts=synthetic(input_tokens=(32, 96), output_tokens=(8, 16)),
        )
    )
