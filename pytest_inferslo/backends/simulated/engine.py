"""A continuous-batching engine as a function of simulated time: no clock, no I/O.

The scheduler follows vLLM's V1: in each step the running requests come first (one token each, or the next
chunk of their prompt), then waiting ones are admitted while the token budget, the sequence limit, the KV
blocks and the adapter slots allow. When blocks run out, the newest running request is preempted and
recomputed later.

    engine.submit(request, now)
    step = engine.begin_step(now)          # None: nothing can run before engine.next_ready()
    for request in engine.finish_step(step): ...    # each of these has one more token at step.end
"""

from __future__ import annotations

from collections import OrderedDict, deque
from random import Random

from pytest_inferslo.backends.simulated.engine_stats import EngineStats
from pytest_inferslo.backends.simulated.kv_cache import BlockPool, block_hashes
from pytest_inferslo.backends.simulated.profile import Profile
from pytest_inferslo.backends.simulated.sequences import Request, Step


class Engine:
    """The simulated engine. Deterministic for one seed and one order of calls."""

    def __init__(self, profile: Profile, seed: int = 0) -> None:
        self.profile = profile
        self.stats = EngineStats(profile.max_model_len)
        self.blocks = BlockPool(profile.num_gpu_blocks, profile.block_size)
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.deferred = 0
        self.slowdown = 1.0
        """Factor on the time of every step that begins from now on."""
        self.adapters: OrderedDict[str, None] = OrderedDict()
        self._frontend_free = 0.0
        self._random = Random(seed)

    def submit(self, request: Request, now: float) -> None:
        """Accepts a request that arrives at `now`; it passes the front end before the scheduler sees it."""
        profile = self.profile
        self._frontend_free = max(now, self._frontend_free) + profile.frontend_ms / 1e3
        request.arrived = now
        request.ready = self._frontend_free + profile.latency_ms / 1e3
        request.target = len(request.prompt)
        self.waiting.append(request)

    def abort(self, request: Request, now: float) -> None:
        """Forgets a request whose client went away (or whose server stops)."""
        if request.finished:
            return
        request.finished = True
        request.finish_reason = "abort"
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self._release(request)
        self.stats.finished(request, now)

    def next_ready(self) -> float | None:
        """When the next waiting request has passed the front end; None when none waits."""
        return self.waiting[0].ready if self.waiting else None

    def preload(self, adapter: str) -> None:
        """Makes an adapter resident outside any step, when a slot is not in use by a running request."""
        active = {request.adapter for request in self.running}
        if adapter in self.adapters or sum(name in active for name in self.adapters) < self.profile.max_loras:
            self._make_resident(adapter, active)

    def unload(self, adapter: str) -> None:
        """Forgets an adapter; requests that already use it go on."""
        self.adapters.pop(adapter, None)

    def reset_prefix_cache(self) -> bool:
        """Forgets cached blocks; False, and nothing done, while requests hold blocks."""
        return self.blocks.reset()

    # -- a step begins

    def begin_step(self, now: float) -> Step | None:
        """Schedules the step that starts at `now`; None when nothing can run then."""
        work: list[tuple[Request, int]] = []
        budget, preempted = self._schedule_running(work)
        decoding = sum(1 for request, tokens in work if tokens == 1 and request.generated)
        loads = 0
        if not preempted:
            loads = self._admit_waiting(now, work, budget)
        if not work:
            return None
        total = sum(tokens for _request, tokens in work)
        profile = self.profile
        seconds = profile.step_seconds(total - decoding, decoding)
        if profile.lora_step_share and any(request.adapter for request, _tokens in work):
            seconds *= 1 + profile.lora_step_share
        if profile.jitter:
            seconds *= max(0.5, self._random.gauss(1.0, profile.jitter))
        seconds = seconds * self.slowdown + loads * profile.lora_load_ms / 1e3
        self.stats.step(total)
        return Step(now, now + seconds, work, total - decoding, decoding)

    def _schedule_running(self, work: list[tuple[Request, int]]) -> tuple[int, bool]:
        budget = self.profile.max_num_batched_tokens
        preempted = False
        running = self.running
        index = 0
        while index < len(running) and budget:
            request = running[index]
            tokens = request.target - request.computed
            if tokens > budget:
                tokens = budget
            if request.computed + tokens > request.capacity:
                while not self._grow(request, tokens):
                    preempted = True
                    victim = running.pop()
                    self._preempt(victim)
                    if victim is request:
                        break
                if index >= len(running):
                    break
            work.append((request, tokens))
            budget -= tokens
            index += 1
        return budget, preempted

    def _grow(self, request: Request, tokens: int) -> bool:
        size = self.profile.block_size
        wanted = -(-(request.computed + tokens - request.capacity) // size)
        if not self.blocks.allocate(wanted):
            return False
        request.private += wanted
        request.capacity += wanted * size
        return True

    def _preempt(self, victim: Request) -> None:
        self._release(victim)
        victim.computed = 0
        victim.preemptions += 1
        self.waiting.appendleft(victim)
        self.stats.preemptions += 1

    def _release(self, request: Request) -> None:
        self.blocks.release(request.private)
        self.blocks.drop(request.held)
        request.private = request.capacity = 0
        request.held = []

    def _admit_waiting(self, now: float, work: list[tuple[Request, int]], budget: int) -> int:
        """Moves waiting requests into the batch; returns how many adapters had to be loaded."""
        profile, waiting = self.profile, self.waiting
        skipped: list[Request] = []
        active: set[str | None] = {r.adapter for r in self.running if r.adapter} if waiting else set()
        loads = 0
        while waiting and budget and len(self.running) < profile.max_num_seqs:
            request = waiting[0]
            if request.ready > now:
                break
            adapter = request.adapter
            if adapter and adapter not in active and len(active) >= profile.max_loras:
                skipped.append(waiting.popleft())
                continue
            tokens = self._place(request, budget)
            if not tokens:
                break
            waiting.popleft()
            self.running.append(request)
            work.append((request, tokens))
            budget -= tokens
            if adapter:
                active.add(adapter)
                loads += self._make_resident(adapter, active)
            if request.scheduled < 0:
                request.scheduled = now
        waiting.extendleft(reversed(skipped))
        self.deferred = len(skipped)
        return loads

    def _place(self, request: Request, budget: int) -> int:
        """Gives a waiting request its cached prefix and its first chunk's blocks; 0 when they do not fit."""
        profile, blocks = self.profile, self.blocks
        reused: list[int] = []
        if profile.enable_prefix_caching:
            if request.hashes is None:
                request.hashes = block_hashes(request.prompt, profile.block_size, hash(request.adapter))
            usable = (request.target - 1) // profile.block_size
            reused = request.hashes[: blocks.cached_prefix(request.hashes[:usable])]
        cached = len(reused) * profile.block_size
        tokens = request.target - cached
        if tokens > budget:
            if not profile.enable_chunked_prefill and budget < profile.max_num_batched_tokens:
                return 0
            tokens = budget
        blocks.hold(reused)
        request.held, request.computed, request.capacity = reused, cached, cached
        if not self._grow(request, tokens):
            self._release(request)
            request.computed = 0
            return 0
        if request.cached_tokens < 0:
            request.cached_tokens = cached
            self.stats.prefix(request.target, cached)
        return tokens

    def _make_resident(self, adapter: str, active: set[str | None]) -> int:
        resident = self.adapters
        if adapter in resident:
            resident.move_to_end(adapter)
            return 0
        if len(resident) >= self.profile.max_loras:
            del resident[next(name for name in resident if name not in active)]
        resident[adapter] = None
        return 1

    # -- a step ends

    def finish_step(self, step: Step) -> list[Request]:
        """Books the step's work; returns the requests that have one more token, finished ones among them."""
        end = step.end
        produced: list[Request] = []
        pooled: list[Request] = []
        gaps: dict[float, int] = {}
        done = False
        for request, tokens in step.work:
            if request.finished:
                continue
            request.computed += tokens
            if request.computed < request.target:
                continue
            if request.generated:
                gaps[request.last_token] = gaps.get(request.last_token, 0) + 1
            else:
                self._first_token(request, end)
                if not request.output_tokens:
                    self._finish(request, end)
                    pooled.append(request)
                    continue
            request.generated += 1
            request.target += 1
            request.last_token = end
            produced.append(request)
            if request.generated >= request.output_tokens:
                self._finish(request, end)
                done = True
        self.stats.tokens(len(produced), end, gaps)
        if done or pooled:
            self.running = [request for request in self.running if not request.finished]
        return produced + pooled if pooled else produced

    def _first_token(self, request: Request, end: float) -> None:
        request.first_token = end
        self.stats.first_token(request, end)
        if request.hashes is not None:
            fresh = request.hashes[len(request.held) :]
            self.blocks.publish(fresh)
            request.private -= len(fresh)
            request.held = list(request.hashes)

    def _finish(self, request: Request, end: float) -> None:
        request.finished = True
        if request.hashes is not None and request.output is not None:
            self._publish_output(request)
        self._release(request)
        self.stats.finished(request, end)

    def _publish_output(self, request: Request) -> None:
        """Caches the blocks that the answer filled, so that the next turn of the conversation finds them."""
        size = self.profile.block_size
        start = len(request.held) * size
        written = [*request.prompt[start:], *(request.output or ())][: request.computed - start]
        parent = request.held[-1] if request.held else hash(request.adapter)
        fresh = block_hashes(written, size, parent)
        self.blocks.publish(fresh)
        request.private -= len(fresh)
        request.held = request.held + fresh
