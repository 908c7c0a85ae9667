"""What ready means.

Our process listens, its health page says yes, it lists the model, and it completes one request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from pytest_inferslo.backends import ports
from pytest_inferslo.backends.completions import Proof, complete
from pytest_inferslo.backends.probe import Answer, Probe, shown
from pytest_inferslo.backends.process import ServerProcess
from pytest_inferslo.backends.protocol import Launch, StartProgress
from pytest_inferslo.backends.supervisor import name_of
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.errors import BackendStartError

OnProgress = Callable[[StartProgress], None]

_POLL_S = 0.1
_PROBE_TIMEOUT_S = 5.0
_PROGRESS_EVERY_S = 1.0
#: The steps, as what a user waits for.
_WAITED_FOR = {
    "health": "waiting for its health page",
    "model": "waiting for its list of models",
    "first completion": "waiting for its first completion",
}
_NOTHING = "nothing yet"
#: So many server errors in a row on the first completion are an answer, not a warm-up.
_SERVER_ERRORS = 5


@dataclass(frozen=True)
class Ready:
    """What was proven: the endpoint with its model's name, what completed, the LoRA adapters listed, and the model
    that the completion named as its own."""

    endpoint: Endpoint
    proved_by: str
    adapters: tuple[str, ...]
    answered_as: str | None = None


class Readiness:
    """Waits for one endpoint of one launch.

    Every wait sees the end of the process within a fraction of a second.
    """

    def __init__(
        self, launch: Launch, process: ServerProcess | None, timeout_s: float, on_progress: OnProgress | None
    ) -> None:
        self._launch = launch
        self._process = process
        self._timeout_s = timeout_s
        self._on_progress = on_progress
        self._begun = time.monotonic()
        self._told = (-_PROGRESS_EVERY_S, "")

    def wait(self, endpoint: Endpoint) -> Ready:
        """Raises BackendStartError with the step that failed, what was seen, and the tail of the log."""
        probe = Probe(endpoint)
        try:
            if self._launch.health_path is not None:
                self._until("health", probe, lambda: self._is_healthy(probe))
            listing = Listing()
            if self._launch.models_path is not None:
                listing = self._until("model", probe, lambda: self._listed(probe))
            endpoint = replace(endpoint, model=self._choose_model(endpoint, listing))
            proof = self._until("first completion", probe, lambda: self._completes(probe, endpoint.model))
            self._refuse_strangers(endpoint)
        finally:
            probe.close()
        return Ready(endpoint, proof.way, listing.adapters, proof.answered_as)

    def _is_healthy(self, probe: Probe) -> bool | Answer:
        answer = probe.get(self._launch.health_path or "", _PROBE_TIMEOUT_S)
        if answer.status:
            self._refuse_strangers(probe.endpoint)
        if answer.status == 404 and self._process is None:
            return True  # hosted APIs have no health page; the completion decides
        return answer.status == 200 or answer

    def _listed(self, probe: Probe) -> Listing | Answer:
        answer = probe.get(self._launch.models_path or "", _PROBE_TIMEOUT_S)
        if answer.status:
            self._refuse_strangers(probe.endpoint)
        if answer.status == 404 and probe.endpoint.model:
            return Listing((probe.endpoint.model,))  # no such page: the completion decides
        listing = read_listing(answer.json()) if answer.status == 200 else Listing()
        return listing if listing != Listing() else replace(answer, text=f"it lists no model: {answer}")

    def _choose_model(self, endpoint: Endpoint, listing: Listing) -> str:
        if endpoint.model in (*listing.models, *listing.adapters) or listing == Listing():
            return endpoint.model
        if endpoint.model:
            raise self._failure("model", f"{shown(endpoint.url)} lists {listing}, not {endpoint.model}")
        if not listing.models or (len(listing.models) > 1 and self._process is None):
            raise self._failure("model", f"{shown(endpoint.url)} serves {listing}: choose one with --model")
        return listing.models[0]

    def _completes(self, probe: Probe, model: str) -> Proof | Answer:
        errors = 0
        while True:
            proof = complete(probe, model, max(1.0, self._left()))
            if proof.way:
                return proof
            errors += proof.answer.status >= 500 and proof.answer.status != 503
            if proof.hopeless or errors >= _SERVER_ERRORS:
                hint = (
                    "; name the key's environment variable with --api-key-env"
                    if proof.answer.status == 401
                    else ""
                )
                raise self._failure("first completion", f"{proof.answer}{hint}")
            if self._left() <= 0:
                return proof.answer
            time.sleep(0.5)

    def _until(self, step: str, probe: Probe, attempt: Callable[[], Any]) -> Any:
        """Repeats `attempt` until what it returns is no failed Answer any more; returns that."""
        seen: Any = _NOTHING
        while True:
            outcome = self._watched(step, seen, attempt)
            if not isinstance(outcome, Answer):
                return outcome
            seen = outcome
            if self._process is None and (
                seen.refused or seen.status in (401, 403) or "TLS failed" in seen.text
            ):
                raise self._failure(step, f"{seen}; is the server running there, and the key right?")
            if self._left() <= 0:
                raise self._failure(step, f"not ready within {self._timeout_s:.0f} s; last seen: {seen}")
            time.sleep(_POLL_S)

    def _watched(self, step: str, seen: Any, attempt: Callable[[], Any]) -> Any:
        """One attempt in its own thread: a server that hangs cannot hide that it ended or ran out of time."""
        outcome: list[Any] = []
        done = threading.Event()

        def run() -> None:
            try:
                outcome.append(attempt())
            except BaseException as error:
                outcome.append(error)
            done.set()

        threading.Thread(target=run, name="inferslo-probe", daemon=True).start()
        while not done.wait(_POLL_S / 2):
            self._look(step, seen)
            if self._left() < -_PROBE_TIMEOUT_S:
                raise self._failure(step, f"no answer within {self._timeout_s:.0f} s; last seen: {seen}")
        self._look(step, seen)
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]

    def _look(self, step: str, seen: Any) -> None:
        elapsed = time.monotonic() - self._begun
        if self._process is not None and (status := self._process.poll()) is not None:
            time.sleep(_POLL_S)  # its last words may still be on their way into the log
            raise self._failure(step, f"the server exited with {described(status)} after {elapsed:.1f} s")
        if self._on_progress and (elapsed - self._told[0] >= _PROGRESS_EVERY_S or step != self._told[1]):
            self._told = (elapsed, step)
            detail = "" if seen is _NOTHING else str(seen)
            self._on_progress(StartProgress(elapsed, _WAITED_FOR[step], detail))

    def _refuse_strangers(self, endpoint: Endpoint) -> None:
        port = urlsplit(endpoint.url).port
        if self._process is None or port is None:
            return
        family = [process.pid for process in self._process.family()]
        for inode in ports.strangers(port, family):
            pid = ports.owner(inode)
            who = f"process {pid} ({name_of(pid)})" if pid else "a process of another user"
            raise self._failure("port", f"port {port} belongs to {who}, not to the server that was started")

    def _left(self) -> float:
        return self._begun + self._timeout_s - time.monotonic()

    def _failure(self, step: str, seen: str) -> BackendStartError:
        if self._process is None:
            return BackendStartError(f"{step}: {seen}")
        command = " ".join(redacted(self._process.command))
        return BackendStartError(f"{step}: {seen}\ncommand: {command}\n{self._process.log_tail()}")


@dataclass(frozen=True)
class Listing:
    """Base models and LoRA adapters (they name a `parent`) of an OpenAI listing, each in its order."""

    models: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join((*self.models, *self.adapters))


def read_listing(body: Any) -> Listing:
    """Empty for anything that is no listing."""
    data = body.get("data") if isinstance(body, dict) else None
    cards = [card for card in data if isinstance(card, dict)] if isinstance(data, list) else []
    named = [card for card in cards if isinstance(card.get("id"), str)]
    return Listing(
        models=tuple(card["id"] for card in named if not card.get("parent")),
        adapters=tuple(card["id"] for card in named if card.get("parent")),
    )


def described(status: int) -> str:
    """`exit status 0`, or `signal 9` for a process that was killed."""
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def redacted(command: tuple[str, ...]) -> list[str]:
    """The command without the values of flags that name a secret."""
    shown_words: list[str] = []
    hide_next = False
    for word in command:
        flag, equals, _ = word.partition("=")
        secret = flag.startswith("-") and any(
            part in flag.lower() for part in ("key", "secret", "password", "hf-token")
        )
        shown_words.append("***" if hide_next else f"{flag}=***" if secret and equals else word)
        hide_next = secret and not equals
    return shown_words
