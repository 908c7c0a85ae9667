from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_inferslo.core.grammar import parse_objective
from pytest_inferslo.core.objective import ObjectiveError

REAL = [
    ("ttft p99.9 <= 250ms", "ttft p99.9", 250e6),
    ("ttft p99<=250ms", "ttft p99", 250e6),
    ("e2e median < 1s", "e2e p50", 1e9),
    ("error_rate < 5% for 24h", "error_rate for 86400s", 0.05),
    ("server_cpu_increase <= 30%", "server_cpu_increase", 0.3),
    ("goodput >= 95%", "goodput", 0.95),
    ("cost_per_million_tokens <= $0.12", "cost_per_million_tokens", 0.12),
    ("gpu_memory peak <= 23GiB", "gpu_memory max", 23 * 2**30),
    ("gpu_memory peak <= 90%", "gpu_memory max", 0.9),
    ("recovery_time <= 20s after spike", "recovery_time after spike", 20e9),
    ("e2e p99 <= 80ms within adapter:*", "e2e p99 within adapter:*", 80e6),
    ("e2e p99 <= 80ms for 10s within phase:spike, endpoint:a",
     "e2e p99 for 10s within endpoint:a,phase:spike", 80e6),
    ("output_tokens_per_second_per_gpu > 200 tokens/s", "output_tokens_per_second_per_gpu", 200),
    ("error_rate <= 0%", "error_rate", 0),
    ("output_tokens p5 >= 10 tokens", "output_tokens p5", 10),
]  # fmt: skip


@pytest.mark.parametrize(("text", "left", "limit"), REAL)
def test_an_objective_is_read(text: str, left: str, limit: float) -> None:
    objective = parse_objective(text)
    assert objective.left == left
    assert objective.limit.offset == limit
    assert objective.text == text


@pytest.mark.parametrize(
    ("text", "reference", "name", "at_100"),
    [
        ("ttft p99 <= 120% of baseline for 5m", "baseline", "", 120),
        ("ttft p99 <= 120% of endpoint:stable within endpoint:new", "endpoint", "stable", 120),
        ("ttft p50 <= 1ms above phase:single within phase:mixed", "phase", "single", 1_000_100),
    ],
)
def test_a_limit_may_follow_another_level(text: str, reference: str, name: str, at_100: float) -> None:
    limit = parse_objective(text).limit
    assert (limit.reference, limit.reference_name) == (reference, name)
    assert limit.at(100) == at_100


def test_percentiles_are_exact() -> None:
    statistic = parse_objective("ttft p99.9 <= 1s").statistic
    assert statistic.share == Fraction(999, 1000)
    assert str(statistic) == "p99.9"


def test_while_chooses_phases() -> None:
    text = "e2e p99 <= 150% of phase:low within phase:* while gpu_utilization <= 80%"
    condition = parse_objective(text).condition
    assert condition is not None
    assert condition.holds(0.8)
    assert not condition.holds(0.81)


@pytest.mark.parametrize(
    ("text", "offset", "told"),
    [
        ("tttf p99 <= 80ms", 0, "unknown metric 'tttf' (did you mean 'ttft'?)"),
        ("", 0, "names no metric"),
        ("<= 80ms", 0, "names no metric"),
        ("ttft <= 80ms", 5, "needs a statistic"),
        ("ttft p99 80ms", 0, "has no limit"),
        ("ttft p99 <=", 11, "has no limit"),
        ("ttft p99 <= 80", 12, "without a unit"),
        ("ttft p99 <= 80%", 12, "a share, but a time is expected"),
        ("ttft p99 <= nan", 12, "is not a time"),
        ("ttft p99 <= -5ms", 12, "sign"),
        ("ttft p100 <= 80ms", 5, "say max or min"),
        ("ttft p0 <= 80ms", 5, "say max or min"),
        ("ttft pp99 <= 80ms", 5, "did you mean 'p99'?"),
        ("ttft p99 quick <= 80ms", 9, "one word too many"),
        ("ttft p99 == 80ms", 9, "is no comparison"),
        ("throughput p99 >= 5/s", 11, "leave it out"),
        ("error_rate mean <= 5%", 11, "leave it out"),
        ("ttft p99 >= 80ms", 9, "better when smaller"),
        ("error_rate >= 5%", 11, "better when smaller"),
        ("goodput <= 5%", 8, "better when larger"),
        ("cost_per_million_tokens >= $1", 24, "better when smaller"),
        ("gpu_energy > 5kJ", 11, "better when smaller"),
        ("cost_per_million_tokens <= $0", 24, "can never hold"),
        ("gpu_memory peak <= 0B", 16, "can never hold"),
        ("ttft p99 <= 120% of endpoint:a within endpoint:a", 9, "compares endpoint:a with itself"),
        ("TTFT p99 <= 5ms", 0, "did you mean 'ttft'?"),
        ("error_rate <= 100%", 11, "can never fail"),
        ("error_rate < 120%", 11, "can never fail"),
        ("goodput >= 0%", 8, "can never fail"),
        ("gpu_memory peak <= 100%", 16, "can never fail"),
        ("ttft p99 <= 0ms", 9, "can never hold"),
        ("error_rate < 0%", 11, "can never hold"),
        ("goodput > 100%", 8, "can never hold"),
        ("output_tokens max >= 5 tokens", 18, "max has a ceiling"),
        ("output_tokens min <= 5 tokens", 18, "min has a floor"),
        ("ttft p99 <= 5ms for", 16, "is not followed by anything"),
        ("ttft p99 <= 5ms for 5m for 6m", 23, "stands twice"),
        ("ttft p99 <= 5ms for 1.5s", 20, "whole seconds"),
        ("throughput >= 5/s for 5m", 22, "not throughput"),
        ("ttft mean <= 5ms for 5m", 21, "not ttft mean"),
        ("server_cpu p95 <= 5% for 5m", 25, "not server_cpu p95"),
        ("ttft p99 <= 120% of endpoint:a for 5m", 35, "'for' takes a fixed limit or the baseline"),
        ("ttft p99 <= 5ms within adaptor:x", 23, "did you mean 'adapter'?"),
        ("ttft p99 <= 5ms within adapter:x,adapter:y", 33, "stands twice"),
        ("server_cpu mean <= 30% within adapter:x", 30, "not measured by adapter"),
        ("server_cpu_increase <= 30% within phase:x", 34, "measured for the whole run"),
        ("recovery_time <= 20s", 14, "needs 'after PHASE'"),
        ("ttft p99 <= 20s after spike", 22, "belongs to recovery_time"),
        ("ttft p99 <= 120% of basline", 20, "did you mean 'baseline'?"),
        ("ttft p99 <= 120% of adapter:*", 20, "needs one name"),
        ("ttft p99 <= 0% of baseline", 12, "a limit of nothing"),
        ("e2e p99 <= 1s while gpu_utilization <= 80%", 20, "needs 'within phase:*'"),
        ("e2e p99 <= 1s within phase:* while gpu_utilisation <= 80%", 35, "did you mean 'gpu_utilization'?"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_its_place(text: str, offset: int, told: str) -> None:
    with pytest.raises(ObjectiveError, match=re.escape(told)) as error:
        parse_objective(text)
    assert error.value.offset == offset


def test_the_condition_of_a_penalty_is_the_promise_that_it_breaks() -> None:
    promise = parse_objective("e2e p99 > 5ms", condition=True)
    assert promise.op == "<="
    assert promise.upper
    with pytest.raises(ObjectiveError, match="better when smaller"):
        parse_objective("e2e p99 < 5ms", condition=True)


WORDS = st.lists(
    st.sampled_from(
        ["ttft", "p99", "<=", ">", "250ms", "5%", "of", "baseline", "for", "5m", "within", "adapter:*", "after",
         "while", "gpu_utilization", "above", "phase:x", "error_rate", "$1", ":", "", "\t", "é", "p", "1e9999s"]
    ),
    max_size=12,
)  # fmt: skip


@given(st.one_of(WORDS.map(" ".join), st.text(max_size=40)))
def test_any_text_is_an_objective_or_a_named_fault(text: str) -> None:
    fault = None
    try:
        assert parse_objective(text).left
    except ObjectiveError as error:
        fault = error
    assert fault is None or (str(fault) and 0 <= fault.offset <= len(text))
