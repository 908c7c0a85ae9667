"""What a request and a chunk cost us, in a closed loop; run by the interpreter whose installation is measured.

    python benchmarks/closed_loop.py URL      # one line of JSON

`make bench` measures the compiled engine beside the same sources as Python with it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from side_by_side import Ours

from pytest_inferslo.core.arrivals import concurrency

#: Not longer than the requests last that a closed loop prepares ahead: preparing them is not what is measured.
SECONDS = 1.0
USERS = 50


def measure(ours: Ours, url: str) -> dict[str, float]:
    result, rows = ours.offer(url, concurrency(USERS), SECONDS)
    cpu = result.workers[0]["cpu_ns"] / 1e9
    return {
        "us/request": cpu / len(rows) * 1e6,
        "us/chunk": float(cpu / rows["chunks"].sum() * 1e6),
        "requests/s": len(rows) / SECONDS,
    }


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="inferslo-bench-") as folder:
        ours = Ours(Path(folder))
        try:
            print(json.dumps(measure(ours, sys.argv[1])))
        finally:
            ours.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
