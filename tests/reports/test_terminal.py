"""The verdict on a terminal: complete, of an exact width, and safe with foreign text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from measured import (
    BREACHED,
    BROKEN,
    FAILED,
    HELD,
    INFINITE,
    OPEN,
    PASSED,
    RECORD,
    UNMEASURED,
    summary,
    verdict,
)

from pytest_inferslo.core.grammar import parse_objective
from pytest_inferslo.core.rubric import Penalty, Rubric, Scored, score
from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import GuardFinding, Status
from pytest_inferslo.reports.markdown import render_markdown
from pytest_inferslo.reports.terminal import comparison_table, render_verdict
from pytest_inferslo.reports.wording import split_promise

ALL = (BREACHED, PASSED, INFINITE, UNMEASURED, OPEN)
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def measured() -> Summary:
    return summary()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("unicode", [False, True])
@pytest.mark.parametrize("colour", [False, True])
def test_no_line_is_wider_than_the_page_and_rules_fill_it(
    measured, width: int, unicode: bool, colour: bool
) -> None:
    text = render_verdict(verdict(*ALL), RECORD, measured, width=width, unicode=unicode, colour=colour)
    lines = ESCAPES.sub("", text).splitlines()
    assert max(map(len, lines)) == width
    rules = [line for line in lines if set(line) <= {"-", "─"} and line]
    assert len(rules) == 3
    assert {len(rule) for rule in rules} == {width}
    assert bool(ESCAPES.search(text)) == colour
    assert text.isascii() == (not unicode)


def test_a_long_limit_does_not_squeeze_the_objective(measured: Summary) -> None:
    long = replace(
        BREACHED, limit_text="<= 120% of endpoint:stable (212.4ms to 220.9ms)", objective="ttft p99 within a"
    )
    lines = render_verdict(verdict(long), RECORD, measured).splitlines()
    assert any(line.startswith("ttft p99 within a") for line in lines)


def test_80_columns_are_the_default_and_the_text_is_plain_ascii(measured: Summary) -> None:
    text = render_verdict(verdict(*ALL), RECORD, measured)
    assert max(map(len, text.splitlines())) == 80
    assert text.isascii()
    assert "\x1b" not in text


def words(text: str) -> str:
    return " ".join(text.split())


def test_everything_that_was_judged_is_there(measured: Summary) -> None:
    text = render_verdict(verdict(*ALL), RECORD, measured)
    lines = text.splitlines()
    assert lines[0] == "FAIL: test_bursty on vllm 0.32.0, policy interactive-chat"
    assert lines[1] == "1 of 3 objectives proven at 99% confidence; 60 s measured, seed 0"
    twice = render_verdict(replace(verdict(*ALL), run_ids=("a", "b")), RECORD, measured)
    assert "2 runs, the last: 60 s measured, seed 0" in words(twice)
    assert "Requests in the window of the last run: 3,600 intended" in words(twice)
    row = next(line for line in lines if line.startswith("ttft p99"))
    assert row.split() == ["ttft", "p99", "<=", "250ms", "312.4ms", "3,600", "FAIL"]
    assert re.search(r"^ +290ms to 341ms +eff\. 812$", text, re.MULTILINE)
    assert "inf (failures)" in text
    assert re.search(r"gpu_memory peak +<= 90% +not measured +0 +left out", text)
    assert re.search(r"^ +optional$", text, re.MULTILINE)
    assert re.search(r"INCONCLUSIVE\n.*warns only$", text, re.MULTILINE)
    for finding in (BREACHED, INFINITE, UNMEASURED, OPEN):
        warns = ", warns only" if finding is OPEN else ""
        assert f"{finding.objective} ({finding.source}{warns}): {finding.reason}" in words(text)
    assert f"{PASSED.objective} ({PASSED.source})" not in words(text)
    assert "Run 20261130T201753.123Z-test_bursty-3f9a2c" in text


def test_how_requests_ended_is_there_with_one_example_each(measured: Summary) -> None:
    text = words(render_verdict(verdict(PASSED, status=Status.PASS), RECORD, measured))
    assert (
        "Requests in the window: 3,600 intended = 3,580 succeeded + 15 failed + 4 unfinished + 1 never sent"
        in text
    )
    assert "HTTP_OVERLOADED 12, as: 503 Service Unavailable: queue full" in text
    assert "TIMEOUT_FIRST_OUTPUT 3, as: no output within 60 s (request 1702)" in text
    assert text.index("HTTP_OVERLOADED") < text.index("UNFINISHED 4") < text.index("TIMEOUT_FIRST")
    assert len(FAILED) == 20


def test_without_a_summary_the_records_own_counts_show() -> None:
    text = words(render_verdict(verdict(PASSED), RECORD, None))
    assert "Requests in the run: 4,200 intended = 4,180 succeeded" in text
    assert "HTTP_OVERLOADED 12" in text


def test_guards(measured: Summary) -> None:
    held = render_verdict(verdict(PASSED, status=Status.PASS, guards=(HELD,)), RECORD, measured)
    assert "Measurement valid: all 1 guards hold" in held
    invalid = words(
        render_verdict(verdict(PASSED, status=Status.INVALID, guards=(HELD, BROKEN)), RECORD, measured)
    )
    assert invalid.startswith("INVALID: ")
    assert "objectives proven" not in invalid
    assert "the measurement cannot be trusted" in invalid
    assert "1 of 2 guards broken" in invalid
    assert f"undelivered 90%, allowed <= 1%: {BROKEN.reason}" in invalid


def test_of_a_run_that_was_cut_short_the_cause_stands_before_everything_else(measured: Summary) -> None:
    record = {**RECORD, "errors": ["the server died"], "stopped_early": "the server died"}
    cause = GuardFinding("server_survived", False, "1", "<= 0", "the server died")
    follows = [replace(BROKEN, follows="server_survived"), replace(BROKEN, name="mismatch", follows="x")]
    judged = verdict(INFINITE, status=Status.INVALID, guards=(cause, *follows, HELD))
    text = words(render_verdict(judged, record, measured))
    assert "s asked for" in text
    assert (
        "server_survived 1, allowed <= 0: the server died in consequence also: undelivered 90%, mismatch 90%"
        in text
    )
    assert text.index("3 of 4 guards broken") < text.index("Why")
    assert "15 of 3,600 requests did not succeed" in text, (
        "never sent and unfinished ones are no failures here"
    )
    markdown = render_markdown(judged, record, measured)
    assert "- in consequence also: undelivered 90%, mismatch 90%" in markdown
    assert markdown.index("Measurement invalid") < markdown.index("**Why**")


def test_notes_of_the_run_and_of_the_verdict(measured: Summary) -> None:
    record = {**RECORD, "notes": ["simulated: not a real engine", "shortened to 5 s by --load-seconds"]}
    noted = replace(verdict(PASSED), notes=("flaky: 1 of 2 tries failed",))
    text = render_verdict(noted, record, measured)
    for note in (*record["notes"], *noted.notes):
        assert f"  - {note}" in text.splitlines()


def test_a_rubric_shows_its_points_and_its_score(measured: Summary) -> None:
    penalty = Penalty("e2e p99 > 5ms", 7.0, parse_objective("e2e p99 <= 5ms"))
    found = replace(BREACHED, objective="e2e p99 <= 5ms", observed_text="826ms")
    _, points = score(Rubric((penalty,), fail_at=10.0), [Scored(PASSED)], [found])
    text = render_verdict(replace(verdict(PASSED), rubric=points), RECORD, measured)
    assert "  7 penalty points, fails at 10\n  - e2e p99 > 5ms (observed 826ms): 7 points due" in text
    _, weighted = score(
        Rubric(pass_at=0.8), [Scored(PASSED, 3.0), Scored(replace(OPEN, severity="fail"))], []
    )
    text = render_verdict(replace(verdict(PASSED), rubric=weighted), RECORD, measured)
    assert "  score 75.0% to 100.0%, passes at 80.0%" in text


@pytest.mark.parametrize(
    ("objective", "limit", "expected"),
    [
        ("ttft p99 <= 250ms", "250ms", ("ttft p99", "<= 250ms")),
        ("ttft p99<=250ms", "250ms", ("ttft p99", "<= 250ms")),
        ("throughput >= 50/s for 10s", "50/s", ("throughput for 10s", ">= 50/s")),
        (
            "ttft p99 <= 120% of baseline for 5m",
            "120% of baseline (0.3s)",
            ("ttft p99 for 5m", "<= 120% of baseline (0.3s)"),
        ),
        ("burn rate of error_rate", "14.4x", ("burn rate of error_rate", "14.4x")),
        ("e2e p99 <= 1s", "another", ("e2e p99 <= 1s", "another")),
        ("e2e p99 <= 1s", "", ("e2e p99 <= 1s", "")),
    ],
)
def test_a_promise_is_split_into_what_and_limit(
    objective: str, limit: str, expected: tuple[str, str]
) -> None:
    assert split_promise(objective, limit) == expected


HOSTILE = "\x1b[31mred\x1b[0m\nline two\r\b\x07 [bold]markup[/bold] :smile: 队列已满 µs ≤ 5"


@pytest.mark.parametrize("unicode", [False, True])
def test_foreign_text_can_neither_move_the_cursor_nor_break_the_page(unicode: bool) -> None:
    record = {**RECORD, "outcomes": {"HTTP_SERVER_ERROR": {"count": 3, "example": HOSTILE}}}
    text = render_verdict(verdict(replace(BREACHED, reason=HOSTILE)), record, None, unicode=unicode)
    assert not set("\x1b\r\b\x07") & set(text)
    assert "[bold]markup[/bold] :smile:" in words(text)
    assert text.isascii() == (not unicode)
    if unicode:
        assert "队列已满" in text
    else:
        assert "us <= 5" in words(text)
        assert max(map(len, text.splitlines())) == 80


def test_very_long_words_are_folded(measured: Summary) -> None:
    finding = replace(BREACHED, objective="ttft p99 <= 1ms within adapter:" + "x" * 200, limit_text="y" * 90)
    text = render_verdict(verdict(finding), RECORD, measured)
    assert max(map(len, text.splitlines())) == 80
    assert text.count("x") >= 400


def test_comparison_puts_runs_side_by_side(measured: Summary) -> None:
    other = verdict(replace(PASSED, observed_text="18ms"), status=Status.PASS)
    text = comparison_table(
        [("vllm", RECORD, verdict(BREACHED, PASSED), measured), ("sim", RECORD, other, summary(cpu=0.9))]
    )
    lines = text.splitlines()
    assert {len(lines[0]), len(lines[2]), len(lines[-2])} == {80}
    rows = {line[:50].strip(): line[50:].split() for line in lines if line[:50].strip()}
    assert lines[1].split() == ["vllm", "sim"]
    assert rows["verdict"] == ["FAIL", "PASS"]
    assert rows["ttft p99 <= 250ms"] == ["312.4ms", "-"]
    assert rows["tpot p95 <= 40ms"] == ["20.03ms", "18ms"]
    assert rows["server_cpu mean"] == ["50%", "90%"]
    assert rows["throughput"] == ["59.68/s", "59.68/s"]
    assert "gpu_memory peak" not in rows, "what no run has is no row"
    assert "simulated" not in rows


@pytest.mark.parametrize("width", [60, 80, 120])
def test_names_in_a_comparison_stay_whole_whatever_the_number_of_runs(width: int, measured: Summary) -> None:
    labels = [f"multi_tenant_lora\nllama-3.1-8b\n{letters}" for letters in ("3f9a2c", "117656", "05fd6c")]
    judged = verdict(INFINITE, OPEN)
    record = {**RECORD, "gpus": [{}]}
    text = comparison_table([(label, record, judged, measured) for label in labels], width=width)
    assert max(map(len, text.splitlines())) == width
    assert text.count("multi_tenant_lora") == 3
    assert text.count("llama-3.1-8b") == 3
    tables = text.count("output_tokens_per_second_per_gpu")
    assert tables == {60: 3, 80: 2, 120: 1}[width]
    assert len(re.findall(r"^verdict ", text, re.MULTILINE)) == tables


def test_a_comparison_explains_its_sign_for_nothing() -> None:
    runs = [("a", RECORD, verdict(PASSED), None), ("b", RECORD, verdict(BREACHED), None)]
    told = "-: not promised by the policy of that run, or not measured in it"
    assert comparison_table(runs).splitlines()[-1] == told
    assert told not in comparison_table(runs[:1] * 2)


def test_comparison_says_which_run_was_simulated() -> None:
    simulated = {**RECORD, "backend": {**RECORD["backend"], "simulated": True}}
    text = comparison_table(
        [("vllm", RECORD, verdict(PASSED), None), ("sim", simulated, verdict(PASSED), None)]
    )
    row = next(line for line in text.splitlines() if line.startswith("simulated"))
    assert row.split()[1:] == ["no", "yes"]


def test_comparison_survives_a_run_without_a_summary(measured: Summary) -> None:
    text = comparison_table(
        [("a", RECORD, verdict(PASSED), None), ("b", {**RECORD, "gpus": [{}, {}]}, verdict(PASSED), measured)]
    )
    row = next(line for line in text.splitlines() if line.startswith("output_tokens_per_second_per_gpu"))
    assert row.split()[1:] == ["-", "954.9/s"]
