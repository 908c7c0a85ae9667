"""`inferslo policy check | explain | import-openslo | schema`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from pytest_inferslo.cli import main
from pytest_inferslo.core.explain import explained
from pytest_inferslo.core.grammar import parse_objective
from pytest_inferslo.core.policy import Policy
from pytest_inferslo.core.policy_schema import policy_schema
from pytest_inferslo.errors import PolicyError
from pytest_inferslo.policies import load_policy

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "pytest_inferslo/schemas/policy.schema.json").read_text())


def as_yaml(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def test_check_tells_what_a_policy_needs_and_does_not_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A note and no error: another policy that extends this one may say it."""
    file = tmp_path / "a.yaml"
    file.write_text("policy: a\nobjectives:\n  - goodput >= 95%\n  - cost_per_million_tokens <= $1\n")
    assert main(["policy", "check", str(file)]) == 0
    notes = capsys.readouterr().err
    assert "a.yaml:3: goodput >= 95%: no objective says what a good request is" in notes
    assert "a.yaml:4: cost_per_million_tokens <= $1: the policy has no 'prices'" in notes


def test_check_tells_good_from_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("policy: good\nobjectives: [ttft p99 <= 250ms]\n")
    bad.write_text("policy: bad\nobjectives: [tttf p99 <= 250ms]\n")
    assert main(["policy", "check", str(good)]) == 0
    assert "good: 1 objective at 99 % confidence" in capsys.readouterr().out
    assert main(["policy", "check", str(good), str(bad), str(tmp_path / "none.yaml")]) == 4
    errors = capsys.readouterr().err.splitlines()
    assert errors[0].endswith("bad.yaml:2:14: unknown metric 'tttf' (did you mean 'ttft'?)")
    assert "no such policy" in errors[1]
    good.write_text(
        "policy: good\nobjectives: [ttft p99 <= 250ms]\noverrides: {backends: {vlm: {confidence: 90%}}}\n"
    )
    assert main(["policy", "check", str(good)]) == 0
    assert "overrides for backend 'vlm': did you mean 'vllm'?" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "explain"])
def test_a_folder_stands_for_its_policies(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "slo_policies"
    folder.mkdir()
    assert main(["policy", command, str(folder)]) == 4
    assert "slo_policies: holds no policy" in capsys.readouterr().err
    for name, suffix in (("one", "yaml"), ("two", "yml"), ("three", "md")):
        (folder / f"{name}.{suffix}").write_text(f"policy: {name}\nobjectives: [ttft p99 <= 250ms]\n")
    assert main(["policy", command, str(folder)]) == 0
    shown = capsys.readouterr().out
    assert [name for name in ("one", "two", "three") if name in shown] == ["one", "two"]
    with pytest.raises(PolicyError, match=r"slo_policies: is a folder: name one policy in it \(one, two\)"):
        load_policy(folder)


@pytest.mark.parametrize(
    ("rate", "says"),
    [("40", "'40' is a bare number without a unit; write it like 180/s"), ("0/s", "nothing is ever proven")],
)
def test_a_rate_that_is_none_says_what_to_write(
    rate: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "explain", "speed-first", "--rate", rate]) == 4
    assert f"argument --rate: {says}" in capsys.readouterr().err.replace(
        "'0/s': at no requests a second ", ""
    )


@pytest.mark.parametrize(
    ("objective", "says"),
    [
        ("ttft p95 <= 200ms", "90 requests if none is above the limit, 130"),
        ("goodput >= 95%", "90 requests if none fails or misses its limits, 130"),
        ("error_rate <= 5%", "90 requests if none fails, 130"),
        ("icl p95 <= 20ms", "90 gaps if none is above the limit, 130"),
        ("output_tokens p5 >= 8 tokens", "90 requests if none is below the limit, 130"),
    ],
)
def test_explain_says_which_requests_speak_against_a_promise(objective: str, says: str) -> None:
    assert says in "\n".join(explained(Policy("a", "a.yaml", (parse_objective(objective),))))


def test_explain_says_what_a_proof_takes(capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "slo_policies" / "speed-first.yaml"
    assert main(["policy", "explain", str(path), "--rate", "40/s"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines()[1:])) <= 80
    text = re.sub(r"(?<=\S)\n  (?=\S)", " ", shown)
    assert "99 % of the requests have a ttft (first output, from the intended start) of at most 5ms." in text
    assert "at least 459 requests if none is above the limit (11.47s at 40/s), 662 with one" in text
    assert "fails at 7 points:\n  7 points if ttft max > 5ms" in shown


@pytest.mark.parametrize("path", sorted((ROOT / "slo_policies").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_policy_can_be_explained_and_fits_the_schema(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "explain", str(path)]) == 0
    shown = capsys.readouterr().out
    assert all(objective.text in shown for objective in load_policy(path).objectives)
    jsonschema.validate(as_yaml(path.read_text()), SCHEMA)


def test_the_schema_is_the_one_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert policy_schema() == SCHEMA
    assert main(["policy", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA


@pytest.mark.parametrize(
    "text",
    [
        "policy: a\nobjectivs: []\n",
        "objectives: [ttft p99 <= 1s]\n",
        "policy: a\nobjectives: [tttf p99 <= 1s]\n",
        "policy: a\nguards: {clok: off}\n",
        "policy: a\nobjectives: [{objective: ttft p99 <= 1s, severity: wran}]\n",
        "policy: a\nrubric: {fail_at: 7}\n",
    ],
)
def test_the_schema_refuses_what_an_editor_can_see(text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(as_yaml(text), SCHEMA)


OPENSLO = """\
apiVersion: openslo/v1
kind: SLI
metadata: {name: first-token, annotations: {inferslo/metric: ttft, inferslo/unit: ms}}
spec:
  thresholdMetric: {metricSource: {type: Prometheus, spec: {query: x}}}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat first token}
spec:
  service: chat
  indicatorRef: first-token
  timeWindow: [{duration: 28d, isRolling: true}]
  budgetingMethod: Occurrences
  objectives:
    - {op: lte, value: 250, target: 0.99}
    - {op: lt, value: 100, targetPercent: 50}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: availability}
spec:
  service: chat
  indicator:
    metadata: {name: good-requests}
    spec: {ratioMetric: {counter: true, good: {metricSource: {}}, total: {metricSource: {}}}}
  timeWindow: [{duration: 30d, isRolling: true}]
  budgetingMethod: Occurrences
  objectives: [{target: 0.999}]
  alertPolicies: [{alertPolicyRef: fast}]
---
apiVersion: openslo/v1
kind: AlertPolicy
metadata: {name: fast}
spec:
  conditions:
    - kind: AlertCondition
      metadata: {name: page}
      spec: {condition: {kind: burnrate, op: gte, threshold: 14.4, lookbackWindow: 1h, alertAfter: 5m}}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: sliced-e2e}
spec:
  service: chat
  indicator: {metadata: {name: sliced e2e}, spec: {thresholdMetric: {metricSource: {}}}}
  budgetingMethod: Timeslices
  objectives: [{op: lte, value: 2, target: 0.9, timeSliceTarget: 0.95, timeSliceWindow: 1m}]
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: revenue}
spec:
  indicator: {metadata: {name: revenue}, spec: {thresholdMetric: {metricSource: {}}}}
  objectives: [{op: lte, value: 2, target: 0.9}]
"""


def imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, *more: str
) -> tuple[int, list[Any], str]:
    path = tmp_path / "slo.yaml"
    path.write_text(text)
    code = main(["policy", "import-openslo", str(path), *more])
    out, err = capsys.readouterr()
    policies = []
    for number, part in enumerate(out.split("---\n") if out else []):
        saved = tmp_path / f"{number}.yaml"
        saved.write_text(part)
        policies.append(load_policy(saved))
    return code, policies, err


def test_openslo_becomes_policies_and_the_rest_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, policies, left_out = imported(tmp_path, capsys, OPENSLO, "--unit", "s")
    assert code == 0
    assert [(p.name, [o.text for o in p.objectives]) for p in policies] == [
        ("chat-first-token", ["ttft p99 <= 250ms", "ttft p50 < 100ms"]),
        ("availability", ["error_rate <= 0.1%"]),
        ("sliced-e2e", ["e2e p95 <= 2s for 1m"]),
    ]
    assert policies[0].owner == "chat"
    budget = policies[1].budget
    assert (budget.period, budget.rules[0].rate, budget.rules[0].short) == (30 * 86400, 14.4, 300)
    for told in ("window of 28d", "90 % of the time slices", "SLO 'revenue' names no metric"):
        assert told in left_out
    assert all(line.startswith(str(tmp_path / "slo.yaml:")) for line in left_out.splitlines())


SEVERAL = """\
- apiVersion: openslo/v1
  kind: SLO
  metadata: {name: front}
  spec:
    indicatorRef: front-errors
    budgetingMethod: Occurrences
    timeWindow: [{duration: 4w, isRolling: true}]
    objectives: [{target: 0.98}, {targetPercent: 99.99}]
    alertPolicies: [slow, {alertPolicyRef: gone}]
- apiVersion: openslo/v1
  kind: SLO
  metadata: {name: sliced}
  spec:
    indicator: {metadata: {name: x}, spec: {ratioMetric: {bad: {}, total: {}}}}
    budgetingMethod: Timeslices
    objectives: [{target: 0.9, timeSliceTarget: 0.99, timeSliceWindow: 5}]
"""
REFERRED = """\
apiVersion: openslo/v1
kind: SLI
metadata: {name: front-errors}
spec: {ratioMetric: {good: {}, total: {}}}
---
apiVersion: openslo/v1
kind: AlertPolicy
metadata: {name: slow}
spec: {conditions: [{spec: {condition: {threshold: 2, lookbackWindow: 6h, alertAfter: 0m}}}, {conditionRef: lost}]}
"""


def test_openslo_files_refer_to_each_other_and_hold_lists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A number alone means minutes, an alert condition a burn rate; of two targets the stricter one holds."""
    (tmp_path / "other.yaml").write_text(REFERRED)
    code, policies, told = imported(tmp_path, capsys, SEVERAL, str(tmp_path / "other.yaml"))
    assert code == 0
    assert [[o.text for o in policy.objectives] for policy in policies] == [
        ["error_rate <= 0.01%"],
        ["error_rate <= 1% for 5m"],
    ]
    assert [(rule.rate, rule.long, rule.short) for rule in policies[0].budget.rules] == [(2, 21_600, 21_600)]
    for part in (
        "error_rate <= 2%: follows from error_rate <= 0.01%",
        "the alert policy 'gone', which stands in none",
        "the alert condition 'lost', which stands in none",
        "what 'good' means in SLO 'front'",
    ):
        assert part in told
    assert (
        imported(tmp_path, capsys, SEVERAL)[2].count("its SLI 'front-errors' stands in none of these files")
        == 1
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kind: SLI\n", "no OpenSLO document of kind SLO"),
        ("kind: SLO\napiVersion: openslo/v2\nmetadata: {name: a}\n", "is not openslo/v1"),
        (OPENSLO.split("---\n")[3].replace("AlertPolicy", "SLO"), "nothing of SLO 'fast'"),
        ("[1, 2]\n", "no OpenSLO document"),
    ],
)
def test_openslo_of_which_nothing_comes_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str
) -> None:
    code, policies, left_out = imported(tmp_path, capsys, text)
    assert (code, policies) == (4, [])
    assert told in left_out


def test_loading_a_policy_needs_no_numpy() -> None:
    """Policies are loaded while pytest collects."""
    code = (
        "import sys; from pytest_inferslo.policies import load_policy; load_policy(sys.argv[1]); "
        "print([name for name in ('numpy', 'scipy', 'pyarrow', 'locust') if name in sys.modules])"
    )
    path = ROOT / "slo_policies" / "interactive-chat.yaml"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_objective_in_the_guide_can_be_read() -> None:
    guide = (ROOT / "docs" / "write-a-policy.md").read_text()
    shown = [text for text in re.findall(r"\| `([^`]+)`", guide) if re.search(r"[<>]=? ", text)]
    assert len(shown) >= 12
    for text in shown:
        assert parse_objective(text).text == text
