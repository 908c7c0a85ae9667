"""What `--backend` takes, and what it says to what it does not take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from faulty import Faulty

from pytest_inferslo.backends import BackendOptions, Group, resolve
from pytest_inferslo.errors import BackendConfigError


@pytest.mark.parametrize("name", ["sim", "vllm", "trtllm", "triton", "sglang", "llamacpp"])
def test_shipped_names(name: str) -> None:
    backend = resolve(name, BackendOptions())
    assert not isinstance(backend, Group)
    assert backend.name == name


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("vlm", "did you mean vllm"),
        ("tensorrt", "Known are sim, vllm, trtllm"),
        ("", "no such backend"),
        ("faulti", "did you mean faulty"),
        ("ftp://host", "expected http://HOST:PORT"),
        ("http://", "expected http://HOST:PORT"),
        ("http://host:99999", "expected http://HOST:PORT"),
        ("http://host:0", "expected http://HOST:PORT"),
        ("http://me:secret@host", "leave user, query and fragment out"),
        ("https://host/?key=secret", "leave user, query and fragment out"),
        ("missing.yaml", "cannot read this group file"),
    ],
)
def test_refused_names(spec: str, message: str) -> None:
    with pytest.raises(BackendConfigError) as caught:
        resolve(spec, BackendOptions(), {"faulty": Faulty()})
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("https://host/team/a/v1", "https://host/team/a"),
        ("https://host/v1/", "https://host"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
    ],
)
def test_urls(spec: str, url: str) -> None:
    backend: Any = resolve(spec, BackendOptions())
    launch = backend.launch(BackendOptions(model="m"), 1)
    assert launch.endpoints[0].url == url
    assert launch.command == ()


def test_registered_backends() -> None:
    ours = Faulty()
    assert resolve("faulty", BackendOptions(), {"faulty": ours}) is ours
    with pytest.raises(BackendConfigError, match="registers 'vllm', which this package ships"):
        resolve("sim", BackendOptions(), {"vllm": ours})


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "group.yaml"
    path.write_text(text)
    return str(path)


def test_a_group_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", "k")
    spec = write(
        tmp_path,
        """
        backends:
          - backend: faulty
            name: stable
            replicas: 3
            weight: 90
            args: [--delay, "{replica}"]
            env: {CUDA_VISIBLE_DEVICES: "{replica}", N: 1}
          - url: https://canary.example/v1
            name: canary
            weight: 10
            model: other
            api_key_env: CANARY_KEY
        """,
    )
    options = BackendOptions(model="m", args=("--from-the-command-line",), env={"A": "b"}, server_pid=1)
    group = resolve(spec, options, {"faulty": Faulty()})
    assert isinstance(group, Group)
    assert [(each.name, each.weight) for each in group.members] == [
        ("stable-0", 30.0),
        ("stable-1", 30.0),
        ("stable-2", 30.0),
        ("canary", 10.0),
    ]
    assert [tuple(each.options.args) for each in group.members] == [
        ("--delay", "0"),
        ("--delay", "1"),
        ("--delay", "2"),
        (),
    ]
    assert group.members[2].options.env == {"A": "b", "CUDA_VISIBLE_DEVICES": "2", "N": "1"}
    assert [each.options.model for each in group.members] == ["m", "m", "m", "other"]
    assert group.members[0].options.server_pid is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected a list under the key `backends`"),
        ("backends: []", "expected a list under the key `backends`"),
        ("backends: [1]", "expected a mapping"),
        ("a: [b", "not YAML"),
        ("other: 1\nbackends:\n- backend: sim\n", "unknown key 'other'"),
        ("backends:\n- backend: sim\n  wieght: 1\n", ":3: unknown key 'wieght', did you mean weight?"),
        ("backends:\n- backend: sim\n  weight: lots\n", ":3: weight is 'lots', expected a number"),
        ("backends:\n- backend: sim\n  weight: -1\n", ":2: weight is -1"),
        ("backends:\n- backend: sim\n  weight: .nan\n", ":2: weight is nan"),
        ("backends:\n- backend: sim\n  replicas: true\n", ":3: replicas is True, expected a whole number"),
        ("backends:\n- backend: sim\n  replicas: 0\n", ":2: replicas is 0"),
        ("backends:\n- model: x\n", ":2: expected either `backend` or `url`"),
        ("backends:\n- backend: sim\n  url: http://h:1\n", ":2: expected either `backend` or `url`"),
        ("backends:\n- backend: sim\n- backend: sim\n", "two backends are named 'sim'"),
        ("backends:\n- backend: sim\n  weight: 0\n", "every weight is 0"),
        ("backends:\n- url: http://h:1\n  replicas: 2\n", "list each replica's URL"),
        ("backends:\n- backend: siim\n", "did you mean sim"),
        (
            "backends:\n- {backend: vllm, model: m, verify_tls: false}\n",
            ":2: verify_tls has no effect on vllm",
        ),
        ("backends:\n- {url: 'http://h:1', env: {A: b}}\n", ":2: env has no effect on h:1"),
        ("backends:\n- {backend: triton, lora: {a: b}}\n", ":2: lora has no effect on triton"),
    ],
)
def test_faulty_group_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BackendConfigError) as caught:
        resolve(write(tmp_path, text), BackendOptions())
    assert message in str(caught.value)


def test_a_group_cannot_hold_a_group(tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text("backends:\n- backend: sim\n")
    with pytest.raises(BackendConfigError, match="cannot hold another group"):
        resolve(write(tmp_path, f"backends:\n- backend: {tmp_path}/inner.yaml\n"), BackendOptions())
