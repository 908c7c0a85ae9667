"""Fault scripts: what is refused, and that one seed gives one sequence."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_inferslo.backends.simulated.faults import Dice, Fault, Script, parse_script
from pytest_inferslo.backends.simulated.profile import load_profile, parse_profile, read_mapping
from pytest_inferslo.errors import BackendConfigError

SCRIPT = """
seed: 7
faults:
  - {kind: error, share: 2%, status: 503, from: 5s, until: 1m}
  - {kind: stall, at: 10s, length: 1500ms}
  - {kind: leak, bytes: 2MiB}
  - {kind: truncate, share: 0.5, after_tokens: 3, reset: true}
  - {kind: crash, at: 30, signal: 9}
"""


def test_script_in_units() -> None:
    assert parse_script(read_mapping(SCRIPT, "f.yaml"), "f.yaml") == Script(
        (
            Fault("error", at=5.0, until=60.0, share=0.02, status=503),
            Fault("stall", at=10.0, length=1.5),
            Fault("leak", bytes=2 * 1024**2),
            Fault("truncate", share=0.5, after_tokens=3, reset=True),
            Fault("crash", at=30.0, signal=9),
        ),
        seed=7,
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"fault": []}, "unknown key 'fault'"),
        ({"seed": "lucky"}, "seed: 'lucky' is not a whole number"),
        ({"faults": {"kind": "error"}}, "faults: a list is wanted, got dict"),
        ({"faults": ["error"]}, "fault 1: a mapping with `kind` is wanted"),
        (
            {"faults": [{"kind": "hang"}, {"kind": "eror"}]},
            "fault 2: unknown kind 'eror' (did you mean 'error'?)",
        ),
        ({"faults": [{"kind": "stall", "at": "1s"}]}, "fault 1: stall wants `length`"),
        ({"faults": [{"kind": "hang", "status": 500}]}, "fault 1: hang has no field 'status'"),
        ({"faults": [{"kind": "error", "share": "120%"}]}, "share: '120%': a share lies between 0 and 1"),
        ({"faults": [{"kind": "error", "share": "2"}]}, "share: '2'"),
        ({"faults": [{"kind": "crash", "at": "5 parsecs"}]}, "at: '5 parsecs'"),
        ({"faults": [{"kind": "error", "status": "bad"}]}, "status: 'bad'"),
    ],
)
def test_refused_scripts_name_the_entry(value: dict[str, Any], message: str) -> None:
    with pytest.raises(BackendConfigError) as caught:
        parse_script(value, "f.yaml")
    assert "f.yaml" in str(caught.value)
    assert message in str(caught.value)


def fates(script: Script, count: int, elapsed: float = 0.0, open_requests: int = 0) -> list[str | None]:
    dice = Dice(script)
    met = [dice.fate(elapsed, open_requests) for _ in range(count)]
    return [fault.kind if fault else None for fault in met]


def test_one_seed_is_one_sequence_with_its_share() -> None:
    script = Script((Fault("error", share=0.1), Fault("hang", share=0.05)), seed=3)
    seen = fates(script, 4000)
    assert seen == fates(script, 4000)
    assert seen != fates(Script(script.faults, seed=4), 4000)
    assert seen.count("error") == pytest.approx(400, rel=0.15)
    assert seen.count("hang") == pytest.approx(190, rel=0.25)


@pytest.mark.parametrize(("elapsed", "hit"), [(4.9, False), (5.0, True), (9.9, True), (10.0, False)])
def test_window_is_half_open(elapsed: float, hit: bool) -> None:
    script = Script((Fault("error", at=5.0, until=10.0),))
    assert (fates(script, 1, elapsed) == ["error"]) is hit


@pytest.mark.parametrize(("open_requests", "hit"), [(9, False), (10, True)])
def test_overload_counts_open_requests(open_requests: int, hit: bool) -> None:
    assert (fates(Script((Fault("overload", limit=10),)), 1, 0.0, open_requests) == ["overload"]) is hit


def test_fault_that_is_not_active_leaves_the_others_alone() -> None:
    faults = (Fault("hang", share=0.3), Fault("error", at=100.0, share=0.5))
    before = fates(Script(faults, seed=1), 300, elapsed=0.0)
    during = fates(Script(faults, seed=1), 300, elapsed=100.0)
    assert [kind == "hang" for kind in before] == [kind == "hang" for kind in during]
    assert "error" in during
    assert "error" not in before


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_seqs": 4}, "unknown key 'max_seqs'"),
        ({"max_num_seqs": 0}, "max_num_seqs is 0; wanted: at least 1"),
        ({"max_num_seqs": "many"}, "max_num_seqs: 'many'"),
        ({"max_num_seqs": 2.5}, "max_num_seqs: 2.5"),
        ({"enable_prefix_caching": "no"}, "enable_prefix_caching: 'no'"),
        ({"decode_ms": [[4, 5], [1, 3]]}, "wanted: rows of rising counts"),
        ({"prefill_ms": {}}, "prefill_ms is (); wanted: rows"),
        ({"prefill_ms": {1: -2}}, "wanted: times not negative"),
        ({"latency_ms": -1}, "latency_ms is -1.0; wanted: not negative"),
        ({"frontend_ms": float("nan")}, "frontend_ms is nan"),
        ({"max_loras": 0}, "max_loras is 0"),
        ({"num_gpu_blocks": 10}, "cannot hold one request"),
    ],
)
def test_refused_profiles_say_why(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BackendConfigError, match=r"p\.yaml|'p'") as caught:
        parse_profile(values, "p.yaml", "p")
    assert message in str(caught.value)


def test_unknown_profile_names_those_that_ship() -> None:
    with pytest.raises(BackendConfigError, match="cpu-tiny, fast, h200-7b"):
        load_profile("a100")
