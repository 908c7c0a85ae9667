"""What the samples say about the measurement itself; each fact is seen going wrong."""

from __future__ import annotations

import numpy as np
import pytest
from made_samples import MS, S, joined, record, rows, summary

from pytest_inferslo.core.facts import IndexCheck, RepeatCheck
from pytest_inferslo.core.histogram import LAYOUT
from pytest_inferslo.core.samples import ABSENT, Outcome, Rows


def facts(samples: Rows, **fields: object) -> dict[str, float]:
    return summary(samples, run=record(**fields)).facts


def test_a_clean_run() -> None:
    clean = facts(rows(100), counts={"intended": 100}, workers=[{"cpu_share": 0.3, "loop_lag_p99_ns": 5000}])
    zero = [
        *("unfinished", "never_sent", "undelivered_share", "recording_errors", "overflow", "clock_steps"),
        *("warmup_samples", "count_mismatch", "missing_indices", "duplicate_indices", "burst_share"),
        *("duplicate_prompt_share", "lost_workers", "send_lag_p99_ns", "send_lag_p999_ns"),
    ]
    assert {name: clean[name] for name in zero} == dict.fromkeys(zero, 0)
    assert clean["offered_rate"] == clean["asked_rate"] == 10
    assert (clean["loadgen_cpu_max"], clean["loop_lag_p99_ns"]) == (0.3, 5000)


@pytest.mark.parametrize(
    ("name", "value", "samples"),
    [
        ("send_lag_p99_ns", 30 * MS, rows(100, sent=[0] * 98 + [30 * MS] * 2, first=40 * MS)),
        ("unfinished", 5, joined(rows(95), rows(5, start=9 * S, outcome=Outcome.UNFINISHED))),
        ("never_sent", 5, joined(rows(95), rows(5, start=9 * S, outcome=Outcome.NEVER_SENT))),
        ("undelivered_share", 0.05, joined(rows(95), rows(5, start=9 * S, outcome=Outcome.NEVER_SENT))),
        ("recording_errors", 1, joined(rows(99), rows(1, start=9 * S, outcome=Outcome.CLIENT_ERROR))),
        ("burst_share", 0.5, rows(100, chunks=11, bursts=5)),
        ("duplicate_prompt_share", 0.99, rows(100, prompt_hash=7)),
        ("cached_token_share", 0.4, rows(100, prompt_tokens=1000, cached_tokens=400)),
        ("overflow", 1, joined(rows(99), rows(1, start=9 * S, last=LAYOUT.limit, end=LAYOUT.limit))),
        ("clock_steps", 1, joined(rows(99), rows(1, start=9 * S, sent=30 * MS))),  # output before the send
        # output that came after the answer had failed is no step
        ("clock_steps", 0, joined(rows(99), rows(1, outcome=Outcome.MALFORMED_BODY, first=1, last=9, end=5))),
        ("clock_steps", 1, joined(rows(99), rows(1, outcome=Outcome.MALFORMED_BODY, first=9, last=5, end=9))),
        ("warmup_samples", 10, joined(rows(10, start=-S), rows(90))),
        ("offered_rate", 0.5, joined(rows(5), rows(45, every=200 * MS, outcome=Outcome.NEVER_SENT))),
        (
            "offered_rate",
            10,
            joined(
                rows(50), rows(50, start=5 * S, outcome=Outcome.CONNECT_REFUSED, sent=-1, first=-1, last=-1)
            ),
        ),
        ("asked_rate", 5, joined(rows(5), rows(45, every=200 * MS, outcome=Outcome.NEVER_SENT))),
    ],
)
def test_a_fact_that_goes_wrong(name: str, value: float, samples: Rows) -> None:
    found = facts(samples)[name]
    assert found == pytest.approx(value, rel=0.001)


def test_samples_that_were_lost_or_came_twice() -> None:
    samples = rows(100)
    lost = facts(samples[:90], counts={"intended": 100})
    assert (lost["missing_indices"], lost["duplicate_indices"], lost["count_mismatch"]) == (10, 0, 10)
    twice = facts(np.concatenate([samples, samples[20:25]]), counts={"intended": 100})
    assert (twice["missing_indices"], twice["duplicate_indices"], twice["count_mismatch"]) == (0, 5, 5)


def test_a_closed_loop_has_gaps_where_users_asked_less_often() -> None:
    samples = rows(100)[[*range(90), 95]]
    assert facts(samples, counts={"intended": 91}, open_loop=False)["missing_indices"] == 0
    assert facts(samples, counts={"intended": 91}, open_loop=True)["missing_indices"] == 5


def test_prompts_that_were_never_sent_repeat_nothing() -> None:
    unsent = rows(10, start=9 * S, outcome=Outcome.NEVER_SENT, sent=ABSENT, prompt_hash=0)
    unsent["sent"] = ABSENT
    assert facts(joined(rows(90), unsent))["duplicate_prompt_share"] == 0


def test_workers_that_were_lost() -> None:
    assert facts(rows(10), workers=[{"lost": True}, {"lost": False, "cpu_share": None}])["lost_workers"] == 1


def test_what_cannot_be_known_is_not_there() -> None:
    silent = facts(rows(10, prompt_hash=ABSENT, chunks=1))
    assert "duplicate_prompt_share" not in silent
    assert "burst_share" not in silent
    assert "loadgen_cpu_max" not in silent
    assert "send_lag_p99_ns" not in facts(rows(10, outcome=Outcome.NEVER_SENT))


def test_indices_in_any_order_and_any_pieces() -> None:
    check = IndexCheck()
    indices = np.random.default_rng(1).permutation(1000)
    for part in np.array_split(indices, 7):
        check.add(part)
    assert (check.missing(1000), check.duplicates) == (0, 0)
    check.add(np.array([3, 3, 1003]))
    assert (check.missing(1000), check.duplicates) == (3, 2)


@pytest.mark.parametrize(("prompts", "requests"), [(1000, 5000), (60_000, 90_000)])
def test_the_share_of_repeats_stays_right_beyond_the_capacity(prompts: int, requests: int) -> None:
    random = np.random.default_rng(2)
    check = RepeatCheck(capacity=2000)
    hashes = random.permutation(np.arange(requests) % prompts)
    for part in np.array_split(hashes, 20):
        check.add(part)
    assert check.share() == pytest.approx(1 - prompts / requests, abs=0.0 if prompts <= 2000 else 0.03)


def test_a_record_and_samples_of_two_runs_do_not_match() -> None:
    """As many requests in both, but they ended otherwise."""
    told = {"intended": 100, "succeeded": 1, "failed": 99, "unfinished": 0, "never_sent": 0}
    assert facts(rows(100), counts=told)["count_mismatch"] == 99
    assert facts(rows(100), counts=told | {"succeeded": 100, "failed": 0})["count_mismatch"] == 0
    assert facts(rows(100), counts={"intended": 0})["count_mismatch"] == 100
    assert "count_mismatch" not in facts(rows(100), counts={})
