"""One request is one sample: the record that the engine writes and everything later reads.

All times are int64 nanoseconds since the run's epoch (the instant at which the schedule's zero fell, warm-up
included), taken from one monotonic clock per worker and shifted by that worker's measured clock offset.
`ABSENT` (-1) marks a time, count or status that never came to be. It is never 0 and never a pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

ABSENT: Final = -1


class Outcome(IntEnum):
    """How one intended request ended. Only `SUCCESS` feeds latencies; all others are failures.

    Values are written into sample files: append, never renumber.
    """

    SUCCESS = 0
    #: still in flight when the drain time ran out
    UNFINISHED = 1
    #: due but not sent: in-flight or connection cap, or the run ended first
    NEVER_SENT = 2
    CONNECT_REFUSED = 3
    CONNECT_TIMEOUT = 4
    #: any other failure before the connection stood (unreachable, name not resolved, no port left)
    CONNECT_ERROR = 5
    TLS_ERROR = 6
    #: reset by the peer after the request was (partly) sent
    RESET = 7
    #: the body ended cleanly or by FIN before the answer was complete
    TRUNCATED = 8
    TIMEOUT_FIRST_OUTPUT = 9
    #: a stream that stalled between two chunks
    TIMEOUT_STALL = 10
    TIMEOUT_TOTAL = 11
    HTTP_REDIRECT = 12
    HTTP_CLIENT_ERROR = 13
    #: 429 and 503 with Retry-After: the server sheds load
    HTTP_OVERLOADED = 14
    HTTP_SERVER_ERROR = 15
    #: an error object inside a 200 answer
    ERROR_EVENT = 16
    #: complete by the protocol, but without any output
    NO_OUTPUT = 17
    #: finish_reason `abort`, `error`, `cancelled`
    ABORTED = 18
    #: a finish reason that is not known to be a success
    BAD_FINISH_REASON = 19
    MALFORMED_HTTP = 20
    #: an event or body that is not the JSON its endpoint promises
    MALFORMED_BODY = 21
    #: Content-Encoding that was not asked for
    UNEXPECTED_ENCODING = 22
    #: the generator itself failed on this request (a fault of ours; makes the run INVALID)
    CLIENT_ERROR = 23


#: One row per intended request.
SAMPLE_DTYPE = np.dtype(
    [
        ("index", "<i8"),  # position in the global schedule, unique in a run
        ("intended", "<i8"),  # the instant the schedule asked for
        ("sent", "<i8"),  # first byte handed to the kernel
        ("first", "<i8"),  # first event with content, reasoning or tool-call output
        ("first_content", "<i8"),  # first event with content that is not reasoning
        ("last", "<i8"),  # last event with output
        ("end", "<i8"),  # the answer was complete, or the failure was seen
        ("max_stall", "<i8"),  # longest gap between successive output events, ns
        ("prompt_hash", "<i8"),  # of the prompt text, to tell repeats
        ("prompt_tokens", "<i4"),  # server-counted
        ("cached_tokens", "<i4"),  # server-counted, part of prompt_tokens
        ("output_tokens", "<i4"),  # server-counted
        ("reasoning_tokens", "<i4"),  # server-counted, part of output_tokens
        ("chunks", "<i4"),  # events that carried output
        ("bursts", "<i4"),  # output events that shared a read with an earlier one of the same answer
        ("status", "<i2"),  # HTTP status
        ("outcome", "i1"),  # Outcome
        ("stream", "i1"),  # which of the scenario's streams (0 when there is one)
        ("endpoint", "<i2"),  # index into the run's endpoints
        ("adapter", "<i2"),  # index into the run's adapters; ABSENT for the base model
        ("worker", "<i2"),  # index of the worker that sent it
    ]
)

#: Inter-chunk gaps, folded: `count` gaps of one HDR bucket among requests intended in one second.
#: `bucket` indexes histogram.GAP_LAYOUT. Gaps of failed requests are not here.
GAP_DTYPE = np.dtype(
    [
        ("slot", "<i4"),  # floor(intended / 1 s)
        ("stream", "i1"),
        ("endpoint", "<i2"),
        ("adapter", "<i2"),
        ("bucket", "<i4"),
        ("count", "<i8"),
    ]
)

Rows = npt.NDArray[np.void]


@dataclass(frozen=True)
class SampleBatch:
    """Some samples of a run, in the order in which they ended; rows of SAMPLE_DTYPE and GAP_DTYPE."""

    samples: Rows
    gaps: Rows

    def __post_init__(self) -> None:
        if self.samples.dtype != SAMPLE_DTYPE or self.gaps.dtype != GAP_DTYPE:
            raise TypeError(
                f"expected SAMPLE_DTYPE and GAP_DTYPE, got {self.samples.dtype}, {self.gaps.dtype}"
            )

    def __len__(self) -> int:
        return len(self.samples)

    @classmethod
    def empty(cls) -> SampleBatch:
        return cls(np.empty(0, SAMPLE_DTYPE), np.empty(0, GAP_DTYPE))

    @classmethod
    def concatenate(cls, batches: Iterable[SampleBatch]) -> SampleBatch:
        parts = list(batches) or [cls.empty()]
        return cls(np.concatenate([p.samples for p in parts]), np.concatenate([p.gaps for p in parts]))
