"""The language of scripts: what it says, and how each mistake is named with its line."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pytest_inferslo.errors import ScriptError
from pytest_inferslo.servers import script as s
from pytest_inferslo.servers.scripted_cli import load_script


def loaded(tmp_path: Path, text: str) -> s.Script:
    path = tmp_path / "script.yaml"
    path.write_text(text)
    return load_script(path)


def test_a_script(tmp_path: Path) -> None:
    script = loaded(
        tmp_path,
        r"""
script: half-broken
api: completions
model: tiny
seed: 7
uncounted: 1
answers:
  - when: first 20
    steps: [answer]
  - when: every 2nd
    path: /v1/completions
    steps:
      - wait: 20ms
      - head: {status: 200, headers: {x-a: "1"}, length: until close}
      - together: [role, {token: "Hi"}]
      - split: {at: [3, 9], pause: 1ms, steps: [{event: {error: {code: 500, message: died}}}]}
      - repeat: {times: 3, steps: [{wait: {bimodal: {low: 1ms, high: 9ms, share: 10%}}}, {token: x}]}
      - send: "a\r\n"
      - hex: "e2 82"
      - reset
""",
    )
    assert (script.name, script.api, script.model, script.seed, script.uncounted) == (
        "half-broken", "completions", "tiny", 7, 1,
    )  # fmt: skip
    assert script.rules[0].when == s.When(1, 20)
    assert script.rules[1].when == s.When(every=2, path="/v1/completions")
    assert script.rules[1].line == 10
    steps = script.rules[1].steps
    assert steps[0] == s.Wait(s.Delay("fixed", (20e6,)))
    assert steps[1] == s.Head(200, (("x-a", "1"),), s.UNTIL_CLOSE)
    assert steps[2] == s.Split((s.Role(), s.Token("Hi")), (), None, s.NO_DELAY)
    assert isinstance(steps[3], s.Split)
    assert steps[3].steps == (s.Event({"error": {"code": 500, "message": "died"}}),)
    assert isinstance(steps[4], s.Repeat)
    assert steps[4].steps[0] == s.Wait(s.Delay("bimodal", (1e6, 9e6, 0.1)))
    assert steps[5:] == (s.Raw(b"a\r\n"), s.Body(b"\xe2\x82"), s.Reset())


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("always", range(1, 31)),
        ("7", [7]),
        ("3 to 5", [3, 4, 5]),
        ("first 2", [1, 2]),
        ("after 28", [29, 30]),
        ("every 10th", [10, 20, 30]),
        ("every 2nd after 25", [27, 29]),
        ("every 1st", range(1, 31)),
        ("try 1", range(1, 31)),
        ("try 2", []),
    ],
)
def test_which_requests(tmp_path: Path, text: str, numbers: list[int]) -> None:
    when = loaded(tmp_path, f"answers: [{{when: {text}, steps: [hang]}}]").rules[0].when
    assert [n for n in range(1, 31) if when.holds(n, 1, "/")] == list(numbers)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "is empty"),
        ("answers:\n  - steps: [wiat]\n", 2, "did you mean 'wait'"),
        ("answers:\n  - steps:\n    - wait: 20\n", 3, "20"),
        ("answers:\n  - when: sometimes\n    steps: [hang]\n", 2, "when 'sometimes' is not known"),
        ("answers:\n  - when: first 0\n    steps: [hang]\n", 2, "requests count from 1"),
        ("answers:\n  - steps: []\n", 2, "for silence write 'hang'"),
        ("answers:\n  - when: always\n", 2, "needs 'steps'"),
        ("script: x\n", 1, "needs 'answers'"),
        ("answers: []\n", 1, "at least one answer"),
        ("answres:\n  - steps: [hang]\n", 1, "did you mean 'answers'"),
        ("api: chatt\nanswers:\n  - steps: [hang]\n", 1, "did you mean 'chat'"),
        ("answers:\n  - steps:\n    - head: 999\n", 3, "status 999"),
        ("answers:\n  - steps:\n    - hex: zz\n", 3, "hexadecimal"),
        ("answers:\n  - steps:\n    - split: {at: [3, 2], steps: [{chunk: abc}]}\n", 3, "must rise"),
        ("answers:\n  - steps:\n    - split: {steps: [{chunk: abc}]}\n", 3, "needs 'at'"),
        ("answers:\n  - steps:\n    - together: [{wait: 1ms}]\n", 3, "'wait' is not bytes"),
        ("answers:\n  - steps:\n    - wait: {lognormal: {median: 1ms}}\n", 3, "needs sigma"),
        ("answers:\n  - steps:\n    - repeat: {times: 0, steps: [end]}\n", 3, "from 1 on"),
        ("answers:\n  - steps:\n    - reply: {json: {}, body: x}\n", 3, "not both"),
        ("answers:\n  - steps: [hang]\n    steps: [end]\n", 3, "stands twice"),
        ("answers: [\n", 2, "is no YAML"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        loaded(tmp_path, text)
    problem = caught.value.problems[0]
    assert message in problem.message
    assert problem.line == line
    assert f"script.yaml:{line}:" in str(caught.value)


def test_all_mistakes_come_at_once_and_a_missing_file_is_one(tmp_path: Path) -> None:
    with pytest.raises(ScriptError) as caught:
        loaded(tmp_path, "api: x\nanswers:\n  - when: now\n    steps: [nothing]\n")
    assert [problem.line for problem in caught.value.problems] == [1, 3, 4]
    with pytest.raises(ScriptError, match="cannot be read"):
        load_script(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("delay", "median"),
    [
        (s.Delay("fixed", (5e6,)), 5e6),
        (s.Delay("uniform", (1e6, 3e6)), 2e6),
        (s.Delay("exponential", (10e6,)), 6.93e6),
        (s.Delay("lognormal", (20e6, 0.5)), 20e6),
        (s.Delay("bimodal", (1e6, 9e6, 0.1)), 1e6),
    ],
)
def test_drawn_times(delay: s.Delay, median: float) -> None:
    source = random.Random(1)
    drawn = sorted(delay.draw(source) for _ in range(4001))
    assert drawn[2000] == pytest.approx(median, rel=0.1)
    assert all(isinstance(value, int) and value >= 0 for value in drawn)


def test_the_scripts_of_the_documentation_can_be_played(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "scripted-server.md").read_text()
    blocks = [block.split("```")[0] for block in page.split("```yaml\n")[1:]]
    scripts = [
        block if "answers:" in block else f"answers:\n  - steps:\n{indented(block)}" for block in blocks
    ]
    assert [len(loaded(tmp_path, script).rules) for script in scripts] == [3, 1]


def indented(block: str) -> str:
    return "".join(f"      {line}\n" for line in block.splitlines())
