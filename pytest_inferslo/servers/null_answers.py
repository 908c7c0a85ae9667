"""The bytes that the null server sends: streams and bodies of chat completions, and what tools look at before."""

from __future__ import annotations

_STREAMED = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1796064758,'
    b'"model":"null","choices":['
)
_EVENT = _STREAMED + b'{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]}\n\n'
_USAGE = _STREAMED + b'],"usage":{"prompt_tokens":16,"total_tokens":%d,"completion_tokens":%d}}\n\n'
_WHOLE = (
    b'{"id":"chatcmpl-0123456789abcdef","object":"chat.completion","created":1796064758,"model":"null",'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"%b"},"finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":16,"total_tokens":%d,"completion_tokens":%d}}'
)
#: By path; a request may name any model.
_PAGES = {
    b"/health": b"",
    b"/metrics": b"",
    b"/v1/models": b'{"object":"list","data":[{"id":"null","object":"model","created":0,"owned_by":"null"}]}',
}
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


def page(path: bytes) -> bytes:
    """The answer to a GET: of `path`, or 404."""
    body = _PAGES.get(path.rstrip(b"/"))
    if body is None:
        return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
    kind = b"application/json" if body else b"text/plain"
    return b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (kind, len(body), body)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream_parts(chunks: int, number: int = 0) -> list[bytes]:
    """The bytes of a streamed answer, one entry per token: head and role stand with the first, the end with
    the last. `number` makes its id.
    """
    parts = []
    for token in range(chunks):
        reason = b'"length"' if token == chunks - 1 else b"null"
        parts.append(_chunk(_EVENT % (b'{"content":" token%d"}' % token, reason)))
    parts[0] = _HEAD + _chunk(_EVENT % (b'{"role":"assistant","content":""}', b"null")) + parts[0]
    parts[-1] += _chunk(_USAGE % (16 + chunks, chunks)) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    unique = b"%016x" % (number * 0x9E3779B97F4A7C15 % 2**64)
    return [part.replace(b"0123456789abcdef", unique) for part in parts]


def whole_answer(chunks: int) -> bytes:
    body = _WHOLE % (b" token" * chunks, 16 + chunks, chunks)
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )
