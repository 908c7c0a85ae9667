"""Situations in which one stream must be read right, to the nanosecond."""

from __future__ import annotations

import pytest
from virtual_play import MS, read

from pytest_inferslo.core.samples import Outcome


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_case_4_an_error_in_a_200_stream_is_a_failure(number: int) -> None:
    reply = read("case_04", number)
    expected = Outcome.ERROR_EVENT
    assert reply.outcome is expected
    assert "engine died" in reply.detail
    assert reply.status == 200


@pytest.mark.parametrize(("number", "outcome"), [(1, Outcome.TRUNCATED), (2, Outcome.RESET), (3, None)])
def test_case_5_two_events_and_no_end(number: int, outcome: Outcome | None) -> None:
    reply = read("case_05", number)
    assert reply.outcome is outcome  # None: the engine's stall time-out has to end it
    assert reply.chunks == 2
    reply.give_up(Outcome.TIMEOUT_STALL, "no output for 30 s", 31_000 * MS)
    assert reply.outcome is (outcome or Outcome.TIMEOUT_STALL)


def test_case_15_a_role_is_no_output() -> None:
    reply = read("case_15")
    assert reply.outcome is Outcome.SUCCESS
    assert reply.first == reply.first_content == 900 * MS
    assert reply.chunks == 1


def test_case_17_tokens_and_chunks_are_two_things() -> None:
    reply = read("case_17")
    assert reply.outcome is Outcome.SUCCESS
    assert reply.output_tokens == 17
    assert (reply.last - reply.first) / (reply.output_tokens - 1) == 10 * MS
    assert reply.gaps == [80 * MS, 80 * MS]
    assert reply.max_stall == 80 * MS


def test_case_18_gaps_are_those_of_arrival_and_bunches_are_told() -> None:
    steady, bunched = read("case_18", 1), read("case_18", 2)
    assert steady.gaps == [100 * MS] * 3
    assert steady.bursts == 0
    assert bunched.outcome is Outcome.SUCCESS
    assert bunched.bursts == 3


def test_case_35_trailing_events_move_nothing() -> None:
    reply = read("case_35")
    assert reply.outcome is Outcome.SUCCESS
    assert (reply.first, reply.last, reply.end) == (100 * MS, 500 * MS, 900 * MS)
    assert reply.gaps == [400 * MS]


def test_case_37_the_servers_count_wins() -> None:
    reply = read("case_37")
    assert reply.outcome is Outcome.SUCCESS
    assert (reply.chunks, reply.output_tokens, reply.prompt_tokens) == (100, 100, 12)
