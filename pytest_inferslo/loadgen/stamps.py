"""When bytes arrived: the kernel's receive time where it gives one, the clock where not.

Linux stamps a segment as it comes off the network (`SO_TIMESTAMPNS`, read by recvmsg), on the realtime clock;
the offset to the monotonic clock is measured again and again, so that a stepped realtime clock costs one
interval at most and is counted. A stamp is that of the last segment of a read.
"""

from __future__ import annotations

import _socket
import socket
import struct
import sys
import time
from typing import Final

#: SO_TIMESTAMPNS of Linux's generic ABI (64-bit time): the socket module has no name for it.
SO_TIMESTAMPNS = 35
ANCILLARY_SIZE: Final = socket.CMSG_SPACE(16)

unpack_timespec: Final = struct.Struct("qq").unpack

#: A jump of the offset between two measurements that is a step, not a slew (500 ppm of 0.25 s is 0.125 ms).
_STEP_NS = 1_000_000


class Stamps:
    """`offset`: what to take from a kernel stamp (ns, realtime) to get monotonic ns."""

    def __init__(self, kernel: bool = True) -> None:
        self.kernel = kernel and sys.platform == "linux" and _kernel_stamps()
        self.steps = 0
        self.offset = _realtime_offset()

    @property
    def name(self) -> str:
        return "kernel" if self.kernel else "clock"

    def measure(self) -> None:
        """Measures the offset again; to be called a few times a second."""
        offset = _realtime_offset()
        if abs(offset - self.offset) > _STEP_NS:
            self.steps += 1
        self.offset = offset

    def enable(self, sock: _socket.socket) -> None:
        if self.kernel:
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)


def _realtime_offset() -> int:
    """realtime - monotonic; of some tries the one with the least time between its two monotonic reads."""
    best, offset = 1 << 62, 0
    for _ in range(8):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best:
            best, offset = after - before, wall - (before + after) // 2
    return offset


def _kernel_stamps() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        except OSError:
            return False
    return True
