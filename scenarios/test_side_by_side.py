"""One scenario on several backends, in one table.

    pytest --backend=vllm --backend=trtllm --backend=triton --model=/models/llama scenarios/test_side_by_side.py

Heavy: prompts and answers are long-tailed as in real chats, and a minute long for each backend.
"""

import pytest

from pytest_inferslo import Scenario, lognormal, poisson, synthetic


@pytest.mark.heavy
@pytest.mark.slo("interactive-chat")
def test_side_by_side(offer_load):
    offer_load(
        Scenario(
            arrivals=poisson("20/s"),
            warmup="5s",
            duration="60s",
            prompts=synthetic(lognormal(120, 0.8, low=16, high=700), lognormal(40, 0.7, low=4, high=200)),
        )
    )
