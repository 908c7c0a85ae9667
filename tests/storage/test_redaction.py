"""No secret reaches run.json, and nothing else is hidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_inferslo.storage.redaction import redacted
from pytest_inferslo.storage.run_directory import RunDirectory


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["vllm", "--api-key", "sk-1", "--port", "80"], ["vllm", "--api-key", "***", "--port", "80"]),
        (["--hf-token=hf_1"], ["--hf-token=***"]),
        (["--backend-env=HF_TOKEN=hf_1"], ["--backend-env=HF_TOKEN=***"]),
        (["--backend-env", "VLLM_API_KEY=a=b"], ["--backend-env", "VLLM_API_KEY=***"]),
        (["--backend-env", "AWS_SECRET_ACCESS_KEY=x"], ["--backend-env", "AWS_SECRET_ACCESS_KEY=***"]),
        (["--ssl-keyfile-password", "pw", "x"], ["--ssl-keyfile-password", "***", "x"]),
        (["--backend=http://me:pw@host:80/v1"], ["--backend=http://***@host:80/v1"]),
        (["--max-num-batched-tokens=2048"], ["--max-num-batched-tokens=2048"]),
        (["--tokenizer", "dir", "--max-tokens", "16"], ["--tokenizer", "dir", "--max-tokens", "16"]),
        (["--api-key-env", "KEY_NAME"], ["--api-key-env", "KEY_NAME"]),
        (["--api-key", "--port", "80"], ["--api-key", "--port", "80"]),
        (["-k", "monkey or donkey"], ["-k", "monkey or donkey"]),
    ],
)
def test_command_lines(given: list[str], shown: list[str]) -> None:
    assert redacted({"command": given}) == {"command": shown}
    assert redacted({"backend": {"command": given}}) == {"backend": {"command": shown}}


def test_headers_and_urls_of_endpoints_and_nothing_else() -> None:
    endpoint = {
        "url": "https://u:p@host/a",
        "api_key_env": "KEY",
        "headers": {"Authorization": "Bearer x", "X-Api-Key": "k", "X-Tenant": "blue"},
    }
    found = redacted({"backend": {"endpoints": [endpoint]}, "scenario": {"output_tokens": 5, "key": "v"}})
    assert found["backend"]["endpoints"][0] == {
        "url": "https://***@host/a",
        "api_key_env": "KEY",
        "headers": {"Authorization": "***", "X-Api-Key": "***", "X-Tenant": "blue"},
    }
    assert found["scenario"] == {"output_tokens": 5, "key": "v"}


def test_the_run_directory_writes_no_secret(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "x")
    record = {"command": ["pytest", "--backend-env=HF_TOKEN=hf_very_secret"]}
    run.write_record(record)
    assert "hf_very_secret" not in (run.path / "run.json").read_text()
    assert record["command"][1].endswith("hf_very_secret"), "the caller's own record is left alone"
