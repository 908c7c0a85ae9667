"""Each API's own way to say output, end, error and usage."""

from __future__ import annotations

from typing import Any

import pytest
from replies import STREAM_HEAD, chunk, event, read, stream, whole

from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.samples import ABSENT, Outcome
from pytest_inferslo.loadgen.dialects import DIALECTS

CHOICE = {"index": 0, "finish_reason": "stop"}
USAGE = {"prompt_tokens": 5, "completion_tokens": 4}
RESPONSE = {
    "object": "response",
    "status": "completed",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
    "usage": {"input_tokens": 5, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 2}},
}
INCOMPLETE = {**RESPONSE, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
FILTERED = {**RESPONSE, "status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
FAILED = {**RESPONSE, "status": "failed", "error": {"code": "server_error", "message": "no"}}
EMPTY = {**RESPONSE, "output": []}


@pytest.mark.parametrize(
    ("api", "body", "outcome", "tokens"),
    [
        ("chat", {"choices": [{**CHOICE, "message": {"content": "hi"}}], "usage": USAGE}, Outcome.SUCCESS, 4),
        ("chat", {"choices": [{**CHOICE, "message": {"content": ""}}]}, Outcome.NO_OUTPUT, ABSENT),
        ("chat", {"choices": [{"message": {"content": "hi"}}]}, Outcome.TRUNCATED, ABSENT),
        ("chat", {"error": "no"}, Outcome.ERROR_EVENT, ABSENT),
        ("chat", {"choices": []}, Outcome.TRUNCATED, ABSENT),
        ("completions", {"choices": [{**CHOICE, "text": "hi"}], "usage": USAGE}, Outcome.SUCCESS, 4),
        (
            "embeddings",
            {"data": [{"embedding": [0.1]}], "usage": {"prompt_tokens": 5}},
            Outcome.SUCCESS,
            ABSENT,
        ),
        ("embeddings", {"data": [{"embedding": "AAAA"}]}, Outcome.SUCCESS, ABSENT),
        ("embeddings", {"data": [{"embedding": []}]}, Outcome.NO_OUTPUT, ABSENT),
        ("embeddings", {"data": []}, Outcome.NO_OUTPUT, ABSENT),
        ("embeddings", {"detail": "Not Found"}, Outcome.MALFORMED_BODY, ABSENT),
        ("responses", RESPONSE, Outcome.SUCCESS, 4),
        ("responses", INCOMPLETE, Outcome.SUCCESS, 4),
        ("responses", FILTERED, Outcome.BAD_FINISH_REASON, 4),
        ("responses", FAILED, Outcome.ERROR_EVENT, 4),
        ("responses", EMPTY, Outcome.NO_OUTPUT, 4),
        ("generate", {"model_name": "m", "text_output": "hi"}, Outcome.SUCCESS, ABSENT),
        ("generate", {"text_output": ""}, Outcome.NO_OUTPUT, ABSENT),
        ("generate", {"error": "no model"}, Outcome.ERROR_EVENT, ABSENT),
        ("generate", {"model_name": "m"}, Outcome.MALFORMED_BODY, ABSENT),
        ("infer", {"outputs": [{"name": "text_output", "data": ["hi"]}]}, Outcome.SUCCESS, ABSENT),
        ("infer", {"outputs": [{"name": "text_output", "data": [""]}]}, Outcome.NO_OUTPUT, ABSENT),
        ("infer", {"error": "no model"}, Outcome.ERROR_EVENT, ABSENT),
    ],
)
def test_whole_answers(api: str, body: dict[str, Any], outcome: Outcome, tokens: int) -> None:
    reply = read(whole(body), api, streaming=False)
    assert (reply.outcome, reply.output_tokens) == (outcome, tokens), reply.detail
    if outcome is Outcome.SUCCESS:
        assert (reply.first, reply.last, reply.chunks) == (1, 1, 1)


def said(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


@pytest.mark.parametrize(
    ("api", "events", "outcome", "chunks"),
    [
        (
            "completions",
            [
                {"choices": [{"index": 0, "text": "a", "finish_reason": None}]},
                {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]},
            ],
            Outcome.SUCCESS,
            1,
        ),
        (
            "responses",
            [
                said("created", response={"status": "in_progress"}),
                said("output_text.delta", delta="a"),
                said("output_text.delta", delta=""),
                said("completed", response=RESPONSE),
            ],
            Outcome.SUCCESS,
            1,
        ),
        (
            "responses",
            [said("reasoning_text.delta", delta="a"), said("incomplete", response=INCOMPLETE)],
            Outcome.SUCCESS,
            1,
        ),
        ("responses", [said("output_text.delta", delta="a")], Outcome.TRUNCATED, 1),
        (
            "responses",
            [said("output_text.delta", delta="a"), said("failed", response=FAILED)],
            Outcome.ERROR_EVENT,
            1,
        ),
        ("responses", [{"type": "error", "message": "no"}], Outcome.ERROR_EVENT, 0),
        ("generate_stream", [{"text_output": "tok0 "}, {"text_output": "tok1 "}], Outcome.SUCCESS, 2),
        ("generate_stream", [{"text_output": "tok0 "}, {"error": "died"}], Outcome.ERROR_EVENT, 1),
        ("generate_stream", [], Outcome.NO_OUTPUT, 0),
    ],
)
def test_streams(api: str, events: list[dict[str, Any]], outcome: Outcome, chunks: int) -> None:
    reply = read(stream(*events, done=False), api)
    assert (reply.outcome, reply.chunks) == (outcome, chunks), reply.detail


def test_a_triton_stream_that_ends_within_an_event_is_truncated() -> None:
    data = STREAM_HEAD + chunk(event({"text_output": "a"})) + chunk(b'data: {"text_out') + b"0\r\n\r\n"
    assert read(data, "generate_stream").outcome is Outcome.TRUNCATED


@pytest.mark.parametrize("api", DIALECTS)
def test_bodies_and_paths(api: str) -> None:
    dialect = DIALECTS[api]
    prompt = synthetic(16, 8).source(1).prompt(0)
    body = dialect.body(prompt, "m/x", api in ("chat", "generate_stream"))
    assert prompt.text in str(body)
    assert dialect.path("m/x").startswith(("/v1/", "/v2/models/m%2Fx/"))
    assert (api == "embeddings") != ("8" in str(body).replace(prompt.text, ""))
    assert ("stream_options" in body) == (api == "chat")
