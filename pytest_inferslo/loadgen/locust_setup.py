"""Locust as master and workers use it: no web UI, no options from files or the environment, quick reports.

Importing this module imports Locust, which patches the process; only the load generator's own processes do.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from typing import Any

import locust.runners
from gevent.queue import Queue
from locust import User, task
from locust.env import Environment

REPORT_SECONDS = 0.25


class EngineUser(User):
    """The one user of each worker. It offers what `work` brings, one load after another, for the whole
    session.
    """

    work: Queue = Queue()

    @task
    def offer(self) -> None:
        self.work.get()()


def environment(**settings: Any) -> Environment:
    locust.runners.WORKER_REPORT_INTERVAL = REPORT_SECONDS
    locust.runners.WORKER_LOG_REPORT_INTERVAL = -1
    # whether a worker is lost is judged in crew.py; Locust's own verdict would kill and respawn users
    locust.runners.HEARTBEAT_LIVENESS = 3600
    logging.getLogger("locust").setLevel(logging.WARNING)
    # given here, these are not read from locust.conf and LOCUST_* variables
    options = Namespace(enable_rebalancing=False, headless=True, web_base_path="", tags=[], exclude_tags=[])
    settings.setdefault("user_classes", [EngineUser])
    return Environment(parsed_options=options, **settings)
