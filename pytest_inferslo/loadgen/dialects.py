"""The APIs of inference servers: where requests go, how bodies are written, how answers are read.

| api             | path                                | streaming end                               |
|-----------------|-------------------------------------|---------------------------------------------|
| chat            | /v1/chat/completions                | a good finish reason of every choice        |
| completions     | /v1/completions                     | a good finish reason of every choice        |
| responses       | /v1/responses                       | response.completed, or incomplete by length |
| embeddings      | /v1/embeddings                      | (never streamed)                            |
| generate_stream | /v2/models/MODEL/generate_stream    | the end of the body                         |
| generate        | /v2/models/MODEL/generate           | (never streamed)                            |
| infer           | /v2/models/MODEL/infer (KServe v2)  | (never streamed)                            |

`[DONE]` is neither needed nor enough. A role-only or empty delta is no output. A dialect's readers raise
TypeError, ValueError, KeyError or AttributeError on JSON of another shape: MALFORMED_BODY to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol
from urllib.parse import quote

from pytest_inferslo.core.prompts import Prompt
from pytest_inferslo.core.samples import Outcome
from pytest_inferslo.loadgen.answer import CONTENT, NO_OUTPUT, REASONING, Answer

Json = dict[str, Any]


class End(Enum):
    FINISH = "finish reasons"
    MESSAGE = "a last message"
    BODY = "the end of the body"


class Dialect(Protocol):
    """One API. `output_keys` are the JSON keys under which an event carries its output text; `end` names what

    makes an answer whole: FINISH (good finish reasons), MESSAGE (a last event or body of its own) or BODY.
    """

    @property
    def output_keys(self) -> tuple[bytes, ...]: ...
    @property
    def end(self) -> End: ...

    def path(self, model: str) -> str: ...

    def body(self, prompt: Prompt, model: str, streaming: bool) -> Json: ...

    def read_event(self, event: Json, answer: Answer) -> int:
        """One event of a stream: NO_OUTPUT, REASONING or CONTENT; facts go into `answer`."""
        ...

    def read_body(self, body: Json, answer: Answer) -> int:
        """The whole JSON body of an unstreamed answer."""
        ...


def _read_error(event: Json, answer: Answer) -> bool:
    error = event.get("error")
    if error:
        answer.fail_by_error(error)
        return True
    if event.get("object") == "error" or event.get("type") == "error":
        answer.fail_by_error(event)
        return True
    return False


def _calls_something(delta: Json) -> bool:
    calls = [call["function"] for call in delta.get("tool_calls") or () if call.get("function")]
    if delta.get("function_call"):
        calls.append(delta["function_call"])
    return any(call.get("name") or call.get("arguments") for call in calls)


def _read_message(message: Json) -> int:
    if message.get("content") or message.get("refusal") or message.get("audio") or _calls_something(message):
        return CONTENT
    if message.get("reasoning_content") or message.get("reasoning"):
        return REASONING
    return NO_OUTPUT


@dataclass(frozen=True)
class OpenAIChoices:
    """Chat completions (`part` is delta or message) and completions (text in the choice itself)."""

    chat: bool
    output_keys: tuple[bytes, ...]
    end: End = End.FINISH

    def path(self, model: str) -> str:
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    def body(self, prompt: Prompt, model: str, streaming: bool) -> Json:
        body: Json = {"model": model, "max_tokens": prompt.max_tokens, "stream": streaming}
        if self.chat:
            body["messages"] = prompt.messages
        else:
            body["prompt"] = prompt.text
        if streaming:
            body["stream_options"] = {"include_usage": True}
        return body

    def read_event(self, event: Json, answer: Answer) -> int:
        return self._read(event, answer, "delta")

    def read_body(self, body: Json, answer: Answer) -> int:
        return self._read(body, answer, "message")

    def _read(self, event: Json, answer: Answer, part: str) -> int:
        if _read_error(event, answer):
            return NO_OUTPUT
        kind = NO_OUTPUT
        for choice in event.get("choices") or ():
            index = choice.get("index", 0)
            if self.chat:
                message = choice.get(part)
                if message:
                    kind = max(kind, _read_message(message))
            elif choice.get("text"):
                kind = CONTENT
            reason = choice.get("finish_reason")
            if reason:
                answer.choices[index] = reason
            elif index not in answer.choices:
                answer.choices[index] = None
            if choice.get("error"):
                answer.fail_by_error(choice["error"])
        usage = event.get("usage")
        if usage:
            answer.read_usage(usage, "prompt", "completion")
        return kind


class Embeddings:
    output_keys: tuple[bytes, ...] = ()
    end = End.MESSAGE

    def path(self, model: str) -> str:
        return "/v1/embeddings"

    def body(self, prompt: Prompt, model: str, streaming: bool) -> Json:
        return {"model": model, "input": prompt.text if len(prompt.inputs) == 1 else list(prompt.inputs)}

    def read_event(self, event: Json, answer: Answer) -> int:
        raise ValueError("embeddings are never streamed")

    def read_body(self, body: Json, answer: Answer) -> int:
        if _read_error(body, answer):
            return NO_OUTPUT
        if usage := body.get("usage"):
            answer.read_usage(usage, "prompt", "completion")
        answer.completed = True
        rows = body["data"]
        return CONTENT if rows and all(row["embedding"] for row in rows) else NO_OUTPUT


_REASONING_DELTAS = frozenset({"response.reasoning_text.delta", "response.reasoning_summary_text.delta"})


class Responses:
    """OpenAI's Responses API: typed events, the last of which holds the whole response."""

    output_keys: tuple[bytes, ...] = (b"delta",)
    end = End.MESSAGE

    def path(self, model: str) -> str:
        return "/v1/responses"

    def body(self, prompt: Prompt, model: str, streaming: bool) -> Json:
        return {
            "model": model,
            "input": prompt.messages,
            "max_output_tokens": prompt.max_tokens,
            "stream": streaming,
        }

    def read_event(self, event: Json, answer: Answer) -> int:
        kind = event.get("type", "")
        if kind.endswith(".delta"):
            if not event.get("delta"):
                return NO_OUTPUT
            return REASONING if kind in _REASONING_DELTAS else CONTENT
        if kind in ("response.completed", "response.incomplete", "response.failed", "response.cancelled"):
            self._read_response(event["response"], answer)
            return NO_OUTPUT
        _read_error(event, answer)
        return NO_OUTPUT

    def read_body(self, body: Json, answer: Answer) -> int:
        if body.get("object") != "response" and _read_error(body, answer):
            return NO_OUTPUT
        self._read_response(body, answer)
        kind = NO_OUTPUT
        for item in body.get("output") or ():
            if item["type"] == "reasoning":
                kind = max(kind, REASONING if item.get("content") or item.get("summary") else NO_OUTPUT)
            elif item["type"] != "message" or any(
                part.get("text") or part.get("refusal") for part in item["content"]
            ):
                kind = CONTENT
        return kind

    def _read_response(self, response: Json, answer: Answer) -> None:
        if usage := response.get("usage"):
            answer.read_usage(usage, "input", "output")
        status = response["status"]
        reason = (response.get("incomplete_details") or {}).get("reason")
        if status == "completed" or (status == "incomplete" and reason == "max_output_tokens"):
            answer.completed = True
        elif status == "failed":
            answer.fail_by_error(response.get("error") or "status failed")
        elif status == "cancelled":
            answer.fail(Outcome.ABORTED, "status cancelled")
        else:
            answer.fail(Outcome.BAD_FINISH_REASON, f"status {status}, reason {reason}")


@dataclass(frozen=True)
class Generate:
    """Triton's generate extension, with the field names of the TensorRT-LLM and vLLM backends."""

    endpoint: str
    output_keys: tuple[bytes, ...] = (b"text_output",)
    end: End = End.BODY

    def path(self, model: str) -> str:
        return f"/v2/models/{quote(model, safe='')}/{self.endpoint}"

    def body(self, prompt: Prompt, model: str, streaming: bool) -> Json:
        return {"text_input": prompt.text, "max_tokens": prompt.max_tokens, "stream": streaming}

    def read_event(self, event: Json, answer: Answer) -> int:
        if _read_error(event, answer):
            return NO_OUTPUT
        output = event["text_output"]
        if not isinstance(output, str | list):
            raise ValueError(f"text_output {output!r}")
        return CONTENT if output and output != [""] else NO_OUTPUT

    def read_body(self, body: Json, answer: Answer) -> int:
        kind = self.read_event(body, answer)
        answer.completed = True
        return kind


class Infer:
    """KServe's v2 inference protocol with the tensors of Triton's LLM ensembles."""

    output_keys: tuple[bytes, ...] = ()
    end = End.MESSAGE

    def path(self, model: str) -> str:
        return f"/v2/models/{quote(model, safe='')}/infer"

    def body(self, prompt: Prompt, model: str, streaming: bool) -> Json:
        return {
            "inputs": [
                {"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": [prompt.text]},
                {"name": "max_tokens", "shape": [1, 1], "datatype": "INT32", "data": [prompt.max_tokens]},
            ]
        }

    def read_event(self, event: Json, answer: Answer) -> int:
        raise ValueError("infer is never streamed")

    def read_body(self, body: Json, answer: Answer) -> int:
        if _read_error(body, answer):
            return NO_OUTPUT
        answer.completed = True
        return CONTENT if any(value for output in body["outputs"] for value in output["data"]) else NO_OUTPUT


DIALECTS: dict[str, Dialect] = {
    "chat": OpenAIChoices(True, (b"content", b"reasoning_content", b"reasoning")),
    "completions": OpenAIChoices(False, (b"text",)),
    "embeddings": Embeddings(),
    "responses": Responses(),
    "generate_stream": Generate("generate_stream"),
    "generate": Generate("generate"),
    "infer": Infer(),
}
