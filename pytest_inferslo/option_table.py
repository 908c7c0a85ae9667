"""The options of the command line, each with its name in `pytest.ini`; `options.py` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_INCONCLUSIVE = ("fail", "xfail", "skip", "warn")
_PACING = ("timer", "spin")


@dataclass(frozen=True)
class Option:
    flag: str
    ini: str
    help: str
    kind: str = "string"  # string | append | integer | number | flag (of the command line alone)
    metavar: str = "VALUE"
    default: Any = None
    choices: tuple[str, ...] | None = None
    least: int = 1  # of integers


OPTIONS = (
    Option(
        "--backend",
        "inferslo_backend",
        "what to test: sim (default), vllm, trtllm, triton, sglang, llamacpp, the URL of a running server, or a YAML "
        "file that names several; repeat to run each scenario on each",
        "append",
        "NAME|URL|FILE",
    ),
    Option("--model", "inferslo_model", "model folder or name for the server", metavar="MODEL"),
    Option(
        "--backend-arg",
        "inferslo_backend_args",
        "one argument passed to the server as it is; repeatable",
        "append",
        "ARG",
    ),
    Option(
        "--backend-env",
        "inferslo_backend_env",
        "KEY=VALUE for the server's environment; repeatable",
        "append",
        "K=V",
    ),
    Option(
        "--lora",
        "inferslo_lora",
        "NAME=PATH of a LoRA adapter that the server loads at its start; repeatable",
        "append",
        "NAME=PATH",
    ),
    Option(
        "--backend-python",
        "inferslo_backend_python",
        "interpreter of the virtual environment that holds the engine",
        metavar="PYTHON",
    ),
    Option(
        "--server-pid",
        "inferslo_server_pid",
        "process whose CPU and memory count as the server's (URL)",
        "integer",
    ),
    Option(
        "--backend-start-timeout",
        "inferslo_backend_start_timeout",
        "seconds until the server must be ready",
        "number",
    ),
    Option(
        "--api-key-env",
        "inferslo_api_key_env",
        "environment variable that holds the server's API key",
        metavar="NAME",
    ),
    Option(
        "--slo-policy",
        "inferslo_slo_policy",
        "policy file or name, instead of the tests' slo markers; repeat to judge by several, which must all hold",
        "append",
        "POLICY",
    ),
    Option(
        "--inferslo-baseline",
        "inferslo_baseline",
        "saved run that `of baseline` limits refer to",
        metavar="RUN",
    ),
    Option(
        "--inferslo-record-baseline",
        "inferslo_record_baseline",
        "record a first baseline: `of baseline` limits stay open, so that the verdict is INCONCLUSIVE at best",
        "flag",
    ),
    Option("--inferslo-dir", "inferslo_dir", "where runs are kept", metavar="DIR", default=".inferslo"),
    Option(
        "--inferslo-workers",
        "inferslo_workers",
        "load-generating processes on this host",
        "integer",
        "N",
        1,
        least=0,
    ),
    Option(
        "--inferslo-expect-workers",
        "inferslo_expect_workers",
        "workers on other hosts to wait for (start them with `inferslo worker --master ADDR:PORT`)",
        "integer",
        "N",
        0,
        least=0,
    ),
    Option(
        "--inferslo-bind",
        "inferslo_bind",
        "ADDR:PORT on which the master waits for them",
        metavar="ADDR:PORT",
    ),
    Option(
        "--inferslo-pacing",
        "inferslo_pacing",
        "how workers wait until a request is due: timer (default), within some 30 us; spin, within some 5 us, with a"
        " core for each worker kept busy",
        metavar="HOW",
        default="timer",
        choices=_PACING,
    ),
    Option(
        "--load-seconds",
        "inferslo_load_seconds",
        "shorten every scenario to this, for a try",
        "number",
        "SECONDS",
    ),
    Option(
        "--inconclusive",
        "inferslo_inconclusive",
        "what an INCONCLUSIVE verdict does to the test: fail (default), xfail, skip, warn",
        metavar="ACTION",
        default="fail",
        choices=_INCONCLUSIVE,
    ),
)
