"""A user's project in miniature: a policy and a scenario, and real pytest on them."""

POLICY = """\
policy: quick
objectives:
  - e2e p50 <= {limit}
  - error_rate <= 5%
guards:
  send_lag: 500ms
  loop_lag: 2s
  simulator_lag: 2s
{more}
"""

TEST = """\
import pytest
from pytest_inferslo import Scenario, constant, synthetic

@pytest.mark.slo("quick")
def test_steady(offer_load):
    offer_load(Scenario(
        arrivals=constant("{rate}/s"), duration="{seconds}s", drain="5s",
        prompts=synthetic(input_tokens=16, output_tokens=4)))
"""


def run(pytester, *arguments):
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments, timeout=120)
