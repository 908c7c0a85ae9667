"""What other programs read: JSON, JUnit properties, Markdown, Prometheus, HdrHistogram files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from measured import BREACHED, BROKEN, HELD, INFINITE, OPEN, PASSED, RECORD, UNMEASURED, summary, verdict

from pytest_inferslo.core.summary import Summary
from pytest_inferslo.core.verdict import Status
from pytest_inferslo.reports.hdr import histogram_files
from pytest_inferslo.reports.json_document import render_json, verdict_document
from pytest_inferslo.reports.junit import junit_properties
from pytest_inferslo.reports.markdown import render_markdown
from pytest_inferslo.reports.prometheus import render_prometheus
from pytest_inferslo.reports.wording import scope_apart
from pytest_inferslo.storage.run_directory import RunDirectory, schema

JUDGED = verdict(BREACHED, PASSED, INFINITE, UNMEASURED, OPEN, guards=(HELD, BROKEN))


@pytest.fixture(scope="module")
def measured() -> Summary:
    return summary()


# JSON


def test_the_document_follows_its_schema_and_survives_the_run_directory(
    measured: Summary, tmp_path: Path
) -> None:
    document = json.loads(render_json(JUDGED, RECORD, measured))
    jsonschema.validate(document, schema("verdict.schema.json"))
    run = RunDirectory.create(tmp_path, "x")
    run.write_verdict(verdict_document(JUDGED, RECORD, measured))
    assert run.read_verdict() == document


def test_infinite_is_a_string_and_null_is_not_measured_alone(measured: Summary) -> None:
    document = verdict_document(JUDGED, RECORD, measured)
    observed = {finding["objective"]: finding["observed"] for finding in document["findings"]}
    assert observed[INFINITE.objective] == "inf"
    assert observed[UNMEASURED.objective] is None
    assert observed[BREACHED.objective] == 312.4e6
    assert (document["status"], document["exit_code"]) == ("FAIL", 1)
    assert document["figures"]["ttft p99"] == pytest.approx(88.05e6, rel=0.001)
    assert "did not succeed" in document["likely_causes"][0]


# JUnit


def test_a_scope_is_told_unless_the_objective_says_it() -> None:
    """Of `within phase:*`, also the one that the others are compared with."""
    promise = "ttft p90 <= 200% of phase:one within phase:*"
    found = [replace(PASSED, objective=promise, scope=f"phase:{name}") for name in ("one", "two")]
    found.append(replace(PASSED, objective="ttft p90 <= 1s within phase:one for 5s", scope="phase:one"))
    assert [scope_apart(each) for each in found] == ["phase:one", "phase:two", ""]
    names = [name for name, _ in junit_properties(verdict(*found), RECORD) if ".objective." in name]
    assert names[0].endswith(f"{promise} phase:one")


def test_what_is_left_out_is_no_failure_in_a_junit_file() -> None:
    optional = replace(UNMEASURED, optional=True)
    values = [value for name, value in junit_properties(verdict(optional), RECORD) if ".objective." in name]
    assert values[0].startswith("left out; observed not measured")


def test_one_property_per_objective_and_broken_guard() -> None:
    pairs = dict(junit_properties(JUDGED, RECORD))
    assert len(pairs) == len(junit_properties(JUDGED, RECORD)), "names are unique"
    assert pairs["inferslo.interactive-chat.verdict"] == "FAIL"
    assert pairs["inferslo.interactive-chat.objective.ttft p99 <= 250ms"] == (
        "FAIL; observed 312.4ms; interval 290ms to 341ms; limit 250ms; samples 3600; "
        "71 of 3,600 requests were over 250ms, 36 may be"
    )
    assert pairs["inferslo.interactive-chat.guard.undelivered"].startswith("broken; observed 90%")
    assert "inferslo.interactive-chat.guard.send_lag" not in pairs


def test_properties_fit_into_xml() -> None:
    for name, value in junit_properties(
        verdict(replace(BREACHED, reason="\x00\x1b[1m & <b> \ud800")), RECORD
    ):
        element = ElementTree.Element("property", name=name, value=value)
        again = ElementTree.fromstring(ElementTree.tostring(element))
        assert again.get("value") == value


# Markdown


def test_markdown_is_a_table_with_one_row_per_objective(measured: Summary) -> None:
    text = render_markdown(JUDGED, {**RECORD, "notes": ["simulated"]}, measured)
    lines = text.splitlines()
    assert lines[0] == "### ❌ test\\_bursty on vllm 0.32.0: FAIL"
    assert "**simulated.**" in lines
    assert "| `ttft p99 <= 250ms` | 250ms | 312.4ms | 290ms to 341ms | 3,600 | ❌ FAIL |" in lines
    rows = [line for line in lines if line.startswith("| `") and line.count("|") == 7]
    assert len(rows) == 5
    assert "**Measurement invalid**" in lines
    assert text.count("<details>") == text.count("</details>") == 2


def test_markdown_shows_foreign_text_as_text() -> None:
    example = "<img src=x> | `code` [link](http://x) *bold*\n# heading"
    record = {**RECORD, "outcomes": {"HTTP_SERVER_ERROR": {"count": 3, "example": example}}}
    text = render_markdown(verdict(PASSED, status=Status.PASS), record, None)
    row = next(line for line in text.splitlines() if "HTTP_SERVER_ERROR" in line)
    assert "<img" not in row
    assert len(re.findall(r"(?<!\\)\|", row)) == 4
    assert r"\[link\]" in row
    assert "# heading" in row


# Prometheus

SAMPLE = re.compile(r'^([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)$')


def parsed(text: str) -> dict[tuple[str, str], float]:
    series: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = SAMPLE.match(line)
        assert match, line
        assert (match[1], match[2]) not in series, "a series stands once"
        series[match[1], match[2]] = float(match[3])
    return series


def value_of(series: dict[tuple[str, str], float], family: str, *labels: str) -> float:
    found = [
        v
        for (name, inside), v in series.items()
        if name == family and all(label in inside for label in labels)
    ]
    assert len(found) == 1, (family, labels, found)
    return found[0]


def test_series_in_base_units_and_absence_is_no_series() -> None:
    series = parsed(render_prometheus([(JUDGED, RECORD)]))
    ttft = f'objective="{BREACHED.objective}"'
    assert value_of(series, "inferslo_verdict", 'status="FAIL"') == 1
    assert value_of(series, "inferslo_verdict", 'status="PASS"') == 0
    assert value_of(series, "inferslo_objective_observed", ttft, 'unit="seconds"') == pytest.approx(0.3124)
    assert value_of(series, "inferslo_objective_limit", ttft) == pytest.approx(0.25)
    assert value_of(series, "inferslo_objective_status", ttft, 'status="FAIL"') == 1
    assert value_of(series, "inferslo_objective_observed", INFINITE.objective) == float("inf")
    assert not [1 for (name, inside) in series if name.endswith("observed") and "gpu_memory" in inside]
    assert value_of(series, "inferslo_requests", 'outcome="http_overloaded"') == 12
    assert value_of(series, "inferslo_guard_ok", 'guard="undelivered"') == 0
    assert value_of(series, "inferslo_run_timestamp_seconds") == pytest.approx(1796069873.12, abs=0.01)


def test_each_family_stands_once_over_all_runs_and_labels_are_escaped() -> None:
    record = {**RECORD, "scenario": {**RECORD["scenario"], "name": 'a "b"\\\nc'}}
    text = render_prometheus([(JUDGED, RECORD), (JUDGED, record), (JUDGED, RECORD)])
    families = re.findall(r"^# TYPE (\S+) gauge$", text, re.MULTILINE)
    assert len(families) == len(set(families))
    assert text.endswith("\n")
    assert value_of(parsed(text), "inferslo_verdict", r'scenario="a \"b\"\\\nc"', 'status="FAIL"') == 1


# HdrHistogram


def test_hdr_files_are_read_by_hdrhistograms_own_reader(measured: Summary, tmp_path: Path) -> None:
    files = histogram_files(measured, RECORD)
    assert {"ttft.hgrm", "ttft.hlog", "e2e.hlog", "icl.hgrm", "tpot.hgrm", "send_lag.hgrm"} <= files.keys()
    assert "output_tokens.hgrm" not in files
    path = tmp_path / "ttft.hlog"
    path.write_text(files["ttft.hlog"])
    reader = HistogramLogReader(str(path), HdrHistogram(1, 3_600_000_000_000, 3))
    read = reader.get_next_interval_histogram()
    ours = measured.distribution("ttft").histogram
    assert read.get_total_count() == ours.count == 3580
    for p in (50, 90, 99, 99.9):
        assert read.get_value_at_percentile(p) == pytest.approx(ours.to_hdrh().get_value_at_percentile(p))
    assert reader.get_next_interval_histogram() is None
    assert read.get_end_time_stamp() - read.get_start_time_stamp() == pytest.approx(60_000)
    reader.close()
    assert "20 failures" in files["ttft.hlog"].splitlines()[0]


def test_hgrm_is_in_ms_and_failures_are_said(measured: Summary) -> None:
    lines = histogram_files(measured, RECORD)["ttft.hgrm"].splitlines()
    assert lines[0].startswith("#[ttft in ms; 3580 values, and not among them: 20 failures")
    assert lines[1].split() == ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
    rows = [
        [float(cell) for cell in line.split()]
        for line in lines
        if line and line[0] == " " and "V" not in line
    ]
    assert rows[-1][:3] == [pytest.approx(88.08, abs=0.01), 1.0, 3580]
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert [row[1] for row in rows[:7]] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.55])
    theirs = measured.distribution("ttft").histogram.to_hdrh()
    for value, fraction, *_ in rows[1:]:
        assert value == pytest.approx(theirs.get_value_at_percentile(fraction * 100) / 1e6, abs=0.001), (
            fraction
        )
    mean, deviation = re.findall(r"[\d.]+", next(line for line in lines if line.startswith("#[Mean")))
    assert float(mean) == pytest.approx(80.05, abs=0.05)
    assert float(deviation) == pytest.approx(5.66, abs=0.05)


def test_a_metric_without_a_value_has_no_file() -> None:
    from pytest_inferslo.core.fold import Fold

    assert histogram_files(Fold(RECORD, []).result(), RECORD) == {}
