"""Policy files, from bytes: every fault with its place, all of them at once, and never a traceback."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from pytest_inferslo.core.objective import Objective
from pytest_inferslo.core.policy import Policy, unmeasurable
from pytest_inferslo.errors import PolicyError
from pytest_inferslo.policies import load_policy

ROOT = Path(__file__).parents[2]

GOOD = """\
policy: chat
owner: team
description: words
confidence: 99%
objectives:
  - ttft p99 <= 250ms
  - tpot p95 <= 40ms   # a comment
  - {objective: gpu_memory peak <= 90%, optional: true}
  - objective: e2e p99 <= 2s
    severity: warn
    weight: 2
    key: true
guards: {send_lag: 20ms, duplicate_prompts: off}
rubric:
  fail_at: 10 points
  penalties:
    - e2e p99 > 5s: 7 points
    - error_rate > 5%: 9 points
error_budget:
  objective: error_rate <= 0.1%
  period: 30d
  burn:
    - {rate: 14.4, long: 1h, short: 5m}
prices: {hour: $3.27, instances: 6}
scenarios: [bursty, soak]
overrides:
  scenarios:
    soak: {objectives: [ttft p99 <= 1s], confidence: 95%}
  backends:
    sim: {remove: [tpot p95], guards: {loadgen_cpu: 50%}}
"""


def write(tmp_path: Path, text: str | bytes, name: str = "a.yaml") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def load(tmp_path: Path, text: str | bytes) -> Policy:
    return load_policy(write(tmp_path, text))


def problems(tmp_path: Path, text: str | bytes) -> list[tuple[int, int, str]]:
    with pytest.raises(PolicyError) as error:
        load(tmp_path, text)
    return [(p.line, p.column, p.message) for p in error.value.problems]


def texts(objectives: tuple[Objective, ...]) -> list[str]:
    return [objective.text for objective in objectives]


def test_a_whole_policy_is_read(tmp_path: Path) -> None:
    policy = load(tmp_path, GOOD)
    assert (policy.name, policy.owner, policy.confidence) == ("chat", "team", 0.99)
    assert [(o.text, o.optional, o.severity, o.weight, o.key) for o in policy.objectives] == [
        ("ttft p99 <= 250ms", False, "fail", 1, False),
        ("tpot p95 <= 40ms", False, "fail", 1, False),
        ("gpu_memory peak <= 90%", True, "fail", 1, False),
        ("e2e p99 <= 2s", False, "warn", 2, True),
    ]
    assert policy.objectives[0].source.endswith("a.yaml:6")
    assert policy.guards == {"send_lag": 20e6, "duplicate_prompts": None}
    assert policy.rubric.fail_at == 10
    assert [(p.text, p.points) for p in policy.rubric.penalties] == [
        ("e2e p99 > 5s", 7),
        ("error_rate > 5%", 9),
    ]
    assert policy.budget is not None
    assert (policy.budget.period, policy.budget.rules[0].rate) == (30 * 86400, 14.4)
    assert policy.prices is not None
    assert (policy.prices.hour, policy.prices.instances) == (3.27, 6)
    assert policy.scenarios == ("bursty", "soak")
    assert len(policy.sha256) == 64


def test_scenarios_and_backends_change_a_policy_for_themselves(tmp_path: Path) -> None:
    policy = load(tmp_path, GOOD)
    soak = policy.resolved("soak", "sim")
    assert texts(soak.objectives) == ["ttft p99 <= 1s", "gpu_memory peak <= 90%", "e2e p99 <= 2s"]
    assert soak.confidence == 0.95
    assert soak.guards["loadgen_cpu"] == 0.5
    assert texts(policy.resolved("other", "vllm").objectives) == texts(policy.objectives)


@pytest.mark.parametrize("name", ["attached", "h:8000", "http://h:8000"])
def test_a_server_by_url_is_called_by_kind_name_or_url(tmp_path: Path, name: str) -> None:
    policy = load(tmp_path, GOOD.replace("    sim:", f"    {name!r}:"))
    record = {"kind": "attached", "name": "h:8000", "endpoints": [{"url": "http://h:8000"}]}
    assert "tpot p95 <= 40ms" not in texts(policy.for_record({"backend": record}).objectives)
    other = {"kind": "launched", "name": "vllm", "endpoints": [{"url": "http://h:8000"}]}
    assert "tpot p95 <= 40ms" in texts(policy.for_record({"backend": other}).objectives)


def test_a_policy_extends_others(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "base.yaml")
    child = "policy: strict\nextends: base\nobjectives:"
    child += "\n  - ttft p99 <= 100ms\n  - icl p99 <= 80ms\nremove: [e2e p99]\n"
    policy = load(tmp_path, child)
    assert texts(policy.objectives) == [
        "ttft p99 <= 100ms",
        "tpot p95 <= 40ms",
        "gpu_memory peak <= 90%",
        "icl p99 <= 80ms",
    ]
    assert policy.scenarios == ()
    assert policy.rubric.fail_at == 10
    before = policy.sha256
    write(tmp_path, GOOD + "# changed\n", "base.yaml")
    assert load_policy(tmp_path / "a.yaml").sha256 != before


def test_of_several_parents_the_strictest_confidence_holds(tmp_path: Path) -> None:
    write(tmp_path, "policy: s\nconfidence: 99.9%\nobjectives: [ttft p99 <= 1s]\n", "strict.yaml")
    write(tmp_path, "policy: q\nobjectives: [e2e p99 <= 1s]\n", "quiet.yaml")
    write(tmp_path, "policy: l\nconfidence: 90%\nobjectives: [e2e p99 <= 1s]\n", "loose.yaml")
    for parents, confidence in (("[strict, quiet]", 0.999), ("[loose]", 0.9), ("[loose, strict]", 0.999)):
        write(tmp_path, f"policy: a\nextends: {parents}\n")
        assert load_policy(tmp_path / "a.yaml").confidence == confidence


PARENTS = (
    "policy: one\nguards: {send_lag: 20ms, clock: off}\nobjectives: [ttft p99 <= 1s]\nprices: {hour: $1}\n",
    "policy: two\nguards: {send_lag: 40ms, clock: 3 requests}\nobjectives: [ttft p99 <= 2s]\nprices: {hour: $2}\n",
)


@pytest.mark.parametrize(
    ("child", "told"),
    [
        ("", ["promise 'ttft p99 <= 1s' and 'ttft p99 <= 2s'", "a section 'prices'"]),
        ("objectives: [ttft p99 <= 3s]\n", ["a section 'prices'"]),
        ("prices: {hour: $3}\nremove: [ttft p99]\nobjectives: [e2e p99 <= 3s]\n", []),
    ],
    ids=["open", "half settled", "settled"],
)
def test_parents_that_contradict_each_other_are_refused_unless_the_child_decides(
    tmp_path: Path, child: str, told: list[str]
) -> None:
    for name, text in zip(("one", "two"), PARENTS, strict=True):
        write(tmp_path, text, f"{name}.yaml")
    text = f"policy: a\nextends: [one, two]\n{child}"
    if told:
        found = problems(tmp_path, text)
        assert len(found) == len(told)
        assert all(part in message for part, (_, _, message) in zip(told, found, strict=True))
    else:
        assert load(tmp_path, text).guards == {"send_lag": 20e6, "clock": 3}


def test_parents_of_one_ancestor_do_not_contradict_each_other(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "base.yaml")
    for name in ("one", "two"):
        write(tmp_path, f"policy: {name}\nextends: base\n", f"{name}.yaml")
    assert len(load(tmp_path, "policy: a\nextends: [one, two]\n").objectives) == 4


def test_an_override_adds_to_the_parents_override_of_the_same_scenario(tmp_path: Path) -> None:
    write(tmp_path, GOOD, "base.yaml")
    child = "policy: a\nextends: base\noverrides: {scenarios: {soak: {guards: {clock: off}}}}\n"
    soak = load(tmp_path, child).resolved("soak")
    assert "ttft p99 <= 1s" in texts(soak.objectives)
    assert (soak.confidence, soak.guards["clock"]) == (0.95, None)


@pytest.mark.parametrize(
    ("text", "line", "column", "told"),
    [
        ("", 1, 1, "is empty"),
        ("# nothing\n", 1, 1, "is empty"),
        ("- a\n", 1, 1, "the policy must be a mapping, not a list"),
        ("objectives: [ttft p99 <= 1s]\n", 1, 1, "has no name"),
        ("policy: a b\nobjectives: [ttft p99 <= 1s]\n", 1, 9, "may hold letters"),
        ("policy: a\n", 1, 1, "promises nothing"),
        ("policy: a\nobjectives: []\n", 2, 13, "promises nothing"),
        ("policy: a\nobjectives: ttft p99 <= 1s\n", 2, 13, "must be a list"),
        ("policy: a\nobjectivs: []\n", 2, 1, "did you mean 'objectives'?"),
        ("policy: a\nobjectives:\n  - tttf p99 <= 80ms\n", 3, 5, "did you mean 'ttft'?"),
        ("policy: a\nobjectives:\n  - ttft p99 <= 80\n", 3, 17, "without a unit"),
        ("policy: a\nobjectives:\n  - 5\n", 3, 5, "unknown metric '5'"),
        ("policy: a\nobjectives:\n  -\n", 3, 4, "must be a text, not nothing"),
        ("policy: a\nobjectives:\n  - {optional: true}\n", 3, 5, "with the key 'objective'"),
        (
            "policy: a\nobjectives:\n  - {objective: ttft p99 <= 1s, optinal: true}\n",
            3,
            33,
            "did you mean 'optional'?",
        ),
        ("policy: a\nobjectives:\n  - {objective: ttft p99 <= 1s, optional: yes}\n", 3, 43, "true or false"),
        (
            "policy: a\nobjectives:\n  - {objective: ttft p99 <= 1s, severity: wran}\n",
            3,
            43,
            "did you mean 'warn'?",
        ),
        ("policy: a\nobjectives:\n  - {objective: ttft p99 <= 1s, weight: -1}\n", 3, 41, "number over 0"),
        ("policy: a\nconfidence: 0.99\nobjectives: [ttft p99 <= 1s]\n", 2, 13, "without a unit"),
        ("policy: a\nconfidence: 100%\nobjectives: [ttft p99 <= 1s]\n", 2, 13, "between 50% and"),
        ("policy: a\nguards: {clok: off}\nobjectives: [ttft p99 <= 1s]\n", 2, 10, "did you mean 'clock'?"),
        ("policy: a\nguards: {send_lag: 5%}\nobjectives: [ttft p99 <= 1s]\n", 2, 20, "a time is expected"),
        ("policy: a\nrubric: {penalties: [{e2e p99 > 5ms: 7 points}]}\n", 2, 9, "need 'fail_at'"),
        (
            "policy: a\nrubric: {fail_at: 9 points, penalties: [{e2e p99 > 5ms: 7 points}]}\n",
            2,
            19,
            "never fail",
        ),
        (
            "policy: a\nrubric: {fail_at: 7, penalties: [{e2e p99 > 5ms: 7 points}]}\n",
            2,
            19,
            "like '7 points'",
        ),
        (
            "policy: a\nrubric: {fail_at: 7 points, penalties: [{e2e p99 < 5ms: 7 points}]}\n",
            2,
            50,
            "breaks a promise: e2e is better",
        ),
        ("policy: a\nextends: nothing\nobjectives: [ttft p99 <= 1s]\n", 2, 10, "there is no such policy"),
        ("policy: a\nremove: [ttft p99]\nobjectives: [ttft p99 <= 1s]\n", 2, 10, "to remove"),
        (
            "policy: a\nprices: {hour: $1, instances: 0.5}\nobjectives: [ttft p99 <= 1s]\n",
            2,
            31,
            "a whole number",
        ),
        (
            "policy: a\nprices: {hour: $1, output: $2}\nobjectives: [ttft p99 <= 1s]\n",
            2,
            28,
            "no effect beside",
        ),
        (
            "policy: a\nprices: {input: $1, output: $2, count: all}\nobjectives: [ttft p99 <= 1s]\n",
            2,
            40,
            "no effect without 'hour'",
        ),
        (
            "policy: a\nprices: {input: $1, output: €2}\nobjectives: [ttft p99 <= 1s]\n",
            2,
            9,
            "several currencies",
        ),
        (
            "policy: a\nprices: {hour: €3}\nobjectives: [cost_per_million_tokens <= $1]\n",
            1,
            1,
            "is in $, and the prices are in €",
        ),
        ("policy: a\nrubric: {}\nobjectives: [ttft p99 <= 1s]\n", 2, 9, "an empty rubric changes nothing"),
        ("policy: a\nprices: {instances: 2}\nobjectives: [ttft p99 <= 1s]\n", 2, 9, "need 'hour'"),
        ("policy: a\nerror_budget: {period: 1d}\nobjectives: [ttft p99 <= 1s]\n", 2, 15, "needs 'objective'"),
        (
            "policy: a\nobjectives: [{objective: ttft p99 <= 1s, severity: warn}]\n",
            2,
            13,
            "only warn, so that this policy can never fail",
        ),
        (
            "policy: a\nobjectives: [ttft p99 <= 1s]\noverrides: {scenarios: {s: {remove: [ttft p99]}}}\n",
            3,
            12,
            "under the overrides for 's' nothing is left",
        ),
        (
            "policy: a\nobjectives: [ttft p99 <= 1s, e2e p99 <= 1s]\n"
            "overrides: {scenarios: {s: {remove: [ttft p99]}}, backends: {b: {remove: [e2e p99]}}}\n",
            3,
            12,
            "under the overrides for 's' on 'b' nothing is left",
        ),
        (
            "policy: a\nerror_budget:\n  objective: error_rate <= 50%\n  period: 30d\n  burn:\n"
            "    - {rate: 2.5, long: 2s, short: 1s}\n",
            6,
            7,
            "can never fail",
        ),
        (
            "policy: a\nprices: {hour: $0}\nobjectives: [cost_per_million_tokens <= $1]\n",
            2,
            9,
            "can never fail",
        ),
        ("policy: a\nobjectives: [gpu_memory peak <= 90]\n", 2, 33, "23GB, 512MiB, or 90% of the device's"),
        (
            "policy: a\nobjectives: [gpu_memory peak <= 90% optional]\n",
            2,
            37,
            "{objective: ..., optional: ...}",
        ),
        (
            "policy: a\nobjectives:\n - {objective: gpu_memory peak <= 90% optional: true}\n",
            3,
            47,
            "between the entries of {...} stands a comma",
        ),
        (
            "policy: a\nobjectives:\n - {objective: ttft p99 <= 1s within adapter:a,endpoint:b, optional: true}\n",
            3,
            48,
            "the comma before 'endpoint:b' ends the text",
        ),
        ("policy: a\nx: [1, 2\n", 3, 1, "is no YAML"),
        ("policy: a\n\tobjectives: []\n", 2, 1, "is no YAML"),
        ("policy: a\n---\npolicy: b\n", 3, 1, "a second document"),
        (b"policy: \xff\n", 1, 9, "no UTF-8"),
        (b"policy: a\nx: \x00\n", 2, 4, "control character"),
        ("policy: a\nx: &x [*x]\n", 2, 4, "refers to itself"),
        ("? [a]\n: b\n", 1, 3, "a key must be a text"),
    ],
)
def test_each_fault_has_its_place(
    tmp_path: Path, text: str | bytes, line: int, column: int, told: str
) -> None:
    found = problems(tmp_path, text)
    assert any((at, col) == (line, column) and told in message for at, col, message in found), found


def test_a_promise_that_stands_twice_names_both_lines(tmp_path: Path) -> None:
    """Case 31, in a list and under one key."""
    listed = "policy: a\nobjectives:\n  - ttft p99 <= 80ms\n  - e2e p99 <= 1s\n  - ttft p99 <= 8000ms\n"
    assert problems(tmp_path, listed) == [(5, 5, "'ttft p99' is promised twice: in line 3 and in line 5")]
    keyed = "policy: a\nobjectives: [ttft p99 <= 80ms]\nowner: x\nobjectives: [ttft p99 <= 8000ms]\n"
    assert problems(tmp_path, keyed) == [
        (4, 1, "'objectives' stands twice in the policy: in line 2 and in line 4")
    ]


def test_warning_and_limit_of_one_metric_may_stand_together(tmp_path: Path) -> None:
    text = "policy: a\nobjectives:\n  - {objective: ttft p99 <= 80ms, severity: warn}\n  - ttft p99 <= 90ms\n"
    assert len(load(tmp_path, text).objectives) == 2


def test_all_faults_of_a_file_come_at_once_in_order(tmp_path: Path) -> None:
    text = "policy: a\nconfidence: 2\nobjectives:\n  - tttf p99 <= 1s\n  - ttft p99 <= 1\nguards: {x: 1}\nfoo: 1\n"
    assert [line for line, _, _ in problems(tmp_path, text)] == [2, 4, 5, 6, 7]


def test_a_circle_of_policies_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "policy: b\nextends: a\nobjectives: [ttft p99 <= 1s]\n", "b.yaml")
    (found,) = problems(tmp_path, "policy: a\nextends: b\nobjectives: [ttft p99 <= 1s]\n")
    assert "extends itself" in found[2]


def test_policies_are_found_by_name_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, near = tmp_path / "root", tmp_path / "root" / "scenarios" / "deep"
    for folder in (near, root / "slo_policies"):
        folder.mkdir(parents=True)
    write(root / "slo_policies", GOOD, "chat.yaml")
    monkeypatch.chdir(tmp_path)
    for name in ("chat", "chat.yaml", str(root / "slo_policies" / "chat.yaml"), "root/slo_policies/chat"):
        assert load_policy(name, rootdir=root, near=near).name == "chat"
    with pytest.raises(PolicyError, match=r"no such policy \(did you mean 'chat'\?\)"):
        load_policy("chut", rootdir=root, near=near)


@pytest.mark.parametrize("path", sorted((ROOT / "slo_policies").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_policies_can_be_trusted(path: Path) -> None:
    policy = load_policy(path)
    assert policy.name == path.stem
    assert path.read_text().startswith("# yaml-language-server: $schema=")


def test_a_policy_that_a_scenario_cannot_show_is_told_before_any_load(tmp_path: Path) -> None:
    """Case 2: an inter-chunk objective on a scenario that does not stream."""
    text = "policy: a\nobjectives:\n  - icl p99 <= 1s\n  - e2e p99 <= 1s within phase:spik\n"
    found = unmeasurable(load(tmp_path, text), streaming=False, phases=["base", "spike"])
    assert len(found) == 2
    assert "icl needs a streamed answer" in found[0]
    assert re.search(r"a.yaml:4: .*no phase 'spik' \(it has base, spike\)", found[1])
    assert not unmeasurable(load(tmp_path, GOOD), streaming=True, phases=[])


@pytest.mark.parametrize(
    ("objective", "told"),
    [
        ("e2e p99 <= 1s within adapter:a", ""),
        ("e2e p99 <= 1s within adapter:base", ""),
        ("e2e p99 <= 1s within adapter:*", ""),
        ("e2e p99 <= 1s within adapter:c", "no adapter 'c' (it has a, b, base)"),
        ("e2e p99 <= 1s within stream:chta", "no stream 'chta' (it has chat)"),
        ("e2e p99 <= 150% of adapter:c within adapter:a", "no adapter 'c'"),
        ("e2e p99 <= 150% of baseline", ""),
        ("e2e p99 <= 1s within endpoint:new", ""),
        ("e2e p99 <= 1s within endpoint:nwe", "the backend has no endpoint 'nwe' (it has stable, new)"),
        ("e2e p99 <= 120% of endpoint:stabel within endpoint:new", "no endpoint 'stabel'"),
        ("goodput >= 95%", "no objective says what a good request is"),
        ("recovery_time <= 5s after calm", "no objective says what it recovers to"),
        ("cost_per_million_tokens <= $1", "the policy has no 'prices'"),
    ],
)
def test_names_that_a_scenario_does_not_have(tmp_path: Path, objective: str, told: str) -> None:
    policy = load(tmp_path, f"policy: a\nobjectives: ['{objective}']\n")
    names = {"adapters": ["a", "b", "base"], "streams": ["chat"], "endpoints": ["stable", "new"]}
    found = unmeasurable(policy, streaming=True, phases=["calm"], **names)
    assert [told in line for line in found] == ([True] if told else [])
    if objective.startswith("e2e"):
        assert not unmeasurable(policy, streaming=True, phases=["calm"]), "where the names are not known"


MUTATIONS = ("delete", "insert", "swap", "repeat", "byte")


def mutated(random_: random.Random) -> bytes:
    data = bytearray(GOOD.encode())
    for _ in range(random_.randint(1, 6)):
        at = random_.randrange(len(data))
        match random_.choice(MUTATIONS):
            case "delete":
                del data[at : at + random_.randint(1, 20)]
            case "insert":
                data[at:at] = random_.choice(
                    (b"\n", b": ", b"- ", b"{", b"[", b"'", b'"', b"&a ", b"*a", b"!!int ", b"? ", b"|", b">", b"%",
                     b"@", b"`", b"<<: *a\n", b"\t", b"\xc3", b"\x00", b"...", b"---\n", b"!!binary ", b"\xe2\x80\xa8")
                )  # fmt: skip
            case "swap":
                lines = bytes(data).split(b"\n")
                random_.shuffle(lines)
                data = bytearray(b"\n".join(lines))
            case "repeat":
                data += data[at : at + 80]
            case "byte":
                data[at] = random_.randrange(256)
        if not data:
            data = bytearray(b"\n")
    return bytes(data)


def test_a_corpus_of_broken_files_ends_in_named_faults_with_places(tmp_path: Path) -> None:
    random_ = random.Random(20261130)
    refused = 0
    for _ in range(600):
        data = mutated(random_)
        try:
            load(tmp_path, data)
        except PolicyError as error:
            refused += 1
            places = [(p.line, p.column, p.message) for p in error.problems]
        else:
            places = []
        assert all(line >= 1 and column >= 1 and message for line, column, message in places), (data, places)
    assert refused > 500
