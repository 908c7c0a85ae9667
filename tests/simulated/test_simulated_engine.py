"""The simulated engine in virtual time: its scheduler, its memory, and the profiles that it ships with."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_inferslo.backends.simulated.engine import Engine
from pytest_inferslo.backends.simulated.experiment import (
    closed_loop,
    open_loop,
    percentile,
    unique_prompt,
)
from pytest_inferslo.backends.simulated.profile import Profile, load_profile
from pytest_inferslo.backends.simulated.sequences import Request, Step

PLAIN = Profile(
    "plain",
    max_model_len=256,
    num_gpu_blocks=1024,
    frontend_ms=0,
    prefill_ms=((0, 0), (100, 1)),
    decode_ms=((1, 5),),
)


def engine(**options: object) -> Engine:
    return Engine(PLAIN.with_options(options))


def prompts(count: int, tokens: int, output: int, **fields: object) -> list[Request]:
    return [Request(unique_prompt(number, tokens), output, **fields) for number in range(count)]  # type: ignore[arg-type]


def run(engine: Engine, requests: list[Request]) -> list[Step]:
    """All requests arrive at 0; returns every step until the last has finished."""
    for request in requests:
        engine.submit(request, 0.0)
    steps: list[Step] = []
    now = 0.0
    while not all(request.finished for request in requests):
        step = engine.begin_step(now)
        assert step is not None, "the engine stands still with work to do"
        steps.append(step)
        engine.finish_step(step)
        now = step.end
    return steps


# -- time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefill", "sequences", "milliseconds"),
    [
        (0, 0, 0.0),
        (0, 1, 4.0),
        (0, 2, 5.0),
        (0, 3, 6.0),
        (0, 11, 18.0),  # beyond the last row its line goes on
        (100, 0, 13.0),
        (97, 3, 13.0),  # a decode adds a token to the computation
        (20, 11, 18.0),  # its decodes alone take longer
    ],
)
def test_step_time(prefill: int, sequences: int, milliseconds: float) -> None:
    profile = Profile("p", prefill_ms=((0, 3), (100, 13)), decode_ms=((1, 4), (3, 6), (7, 12)))
    assert profile.step_seconds(prefill, sequences) * 1e3 == pytest.approx(milliseconds)


def test_one_request_is_prefilled_then_decodes_one_token_a_step() -> None:
    (request,) = requests = prompts(1, 100, 4)
    steps = run(engine(), requests)
    assert [(step.prefill_tokens, step.sequences) for step in steps] == [(100, 0), (0, 1), (0, 1), (0, 1)]
    assert request.first_token == pytest.approx(0.001)
    assert request.last_token == pytest.approx(0.001 + 3 * 0.005)


def test_front_end_admits_one_request_after_another() -> None:
    simulated = engine(frontend_ms=10.0, latency_ms=2.0)
    requests = prompts(3, 16, 1)
    for request in requests:
        simulated.submit(request, 1.0)
    assert [request.ready for request in requests] == pytest.approx([1.012, 1.022, 1.032])
    assert simulated.begin_step(1.0) is None
    assert simulated.next_ready() == pytest.approx(1.012)


def test_slowdown_stretches_steps_and_jitter_is_seeded() -> None:
    slow = engine()
    slow.slowdown = 3.0
    assert run(slow, prompts(1, 100, 1))[0].end == pytest.approx(0.003)
    ends = [
        run(Engine(PLAIN.with_options({"jitter": 0.1}), seed), prompts(1, 100, 9))[-1].end
        for seed in (1, 1, 2)
    ]
    assert ends[0] == ends[1] != ends[2]


# -- the scheduler's limits ------------------------------------------------------------------------


def test_batch_never_exceeds_max_num_seqs() -> None:
    steps = run(engine(max_num_seqs=3), prompts(10, 16, 5))
    assert max(len(step.work) for step in steps) == 3


@pytest.mark.parametrize(
    ("chunked", "first_steps"),
    [
        (True, [(64, 0), (63, 1), (63, 1)]),  # the decode comes first, the long prompt gets what is left
        (False, [(20, 0), (0, 1), (0, 1), (64, 0)]),  # it waits for steps of its own
    ],
)
def test_token_budget_splits_prompts(chunked: bool, first_steps: list[tuple[int, int]]) -> None:
    requests = [*prompts(1, 20, 3), Request(unique_prompt(7, 200), 2)]
    steps = run(engine(max_num_batched_tokens=64, enable_chunked_prefill=chunked), requests)
    assert [(step.prefill_tokens, step.sequences) for step in steps[: len(first_steps)]] == first_steps
    assert all(sum(tokens for _, tokens in step.work) <= 64 for step in steps)


def test_running_decodes_come_before_waiting_prompts() -> None:
    simulated = engine(max_num_batched_tokens=8, max_num_seqs=8)
    requests = prompts(8, 4, 20)
    steps = run(simulated, requests)
    assert any(len(step.work) == 8 and step.prefill_tokens == 0 for step in steps)
    assert max(request.first_token for request in requests) < min(request.last_token for request in requests)


# -- KV blocks -------------------------------------------------------------------------------------


def test_newest_request_is_preempted_and_recomputed_when_blocks_run_out() -> None:
    simulated = engine(num_gpu_blocks=20, max_model_len=256, enable_prefix_caching=False)
    requests = prompts(2, 128, 60)  # 8 blocks each at first, 12 in the end
    run(simulated, requests)
    assert [request.generated for request in requests] == [60, 60]
    assert requests[0].preemptions == 0
    assert requests[1].preemptions == simulated.stats.preemptions == 1
    assert requests[1].last_token > requests[0].last_token
    assert simulated.blocks.used == 0


def test_request_waits_when_its_prompt_does_not_fit() -> None:
    simulated = engine(num_gpu_blocks=16, enable_prefix_caching=False)
    first, second = requests = [
        Request(unique_prompt(1, 200), 2),
        Request(unique_prompt(2, 200), 2),
    ]
    run(simulated, requests)
    assert second.scheduled >= first.last_token
    assert simulated.stats.preemptions == 0


def test_abort_gives_blocks_back_whether_running_or_waiting() -> None:
    simulated = engine(max_num_seqs=1)
    running, waiting = prompts(2, 64, 50)
    for request in (running, waiting):
        simulated.submit(request, 0.0)
    step = simulated.begin_step(0.0)
    assert step is not None
    assert simulated.blocks.used == 4
    simulated.abort(waiting, 0.001)
    simulated.abort(running, 0.001)
    assert simulated.finish_step(step) == []
    assert (simulated.blocks.used, simulated.running, len(simulated.waiting)) == (0, [], 0)
    assert simulated.stats.success["abort"] == 2
    simulated.abort(running, 0.002)  # a second time is nothing new
    assert simulated.stats.success["abort"] == 2


# -- prefix cache ----------------------------------------------------------------------------------


def one_after_another(simulated: Engine, requests: list[Request]) -> list[int]:
    """Cached tokens of each request, when each arrives after the last has finished."""
    open_loop(simulated, [(index * 10.0, request) for index, request in enumerate(requests)])
    return [request.cached_tokens for request in requests]


def test_shared_prefix_is_computed_once() -> None:
    shared = list(range(1000, 1064))
    requests = [Request([*shared, *unique_prompt(number, 40)], 2) for number in range(3)]
    simulated = engine()
    assert one_after_another(simulated, requests) == [0, 64, 64]
    assert simulated.stats.prefix_hits == 128
    assert simulated.stats.prefix_queries == 3 * 104


@pytest.mark.parametrize(
    ("options", "adapters", "cached"),
    [
        ({}, (None, None), 48),  # at least one token is always computed
        ({"enable_prefix_caching": False}, (None, None), 0),
        ({}, ("red", "red"), 48),
        ({}, (None, "red"), 0),  # an adapter's blocks are its own
        ({}, ("red", "blue"), 0),
    ],
)
def test_same_prompt_again(options: dict[str, object], adapters: tuple[str | None, ...], cached: int) -> None:
    requests = [Request(list(range(64)), 2, adapter) for adapter in adapters]
    seen = one_after_another(engine(**options), requests)
    assert max(0, seen[-1]) == cached


def test_next_turn_finds_the_blocks_of_the_last_answer() -> None:
    question, answer = list(range(40)), [f"a{index}" for index in range(60)]
    first = Request(question, len(answer), output=answer)
    second = Request([*question, *answer, *range(500, 520)], 2)
    assert one_after_another(engine(), [first, second]) == [0, 96]


def test_idle_blocks_are_evicted_oldest_first_and_reset_empties_the_cache() -> None:
    simulated = engine(num_gpu_blocks=16)
    old, new = list(range(64)), list(range(100, 164))
    big = unique_prompt(9, 160)  # needs 10 of 16 blocks, 8 are cached
    again = [Request(new, 1), Request(old, 1)]
    seen = one_after_another(simulated, [Request(old, 1), Request(new, 1), Request(big, 1), *again])
    assert seen[3] == 48
    assert seen[4] < 48
    assert simulated.reset_prefix_cache()
    assert one_after_another(simulated, [Request(new, 1)]) == [0]


def test_reset_is_refused_while_requests_hold_blocks() -> None:
    simulated = engine()
    simulated.submit(Request(list(range(64)), 5), 0.0)
    assert simulated.begin_step(0.0) is not None
    assert not simulated.reset_prefix_cache()


# -- adapters --------------------------------------------------------------------------------------


def test_adapter_costs_its_load_once_and_again_after_eviction() -> None:
    simulated = engine(max_loras=1, lora_load_ms=100.0, enable_prefix_caching=False)
    requests = [Request(unique_prompt(n, 16), 1, name) for n, name in enumerate(["a", "a", "b", "a"])]
    one_after_another(simulated, requests)
    times = [round(request.first_token - request.arrived, 3) for request in requests]
    assert times == [0.1, 0.0, 0.1, 0.1]


def test_batch_holds_at_most_max_loras_adapters_and_skips_over_the_others() -> None:
    simulated = engine(max_loras=2)
    names = ["a", "b", "c", None, "a"]
    requests = [Request(unique_prompt(n, 16), 4, name) for n, name in enumerate(names)]
    for request in requests:
        simulated.submit(request, 0.0)
    step = simulated.begin_step(0.0)
    assert step is not None
    assert [request.adapter for request, _ in step.work] == ["a", "b", None, "a"]
    assert simulated.deferred == 1
    simulated.finish_step(step)
    run(simulated, [])
    while not requests[2].finished:
        step = simulated.begin_step(step.end)
        assert step is not None
        simulated.finish_step(step)
    assert requests[2].scheduled >= requests[0].last_token


def test_preloaded_adapter_is_resident_and_unloading_forgets_it() -> None:
    simulated = engine(lora_load_ms=100.0, enable_prefix_caching=False)
    simulated.preload("a")
    warm = Request(unique_prompt(1, 16), 1, "a")
    open_loop(simulated, [(0.0, warm)])
    assert warm.first_token - warm.arrived < 0.01
    simulated.unload("a")
    cold = Request(unique_prompt(2, 16), 1, "a")
    open_loop(simulated, [(100.0, cold)])
    assert cold.first_token - cold.arrived > 0.1


# -- what it counts --------------------------------------------------------------------------------


def test_counters_of_a_small_run() -> None:
    simulated = engine()
    run(simulated, prompts(3, 32, 5))
    stats = simulated.stats
    assert (stats.prompt_tokens, stats.generation_tokens, stats.success["length"]) == (96, 15, 3)
    assert (stats.ttft.count, stats.gap.count, stats.tpot.count, stats.e2e.count) == (3, 12, 3, 3)
    assert stats.gap.total == pytest.approx(12 * 0.005)
    assert stats.iteration.total == 96 + 12
    assert stats.e2e.total == pytest.approx(stats.queue.total + stats.inference.total)


def test_pooling_request_ends_with_its_prefill() -> None:
    simulated = engine()
    (request,) = requests = prompts(1, 64, 0)
    steps = run(simulated, requests)
    assert len(steps) == 1
    assert (request.generated, simulated.stats.generation_tokens, simulated.blocks.used) == (0, 0, 0)


@settings(max_examples=60, deadline=None)
@given(
    work=st.lists(
        st.tuples(
            st.integers(1, 120), st.integers(0, 40), st.sampled_from([None, "a", "b", "c"]), st.integers(0, 2)
        ),
        min_size=1,
        max_size=25,
    ),
    blocks=st.integers(16, 40),
    seqs=st.integers(1, 9),
    budget=st.integers(8, 200),
    caching=st.booleans(),
    chunked=st.booleans(),
)
def test_any_work_is_done_within_the_limits(
    work: list[tuple[int, int, str | None, int]],
    blocks: int,
    seqs: int,
    budget: int,
    caching: bool,
    chunked: bool,
) -> None:
    simulated = engine(
        num_gpu_blocks=blocks,
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        enable_prefix_caching=caching,
        enable_chunked_prefill=chunked,
        max_loras=2,
    )
    requests = [
        Request([group, *range(size)], output, adapter, output=list(range(output)))
        for size, output, adapter, group in work
    ]
    last = 0.0
    for step in run(simulated, requests):
        assert step.end > step.start >= last
        last = step.end
        assert len(step.work) <= seqs
        assert sum(tokens for _, tokens in step.work) <= budget
        assert len({request.adapter for request, _ in step.work} - {None}) <= 2
    assert [request.generated for request in requests] == [output for _, output, _, _ in work]
    assert simulated.blocks.used == 0
    assert simulated.stats.generation_tokens == sum(output for _, output, _, _ in work)


# -- the profiles that come with the package -------------------------------------------------------

H200 = [
    # concurrency, output tokens/s, TPOT p50 and TTFT p50 in ms: vLLM 0.26, 7B, 128 in, 64 out, streaming
    (1, 211, 4.6, 13),
    (16, 2665, 5.4, 46),
    (64, 5824, 7.4, 229),
    (256, 8200, 20.7, 678),
    (512, 8984, 54.8, None),  # its TTFT is its front end's backlog, which is not modelled
]


@pytest.mark.parametrize(("concurrency", "tokens_per_second", "tpot_ms", "ttft_ms"), H200)
@pytest.mark.parametrize("rounds", [4, 12])
def test_h200_profile_is_within_15_percent_of_the_measurements(
    rounds: int, concurrency: int, tokens_per_second: float, tpot_ms: float, ttft_ms: float | None
) -> None:
    outcome = closed_loop(Engine(load_profile("h200-7b")), concurrency, rounds * concurrency, 128, 64)
    assert outcome.output_tokens_per_second() == pytest.approx(tokens_per_second, rel=0.15)
    assert percentile(outcome.tpot(), 0.5) * 1e3 == pytest.approx(tpot_ms, rel=0.15)
    if ttft_ms is not None:
        assert percentile(outcome.ttft(), 0.5) * 1e3 == pytest.approx(ttft_ms, rel=0.15)


@pytest.mark.parametrize(
    ("concurrency", "output", "requests_per_second"), [(1, 16, 43), (16, 16, 150), (16, 1, 854)]
)
def test_cpu_profile_is_within_15_percent_of_the_measurements(
    concurrency: int, output: int, requests_per_second: float
) -> None:
    outcome = closed_loop(Engine(load_profile("cpu-tiny")), concurrency, 40 * concurrency, 32, output)
    assert outcome.requests_per_second() == pytest.approx(requests_per_second, rel=0.15)


def test_default_profile_answers_in_the_time_that_it_promises() -> None:
    outcome = open_loop(
        Engine(load_profile("fast")),
        [(number / 50, Request(unique_prompt(number, 128), 32)) for number in range(500)],
    )
    assert 0.010 <= percentile(outcome.ttft(), 0.5) <= 0.020
    assert percentile(outcome.ttft(), 0.99) <= 0.025
    assert percentile(outcome.tpot(), 0.5) == pytest.approx(0.005, rel=0.15)
