"""Many tenants, one base model: requests spread over the adapters that the server lists, few of them popular.

    pytest --backend=vllm --model=BASE --lora a=/loras/a --lora b=/loras/b scenarios/test_multi_lora.py

The base model gets a fifth: in it the policy sees what a switch of adapters costs. Heavy: each adapter is judged alone.
"""

import pytest

from pytest_inferslo import Scenario, adapters, poisson, synthetic


@pytest.mark.heavy
@pytest.mark.slo("multi-tenant-lora")
def test_multi_lora(offer_load, backend):
    served = backend.start().adapters
    if not served:
        pytest.fail("the server lists no adapter; give it some, as this file's first lines show")
    offer_load(
        Scenario(
            arrivals=poisson("50/s"),
            warmup="10s",
            duration="2m",
            prompts=synthetic(input_tokens=(16, 64), output_tokens=8),
            adapters=adapters(served, "zipf", base=0.2),
        )
    )
