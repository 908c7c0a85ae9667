"""The same load on a model as it is and quantised to FP8 by the engine, side by side (vLLM on a GPU).

Heavy: the server starts anew for each; point `--model` at other builds to compare those.
"""

import pytest

from pytest_inferslo import Scenario, poisson, synthetic


@pytest.mark.heavy
@pytest.mark.engine_args(quantization=[None, "fp8"])
@pytest.mark.slo("interactive-chat")
def test_mixed_precision(offer_load):
    offer_load(
        Scenario(
            arrivals=poisson("36/s"),
            warmup="5s",
            duration="60s",
            prompts=synthetic(input_tokens=(64, 384), output_tokens=(16, 64)),
        )
    )
