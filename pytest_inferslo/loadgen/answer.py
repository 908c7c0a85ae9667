"""What an answer has said so far: its output, its finish reasons, its token counts, its first failure."""

from __future__ import annotations

from typing import Any, Final

from pytest_inferslo.core.samples import ABSENT, Outcome

#: What an event brought, as returned by Dialect.read_event.
NO_OUTPUT: Final = 0
REASONING: Final = 1
CONTENT: Final = 2

#: Finish reasons that mean "this is the whole answer". Not `content_filter`: there the reader got less.
GOOD_FINISH = frozenset(
    {
        "stop",
        "length",
        "tool_calls",
        "function_call",
        "model_length",
        "eos_token",
        "stop_sequence",
        "end_turn",
    }
)
ABORT_FINISH = frozenset({"abort", "aborted", "error", "cancelled", "canceled"})

#: Examples of failures are cut to this many characters.
DETAIL_LIMIT = 300


class Answer:
    """What a dialect reads out of events and bodies. Counts are ABSENT until the server says them."""

    __slots__ = (
        "cached_tokens",
        "choices",
        "completed",
        "detail",
        "failure",
        "output_tokens",
        "prompt_tokens",
        "reasoning_tokens",
    )

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        #: choice index -> finish reason, None while it has none
        self.choices: dict[int, str | None] = {}
        #: the protocol said that the answer is whole, by something else than finish reasons
        self.completed = False
        self.failure: Outcome | None = None
        self.detail = ""
        self.prompt_tokens = ABSENT
        self.cached_tokens = ABSENT
        self.output_tokens = ABSENT
        self.reasoning_tokens = ABSENT

    def fail(self, outcome: Outcome, detail: str) -> None:
        """The first failure stays."""
        if self.failure is None:
            self.failure = outcome
            self.detail = detail[:DETAIL_LIMIT]

    def fail_by_error(self, error: Any) -> None:
        """An error object (or string) inside a 200 answer."""
        text = error.get("message") if isinstance(error, dict) else error
        self.fail(Outcome.ERROR_EVENT, str(text if text else error))

    def read_usage(self, usage: dict[str, Any], prompt: str, output: str) -> None:
        """Token counts, under the names that this API gives them; the last ones said count."""
        self.prompt_tokens = _count(usage.get(f"{prompt}_tokens"), self.prompt_tokens)
        self.output_tokens = _count(usage.get(f"{output}_tokens"), self.output_tokens)
        if details := usage.get(f"{prompt}_tokens_details"):
            self.cached_tokens = _count(details.get("cached_tokens"), self.cached_tokens)
        if details := usage.get(f"{output}_tokens_details"):
            self.reasoning_tokens = _count(details.get("reasoning_tokens"), self.reasoning_tokens)

    def same_as(self, other: Answer) -> bool:
        return self._facts() == other._facts()

    def _facts(self) -> tuple[Any, ...]:
        tokens = (self.prompt_tokens, self.cached_tokens, self.output_tokens, self.reasoning_tokens)
        return self.choices, self.completed, self.failure, self.detail, tokens

    def count(self, prompt: int, cached: int, output: int, reasoning: int) -> None:
        """Token counts that were said, ABSENT for those that were not."""
        if prompt >= 0:
            self.prompt_tokens = prompt
        if cached >= 0:
            self.cached_tokens = cached
        if output >= 0:
            self.output_tokens = output
        if reasoning >= 0:
            self.reasoning_tokens = reasoning

    def finish_failure(self) -> tuple[Outcome, str] | None:
        """What the finish reasons say against this answer; None when each choice ended well."""
        if not self.choices:
            return Outcome.TRUNCATED, "the answer ended without a finish reason"
        for index, reason in self.choices.items():
            if reason is None:
                return Outcome.TRUNCATED, f"choice {index} ended without a finish reason"
            if reason not in GOOD_FINISH:
                outcome = Outcome.ABORTED if reason in ABORT_FINISH else Outcome.BAD_FINISH_REASON
                return outcome, f"finish_reason {reason!r}"
        return None


def _count(value: Any, otherwise: int) -> int:
    if value is None:
        return otherwise
    if not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError(f"token count {value!r}")
    return value
