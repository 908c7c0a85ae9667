"""Damaged answers neither crash the reader nor pass for completed ones; benchmarks/fuzz_streams.py does a
million.
"""

from __future__ import annotations

from collections import Counter

import pytest
from mutations import Mutant, corpus, fault, framed, mutants, read

from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.loadgen import answer

SEEDS = (*range(8), 78)  # 78 found an event id that a carriage return cut in two
EACH = 4_000


@pytest.mark.parametrize("base", corpus(), ids=lambda base: base.name)
@pytest.mark.parametrize("framing", range(4))
def test_the_undamaged_answers_succeed(base: object, framing: int) -> None:
    mutant = Mutant(base, framed(base.head, base.parts, framing), (), False)  # type: ignore[arg-type,attr-defined]
    assert read(mutant).outcome is Outcome.SUCCESS
    assert fault(mutant) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_never_passes_for_a_completed_answer(seed: int) -> None:
    for number, mutant in enumerate(mutants(seed, EACH)):
        wrong = fault(mutant)
        assert wrong is None, f"seed {seed}, mutant {number} of {mutant.base.name}: {wrong}\n{mutant.data!r}"


def test_the_damage_is_of_every_kind() -> None:
    seen = Counter(read(mutant).outcome for mutant in mutants(1000, 4_000))
    common = (
        Outcome.SUCCESS, Outcome.TRUNCATED, Outcome.RESET, Outcome.MALFORMED_HTTP, Outcome.MALFORMED_BODY,
        Outcome.ERROR_EVENT, Outcome.NO_OUTPUT, Outcome.ABORTED, Outcome.BAD_FINISH_REASON,
        Outcome.HTTP_SERVER_ERROR, Outcome.HTTP_REDIRECT,
    )  # fmt: skip
    assert {outcome for outcome in common if seen[outcome] < 2} == set()


def test_a_reader_with_a_fault_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "GOOD_FINISH", answer.GOOD_FINISH | {"abort", "content_filter"})
    assert any(fault(mutant) for mutant in mutants(0, EACH))
