"""The same load at two sizes of the batching window, side by side: `max_num_batched_tokens` 2048 and 4096.

Heavy: the server starts anew for each size.
"""

import pytest

from pytest_inferslo import Scenario, poisson, synthetic


@pytest.mark.heavy
@pytest.mark.engine_args(max_num_batched_tokens=[2048, 4096])
@pytest.mark.slo("interactive-chat")
def test_batch_window(offer_load):
    offer_load(
        Scenario(
            arrivals=poisson("36/s"),
            warmup="5s",
            duration="60s",
            prompts=synthetic(input_tokens=(64, 384), output_tokens=(8, 32)),
        )
    )
