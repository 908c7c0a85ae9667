"""The catalogue: every metric that a policy may name, its dimension, and what it is measured from.

The definitions are in docs/metrics.md, one each. A parser asks the catalogue whether an objective makes sense;
the fold asks it where the values come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Dimension(Enum):
    TIME = "time"  # ns
    SHARE = "share"  # 0..1
    COUNT = "count"
    RATE = "rate"  # 1/s
    BYTES = "bytes"
    MONEY = "money"  # currency units
    POWER = "power"  # W
    ENERGY = "energy"  # J
    CORES = "cores"


class Source(Enum):
    SAMPLE = "sample"  # one value per successful request; failures rank as +inf
    GAP = "gap"  # one value per inter-chunk gap; a failed request adds one +inf
    RATIO = "ratio"  # a share of requests
    TOTAL = "total"  # one number per window
    READING = "reading"  # a time series of the telemetry


@dataclass(frozen=True)
class Metric:
    name: str
    dimension: Dimension
    source: Source
    meaning: str
    streaming: bool = False  # only a streamed answer has it
    tokens: bool = False  # needs the server's token counts
    smaller_is_better: bool = True


_S, _D = Source, Dimension

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("ttft", _D.TIME, _S.SAMPLE, "first output, from the intended start", streaming=True),
        Metric("service_ttft", _D.TIME, _S.SAMPLE, "first output, from the send", streaming=True),
        Metric(
            "ttfo", _D.TIME, _S.SAMPLE, "first non-reasoning content, from the intended start", streaming=True
        ),
        Metric("e2e", _D.TIME, _S.SAMPLE, "last output, from the intended start"),
        Metric("service_e2e", _D.TIME, _S.SAMPLE, "last output, from the send"),
        Metric("send_lag", _D.TIME, _S.SAMPLE, "send, from the intended start"),
        Metric(
            "tpot", _D.TIME, _S.SAMPLE, "time per output token after the first", streaming=True, tokens=True
        ),
        Metric("icl", _D.TIME, _S.GAP, "gap between successive output events", streaming=True),
        Metric("max_stall", _D.TIME, _S.SAMPLE, "longest inter-chunk gap of a request", streaming=True),
        Metric("normalized", _D.TIME, _S.SAMPLE, "e2e per output token", tokens=True),
        Metric("output_tokens", _D.COUNT, _S.SAMPLE, "output tokens of a request", tokens=True),
        Metric("prompt_tokens", _D.COUNT, _S.SAMPLE, "prompt tokens of a request", tokens=True),
        Metric("error_rate", _D.SHARE, _S.RATIO, "failed share of all intended requests"),
        Metric(
            "goodput",
            _D.SHARE,
            _S.RATIO,
            "share of all intended requests that succeeded and met every per-request objective",
            smaller_is_better=False,
        ),
        Metric(
            "goodput_rate",
            _D.RATE,
            _S.TOTAL,
            "requests per second that succeeded and met every per-request objective",
            smaller_is_better=False,
        ),
        Metric("throughput", _D.RATE, _S.TOTAL, "finished requests per second", smaller_is_better=False),
        Metric(
            "output_tokens_per_second",
            _D.RATE,
            _S.TOTAL,
            "output tokens per second in the window",
            tokens=True,
            smaller_is_better=False,
        ),
        Metric(
            "output_tokens_per_second_per_gpu",
            _D.RATE,
            _S.TOTAL,
            "the same per allocated GPU",
            tokens=True,
            smaller_is_better=False,
        ),
        Metric("recovery_time", _D.TIME, _S.TOTAL, "end of a phase until ttft p99 of 1 s is back and stays"),
        Metric("cost_per_million_tokens", _D.MONEY, _S.TOTAL, "price of a million tokens", tokens=True),
        Metric("server_cpu", _D.SHARE, _S.READING, "CPU time of the server's tree / wall / CPUs allowed"),
        Metric("server_cpu_cores", _D.CORES, _S.READING, "CPU time of the server's tree / wall"),
        Metric("server_cpu_increase", _D.SHARE, _S.TOTAL, "(loaded mean - idle mean) / idle mean"),
        Metric("server_memory", _D.BYTES, _S.READING, "PSS (or RSS) of the server's tree"),
        Metric("gpu_utilization", _D.SHARE, _S.READING, "NVML utilisation, worst GPU"),
        Metric(
            "gpu_memory", _D.BYTES, _S.READING, "NVML memory in use, worst GPU; a limit in % is of its total"
        ),
        Metric("gpu_power", _D.POWER, _S.READING, "NVML power, sum of GPUs"),
        Metric("gpu_energy", _D.ENERGY, _S.TOTAL, "NVML energy over the load, sum of GPUs"),
        Metric("gpu_throttled", _D.SHARE, _S.READING, "share of readings with a throttle reason set"),
        Metric("loadgen_cpu", _D.SHARE, _S.READING, "the busiest worker's CPU, of one core"),
        Metric("loadgen_loop_lag", _D.TIME, _S.READING, "the workers' event-loop lag"),
    )
}

#: Metrics that carry a latency of one request and so may serve goodput.
PER_REQUEST = frozenset(name for name, metric in METRICS.items() if metric.source is Source.SAMPLE)
