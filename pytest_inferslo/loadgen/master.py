"""The load generator's master: a Locust master that takes orders from pytest and writes the samples.

Lines of JSON come in on stdin and go out on stdout; the end of stdin ends everything. See offer.py for the
other end.

    in   {"do": "offer", "order": {...}}   {"do": "stop", "reason": "..."}   {"do": "lost", "pid": 123}
    out  {"event": "listening", "port": n} {"event": "ready", "workers": n}  {"event": "progress", ...}
         {"event": "result", ...}          {"event": "refused", "text": "..."}
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from typing import Any

import gevent
import gevent.lock
from gevent.fileobject import FileObjectPosix

from pytest_inferslo.errors import InfersloError
from pytest_inferslo.loadgen.crew import Crew
from pytest_inferslo.loadgen.load import Load
from pytest_inferslo.loadgen.locust_setup import environment
from pytest_inferslo.loadgen.order import LoadOrder
from pytest_inferslo.loadgen.worker import raise_open_files


class Master:
    def __init__(self, bind: str, port: int, workers: int) -> None:
        env = environment()
        self._runner = env.create_master_runner(bind, port)
        self._workers = workers
        self._crew = Crew(self._runner)
        self._load: Load | None = None
        self._writing = gevent.lock.Semaphore()
        env.events.worker_report.add_listener(self._report)

    def serve(self) -> None:
        self._say({"event": "listening", "port": self._runner.server.port})
        gevent.spawn(self._gather)
        stdin = FileObjectPosix(sys.stdin.fileno(), "rb")
        while line := stdin.readline():
            self._obey(json.loads(line))
        self._runner.quit()

    def _gather(self) -> None:
        """Waits for the workers and starts their one user each."""
        self._crew.wait_for(self._workers)
        self._runner.start(self._workers, spawn_rate=self._workers)
        self._say({"event": "ready", "workers": self._workers})

    def _obey(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "offer":
                self._load = Load(self._crew, LoadOrder.from_dict(command["order"]), self._say)
                gevent.spawn(self._offer, self._load)
            case "stop" if self._load is not None:
                self._load.stop(command["reason"])
            case "lost":
                self._crew.lose(command["pid"], "its process ended")

    def _offer(self, load: Load) -> None:
        try:
            result = load.run()
        except InfersloError as error:
            self._say({"event": "refused", "text": str(error)})
        except Exception:
            self._say({"event": "refused", "text": f"fault of the master: {traceback.format_exc()}"})
        else:
            self._say({"event": "result", **result})

    def _report(self, client_id: str, data: dict[str, Any]) -> None:
        if self._load is not None and "inferslo" in data:
            self._load.report(client_id, data["inferslo"])

    def _say(self, message: dict[str, Any]) -> None:
        line = json.dumps(message).encode() + b"\n"
        with self._writing:
            while line:
                line = line[os.write(1, line) :]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bind", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--workers", type=int, required=True)
    args = parser.parse_args()
    raise_open_files()
    Master(args.bind, args.port, args.workers).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
