"""Situations played by a server, loaded for real, and judged: the verdict that a team would get."""

from __future__ import annotations

from typing import Any

import pytest
from gate_runs import SCRIPTS, Gate

from pytest_inferslo.core.arrivals import constant
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.core.scenario import Scenario, Timeouts
from pytest_inferslo.core.verdict import Status
from pytest_inferslo.loadgen.offer import LoadGenerator, LoadOrder
from pytest_inferslo.reports.json_document import render_json
from pytest_inferslo.servers.scripted import scripted
from pytest_inferslo.servers.scripted_cli import load_script

MS = 1_000_000
#: A loaded machine may delay the generator; what these tests judge is something else.
CALM = "guards: {send_lag: off, loop_lag: off, loadgen_cpu: off}\n"
CALMER = "guards: {send_lag: off, loop_lag: off, loadgen_cpu: off, undelivered: off, burst_delivery: off}\n"


def load(rate: str = "100/s", duration: str = "1s", **fields: Any) -> Scenario:
    settings: dict[str, Any] = {"drain": "2s", "prompts": synthetic(input_tokens=8, output_tokens=4)} | fields
    return Scenario(arrivals=constant(rate), duration=duration, **settings)


def test_case_1_every_request_is_refused(gate: Gate) -> None:
    seen = gate("case_01", load("50/s"), "ttft p99 <= 200ms", more=CALM)
    assert seen.finding("ttft").status is Status.FAIL
    assert "no successful sample" in seen.finding("ttft").reason
    assert seen.finding("ttft").observed == float("inf")
    assert seen.summary.ratio("error_rate").value == 1.0


def test_case_4_errors_inside_200_answers(gate: Gate) -> None:
    seen = gate("case_04", load("6/s"), "ttft p50 <= 10s", "error_rate <= 50%", more=CALM)
    assert seen.outcomes == {Outcome.ERROR_EVENT: 6}
    assert seen.summary.total("throughput") == 0
    assert seen.finding("ttft").status is Status.FAIL
    assert "engine died" in seen.result.outcomes["ERROR_EVENT"]["example"]


def test_case_5_streams_without_an_end(gate: Gate) -> None:
    timeouts = Timeouts(stall="300ms", first_output="2s")
    seen = gate("case_05", load("6/s", timeouts=timeouts), "error_rate <= 10%", more=CALM)
    assert seen.outcomes == {Outcome.TRUNCATED: 2, Outcome.RESET: 2, Outcome.TIMEOUT_STALL: 2}
    assert seen.finding("error_rate").status is Status.FAIL


def test_case_7_three_of_a_hundred_never_come(gate: Gate) -> None:
    timeouts = Timeouts(first_output="600ms")
    seen = gate("case_07", load(timeouts=timeouts), "e2e p99 <= 500ms", more=CALM)
    assert seen.outcomes[Outcome.TIMEOUT_FIRST_OUTPUT] == 3
    assert seen.finding("e2e").observed == float("inf")
    assert seen.finding("e2e").status is Status.FAIL
    document = render_json(seen.verdict, {"counts": seen.result.counts}, seen.summary)
    assert '"observed": "inf"' in document
    assert '"observed": null' not in document


def test_case_8_fast_failures_never_improve_a_latency(gate: Gate) -> None:
    seen = gate("case_08", load(), "e2e p50 <= 800ms", more=CALM)
    assert seen.outcomes == {Outcome.SUCCESS: 45, Outcome.HTTP_SERVER_ERROR: 55}
    assert seen.finding("e2e").observed == float("inf")
    assert seen.finding("e2e").status is Status.FAIL


def test_case_9_what_hangs_at_the_end_is_a_failure(gate: Gate) -> None:
    seen = gate("case_09", load("30/s", drain="300ms"), "e2e p99 <= 500ms", more=CALM)
    assert seen.outcomes == {Outcome.SUCCESS: 20, Outcome.UNFINISHED: 10}
    assert seen.summary.facts["unfinished"] == 10
    assert seen.summary.ratio("error_rate")[:2] == (10, 30)
    assert seen.finding("e2e").observed == float("inf")
    assert seen.finding("e2e").status is Status.FAIL


def test_case_10_nothing_is_tried_twice(gate: Gate) -> None:
    seen = gate("case_10", load("20/s"), "error_rate <= 1%", more=CALM)
    assert len(seen.played) == 20
    assert seen.outcomes == {Outcome.HTTP_OVERLOADED: 20}
    assert seen.summary.ratio("error_rate").value == 1.0
    assert seen.finding("error_rate").status is Status.FAIL


def test_case_15_an_empty_delta_is_no_first_token(gate: Gate) -> None:
    seen = gate("case_15", load("50/s"), "ttft p50 <= 500ms", more=CALM)
    assert seen.summary.distribution("ttft").minimum >= 890 * MS  # type: ignore[operator]
    assert seen.finding("ttft").status is Status.FAIL


def test_case_18_bunched_events_make_chunk_gaps_untrusted(gate: Gate) -> None:
    seen = gate("case_18", load("20/s"), "icl p50 <= 250ms", "ttft p50 <= 2s", more=CALM)
    guard = next(guard for guard in seen.verdict.guards if guard.name == "burst_delivery")
    assert not guard.ok
    assert seen.verdict.status is Status.INVALID
    gaps = seen.summary.distribution("icl")
    assert gaps.count == 60  # 10 answers with 3 gaps of 100 ms, 10 with 3 gaps of nothing
    assert 90 * MS < gaps.percentile(0.9) < 300 * MS  # type: ignore[operator]


def test_case_25_load_that_could_not_be_sent(gate: Gate) -> None:
    seen = gate("slow", load("50/s", duration="2s", max_in_flight=5), "e2e p50 <= 10s", more=CALM)
    assert seen.summary.counts().never_sent == pytest.approx(90, abs=3)
    guard = next(guard for guard in seen.verdict.guards if guard.name == "undelivered")
    assert not guard.ok
    assert "of 50 requests/s" in guard.reason
    assert "offered 5" in guard.reason
    assert seen.verdict.status is Status.INVALID


def test_case_27_a_stall_of_the_whole_server(gate: Gate, tmp_path: Any) -> None:
    """Requests 100 to 119 of a load of 100/s fall into a stall of 200 ms and are answered at its end."""
    rules = "".join(
        f"  - {{when: {n}, steps: [{{answer: {{tokens: 1, first: {10 + (120 - n) * 10}ms}}}}]}}\n"
        for n in range(100, 120)
    )
    script = tmp_path / "stall.yaml"
    script.write_text(f"answers:\n{rules}  - steps: [{{answer: {{tokens: 1, first: 10ms}}}}]\n")
    seen = gate(script, load(duration="2s"), "e2e p99 <= 100ms", more=CALM)
    stalled = seen.summary.distribution("e2e")
    assert 190 * MS <= stalled.percentile(0.99) < 400 * MS  # type: ignore[operator]
    assert stalled.count == 200  # and no correction on top: one value per request
    assert seen.verdict.status is not Status.PASS


def test_case_40_proxies_of_the_environment_are_never_used(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    scenario = load("20/s")
    with (
        scripted(load_script(SCRIPTS / "good.yaml")) as server,
        LoadGenerator(tmp_path / "loadgen") as generator,
    ):
        endpoint = Endpoint(url=server.url, model="scripted").to_dict()
        result = generator.offer(LoadOrder(scenario.to_dict(), [endpoint], [], 0, str(tmp_path)))
    assert result.counts["succeeded"] == 20


def test_a_good_server_passes(gate: Gate) -> None:
    """The other side of every case above: what is promised and kept is a PASS."""
    objectives = ("error_rate <= 2%", "{objective: ttft p95 <= 2s, severity: warn}")
    seen = gate("good", load("200/s", duration="2s"), *objectives, more=CALMER)
    assert seen.outcomes == {Outcome.SUCCESS: 400}
    assert seen.verdict.status is Status.PASS
    truth = [played.outputs[0] - played.received for played in seen.played]
    measured = seen.summary.distribution("service_ttft").minimum
    assert measured is not None
    assert measured >= min(truth) >= 11 * MS
