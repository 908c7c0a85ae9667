"""Workers on other hosts: network namespaces joined by veth pairs, each with a monotonic clock of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raw_server import RawServer, answer_all

from pytest_inferslo.core.arrivals import constant
from pytest_inferslo.loadgen.offer import LoadGenerator, Progress
from pytest_inferslo.storage.samples import read_batches

#: How far the clock of host k is ahead of ours: the namespaces shift CLOCK_MONOTONIC by whole seconds.
CLOCK_AHEAD = (500, 9000)


def ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ip", *arguments], check=check, capture_output=True)


@dataclass
class Host:
    """A network namespace; we are `gateway` to it."""

    name: str
    gateway: str
    link: str
    clock_ahead: int

    def start_worker(self, port: int, log: Path) -> subprocess.Popen[bytes]:
        shift = [
            "unshare",
            "-T",
            "--monotonic",
            str(self.clock_ahead),
            "--boottime",
            str(self.clock_ahead),
            "--fork",
        ]
        command = [
            sys.executable,
            "-m",
            "pytest_inferslo.loadgen.worker",
            "--master",
            f"{self.gateway}:{port}",
        ]
        with log.open("wb") as file:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.name, *shift, "--kill-child", *command], stdout=file, stderr=file
            )

    def cut_off(self) -> None:
        ip("link", "set", self.link, "down")


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    made = [
        Host(f"slo{os.getpid()}n{k}", f"10.213.{k + 1}.1", f"slo{os.getpid()}v{k}", ahead)
        for k, ahead in enumerate(CLOCK_AHEAD)
    ]
    if (
        shutil.which("ip") is None
        or shutil.which("unshare") is None
        or ip("netns", "list", check=False).returncode
    ):
        pytest.skip("needs ip and unshare")
    try:
        for k, host in enumerate(made):
            peer, there = f"{host.link}p", f"10.213.{k + 1}.2"
            if ip("netns", "add", host.name, check=False).returncode:
                pytest.skip("no permission to make network namespaces")
            ip("link", "add", host.link, "type", "veth", "peer", "name", peer)
            ip("link", "set", peer, "netns", host.name)
            ip("addr", "add", f"{host.gateway}/24", "dev", host.link)
            ip("link", "set", host.link, "up")
            inside = ("netns", "exec", host.name, "ip")
            ip(*inside, "addr", "add", f"{there}/24", "dev", peer)
            ip(*inside, "link", "set", "lo", "up")
            ip(*inside, "link", "set", peer, "up")
            ip(*inside, "route", "add", "default", "via", host.gateway)
        yield made
    finally:
        for host in made:
            ip("link", "del", host.link, check=False)
            ip("netns", "del", host.name, check=False)


@pytest.fixture
def crew(hosts: list[Host], tmp_path: Path) -> Iterator[tuple[LoadGenerator, RawServer]]:
    with socket.create_server(("0.0.0.0", 0)) as free:
        port = free.getsockname()[1]
    with (
        RawServer(answer_all(), host="0.0.0.0") as server,
        LoadGenerator(tmp_path / "logs", workers=0, expect_workers=2, bind="0.0.0.0", port=port) as generator,
    ):
        workers = [host.start_worker(port, tmp_path / f"{host.name}.log") for host in hosts]
        try:
            generator.wait_until_ready()
            yield generator, server
        finally:
            generator.close()
            for worker in workers:
                worker.kill()
                worker.wait()


def test_two_hosts_make_one_load_and_one_is_cut_off(
    load: Any, crew: tuple[LoadGenerator, RawServer], hosts: list[Host]
) -> None:
    generator, server = crew
    url = f"http://{hosts[0].gateway}:{server.port}"
    order = load.order(url, arrivals=constant("100/s"), duration=1)
    offered = load.read(order, generator.offer(order))
    assert offered.outcomes == {"SUCCESS": 100}
    assert set(offered.samples["worker"].tolist()) == {0, 1}
    for worker in offered.result.workers:
        ahead = min(CLOCK_AHEAD, key=lambda s: abs(worker["clock_offset_ns"] / 1e9 - s))
        assert worker["clock_offset_ns"] == pytest.approx(ahead * 1e9, abs=1e8)
        assert 0 < worker["clock_uncertainty_ns"] < 1e8
    lag = offered.samples["sent"] - offered.samples["intended"]
    assert np.median(np.abs(lag)) < 1e8, "both hosts mean the same instant"

    cut_at: list[float] = []

    def cut(progress: Progress) -> None:
        if progress.elapsed_s > 1 and not cut_at:
            cut_at.append(time.monotonic())
            hosts[1].cut_off()

    order = load.order(url, arrivals=constant("100/s"), duration=60)
    result = generator.offer(order, on_progress=cut)
    assert time.monotonic() - cut_at[0] < 15, "not at the end of the load"
    assert [worker["lost"] for worker in result.workers].count(True) == 1
    assert "was lost: nothing was heard of it" in result.errors[0]
    rows = np.concatenate([batch.samples for batch in read_batches(Path(order.run_directory))])
    assert len(set(rows["index"].tolist())) == len(rows) == result.counts["issued"] < 6000
