"""The Prometheus text of /metrics: vLLM's names, labels and buckets, with this engine's values."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_inferslo.backends.simulated.engine import Engine
from pytest_inferslo.backends.simulated.engine_stats import Histogram
from pytest_inferslo.backends.simulated.pace import Pace

_STARTED = time.time()


class Exposition:
    """Collects families of samples as Prometheus text."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._lines: list[str] = []

    def _line(self, name: str, labels: Mapping[str, str], value: float) -> None:
        pairs = ",".join(
            f'{key}="{_escape(text)}"' for key, text in sorted({**self._labels, **labels}.items())
        )
        self._lines.append(f"{name}{{{pairs}}} {_number(value)}" if pairs else f"{name} {_number(value)}")

    def _head(self, name: str, kind: str, text: str) -> None:
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]

    def gauge(self, name: str, text: str, value: float, **labels: str) -> None:
        self._head(name, "gauge", text)
        self._line(name, labels, value)

    def gauges(self, name: str, text: str, rows: Iterable[tuple[Mapping[str, str], float]]) -> None:
        self._head(name, "gauge", text)
        for labels, value in rows:
            self._line(name, labels, value)

    def plain_counter(self, name: str, text: str, value: float) -> None:
        """A counter whose name is complete and which has no creation time."""
        self._head(name, "counter", text)
        self._line(name, {}, value)

    def counter(self, name: str, text: str, value: float) -> None:
        self.counters(name, text, [({}, value)])

    def counters(self, name: str, text: str, rows: Iterable[tuple[Mapping[str, str], float]]) -> None:
        self._head(f"{name}_total", "counter", text)
        rows = list(rows)
        for labels, value in rows:
            self._line(f"{name}_total", labels, value)
        self._created(name, text, [labels for labels, _value in rows])

    def histogram(self, name: str, text: str, values: Histogram) -> None:
        self._head(name, "histogram", text)
        seen = 0
        for bound, count in zip((*map(repr, values.bounds), "+Inf"), values.buckets, strict=True):
            seen += count
            self._line(f"{name}_bucket", {"le": bound}, seen)
        self._line(f"{name}_count", {}, values.count)
        self._line(f"{name}_sum", {}, values.total)
        self._created(name, text, [{}])

    def _created(self, name: str, text: str, rows: Iterable[Mapping[str, str]]) -> None:
        self._head(f"{name}_created", "gauge", text)
        for labels in rows:
            self._line(f"{name}_created", labels, _STARTED)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(float(value))


def render_process() -> str:
    """The process's own figures, as prometheus_client's process collector names them."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    out = Exposition({})
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    out.gauge(
        "process_resident_memory_bytes", "Resident memory size in bytes.", pages * resource.getpagesize()
    )
    out.gauge(
        "process_start_time_seconds", "Start time of the process since unix epoch in seconds.", _STARTED
    )
    out.plain_counter(
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        usage.ru_utime + usage.ru_stime,
    )
    open_fds = sum(1 for _ in Path("/proc/self/fd").iterdir())
    out.gauge("process_open_fds", "Number of open file descriptors.", open_fds)
    return out.text()


def render_engine(engine: Engine, model: str, pace: Pace) -> str:
    """Everything about the engine, and how late the simulator itself was."""
    out = Exposition({"engine": "0", "model_name": model})
    _state(out, engine)
    _counts(out, engine)
    _latencies(out, engine)
    _configuration(out, engine)
    own = "A figure of the simulator itself, not of the simulated engine."
    for name, value in (
        ("lag_seconds", pace.lag),
        ("lag_seconds_max", pace.largest_lag),
        ("resyncs", pace.resyncs),
    ):
        out.gauge(f"inferslo_simulated_{name}", own, value)
    out.histogram("inferslo_simulated_step_lag_seconds", own, pace.lags)
    return out.text()


def _state(out: Exposition, engine: Engine) -> None:
    waiting = len(engine.waiting)
    out.gauge(
        "vllm:num_requests_running", "Number of requests in model execution batches.", len(engine.running)
    )
    out.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", waiting)
    by_reason = {"capacity": waiting - engine.deferred, "deferred": engine.deferred}
    out.gauges(
        "vllm:num_requests_waiting_by_reason",
        "Number of waiting requests by reason.",
        [({"reason": reason}, count) for reason, count in by_reason.items()],
    )
    out.gauges(
        "vllm:engine_sleep_state",
        "Engine sleep state.",
        [
            ({"sleep_state": state}, state == "awake")
            for state in ("awake", "weights_offloaded", "discard_all")
        ],
    )
    out.gauge(
        "vllm:kv_cache_usage_perc",
        "KV-cache usage. 1 means 100 percent usage.",
        engine.blocks.used / engine.blocks.total,
    )
    running = sorted({request.adapter for request in engine.running if request.adapter})
    queued = sorted({request.adapter for request in engine.waiting if request.adapter})
    out.gauge(
        "vllm:lora_requests_info",
        "Running stats on lora requests.",
        time.time(),
        max_lora=str(engine.profile.max_loras),
        running_lora_adapters=",".join(running),
        waiting_lora_adapters=",".join(queued),
    )


def _counts(out: Exposition, engine: Engine) -> None:
    stats = engine.stats
    for name, text, value in (
        (
            "prefix_cache_queries",
            "Prefix cache queries, in terms of number of queried tokens.",
            stats.prefix_queries,
        ),
        ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", stats.prefix_hits),
        ("external_prefix_cache_queries", "External prefix cache queries.", 0),
        ("external_prefix_cache_hits", "External prefix cache hits.", 0),
        ("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.", 0),
        ("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", 0),
        ("num_preemptions", "Cumulative number of preemption from the engine.", stats.preemptions),
        ("prompt_tokens", "Number of prefill tokens processed.", stats.prompt_tokens),
        ("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", stats.cached_tokens),
        ("generation_tokens", "Number of generation tokens processed.", stats.generation_tokens),
    ):
        out.counter(f"vllm:{name}", text, value)
    sources = {
        "local_compute": stats.prompt_tokens - stats.cached_tokens,
        "local_cache_hit": stats.cached_tokens,
        "external_kv_transfer": 0,
    }
    out.counters(
        "vllm:prompt_tokens_by_source",
        "Number of prompt tokens by source.",
        [({"source": source}, tokens) for source, tokens in sources.items()],
    )
    out.counters(
        "vllm:request_success",
        "Count of successfully processed requests.",
        [({"finished_reason": reason}, count) for reason, count in stats.success.items()],
    )


def _latencies(out: Exposition, engine: Engine) -> None:
    stats = engine.stats
    params_n = Histogram((1.0, 2.0, 5.0, 10.0, 20.0))
    params_n.observe(1.0, stats.e2e.count)
    phase = "Histogram of time spent in {} phase for request."
    computed = "Histogram of new KV tokens computed during prefill (excluding cached tokens)."
    for name, text, histogram in (
        ("request_prompt_tokens", "Number of prefill tokens processed.", stats.request_prompt),
        ("request_generation_tokens", "Number of generation tokens processed.", stats.request_generation),
        ("iteration_tokens_total", "Histogram of number of tokens per engine_step.", stats.iteration),
        ("request_max_num_generation_tokens", "Maximum number of requested generation tokens.", stats.limit),
        ("request_params_n", "Histogram of the n request parameter.", params_n),
        ("request_params_max_tokens", "Histogram of the max_tokens request parameter.", stats.limit),
        ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", stats.ttft),
        ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", stats.gap),
        ("request_time_per_output_token_seconds", "Time per output token per request.", stats.tpot),
        ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", stats.e2e),
        ("request_queue_time_seconds", phase.format("WAITING"), stats.queue),
        ("request_inference_time_seconds", phase.format("RUNNING"), stats.inference),
        ("request_prefill_time_seconds", phase.format("PREFILL"), stats.prefill),
        ("request_decode_time_seconds", phase.format("DECODE"), stats.decode),
        ("request_prefill_kv_computed_tokens", computed, stats.request_computed),
    ):
        out.histogram(f"vllm:{name}", text, histogram)


def _configuration(out: Exposition, engine: Engine) -> None:
    profile = engine.profile
    out.gauge(
        "vllm:cache_config_info",
        "Information of the LLMEngine CacheConfig",
        1.0,
        block_size=str(profile.block_size),
        enable_prefix_caching=str(profile.enable_prefix_caching),
        kv_cache_size_tokens=str(profile.num_gpu_blocks * profile.block_size),
        num_gpu_blocks=str(profile.num_gpu_blocks),
    )
