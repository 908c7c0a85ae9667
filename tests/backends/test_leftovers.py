"""Looking into /proc, /dev/shm and NVML: on made-up trees where the real thing cannot be had."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_inferslo.backends import ports
from pytest_inferslo.backends.leftovers import GpuMemory, Leftovers
from pytest_inferslo.backends.readiness import Listing, read_listing, redacted
from pytest_inferslo.backends.supervisor import descendants, is_same, name_of, process_table, read_process


def write_stat(root: Path, pid: int, name: str, state: str, parent: int, started: int) -> None:
    folder = root / str(pid)
    folder.mkdir()
    fields = [state, str(parent), *["0"] * 17, str(started), "0", "0"]
    (folder / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
    (folder / "cmdline").write_bytes(b"")
    (folder / "comm").write_text(name + "\n")


def test_a_family_is_read_from_proc(tmp_path: Path) -> None:
    write_stat(tmp_path, 10, "server", "S", 1, 100)
    write_stat(tmp_path, 11, "VLLM::Engine (a) b", "R", 10, 101)  # spaces and parentheses are legal in names
    write_stat(tmp_path, 12, "worker", "S", 11, 102)
    write_stat(tmp_path, 13, "gone", "Z", 11, 103)
    write_stat(tmp_path, 20, "stranger", "S", 1, 104)
    (tmp_path / "self").mkdir()
    root = str(tmp_path)
    assert [each.pid for each in descendants(10, root)] == [11, 12]
    assert read_process(11, root) == (11, 10, 101, False)
    assert read_process(99, root) is None
    assert set(process_table(root)) == {10, 11, 12, 13, 20}
    assert name_of(11, root) == "VLLM::Engine (a) b"


def test_a_pid_that_was_reused_is_another_process(tmp_path: Path) -> None:
    write_stat(tmp_path, 10, "a", "S", 1, 100)
    before = read_process(10, str(tmp_path))
    assert before is not None
    assert is_same(before, before)
    assert not is_same(before, before._replace(started=200))
    assert not is_same(before, before._replace(zombie=True))
    assert not is_same(before, None)


def test_listeners_are_found_by_the_process_that_holds_them() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as ours,
        socket.create_server(("127.0.0.2", 0)) as unreachable,
    ):
        port = ours.getsockname()[1]
        inodes = ports.listening_sockets(port)
        assert inodes == {os.readlink(f"/proc/self/fd/{ours.fileno()}")[8:-1]}  # noqa: PTH115
        assert ports.strangers(port, [os.getpid()]) == set()
        assert ports.strangers(port, []) == inodes
        assert ports.owner(next(iter(inodes))) == os.getpid()
        assert ports.listening_sockets(unreachable.getsockname()[1]) == set()


def test_free_ports_are_given_once_and_lie_below_those_of_connections() -> None:
    given = [ports.free_port() for _ in range(50)]
    assert len(set(given)) == 50
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 <= port < first for port in given)


def test_a_port_without_knowledge_of_the_range(tmp_path: Path) -> None:
    assert 1024 <= ports.free_port(str(tmp_path)) < 65536


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_listener_on_every_address_answers_on_loopback_too(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        assert len(ports.strangers(server.getsockname()[1], [])) == 1


def test_socket_files_that_stay_are_named(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    code = (
        "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); "
        "print(1, flush=True); time.sleep(60)"
    )
    leftovers = Leftovers()
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    leftovers.see([child.pid])
    child.kill()
    child.wait()
    child.stdout.close()
    assert leftovers.left() == [str(path)]
    path.unlink()
    assert leftovers.left() == []


class FakeNvml:
    """NVML with one GPU whose used memory follows a script."""

    def __init__(self, *used: int) -> None:
        self._used = list(used)

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=self._used.pop(0) if len(self._used) > 1 else self._used[0])


def test_gpu_memory_is_waited_for() -> None:
    gib = 2**30
    assert GpuMemory(FakeNvml(gib, 130 * gib, 60 * gib, gib + 2**20)).wait_settled(30.0) is None
    said = GpuMemory(FakeNvml(gib, 3 * gib)).wait_settled(0.2)
    assert said is not None
    assert "GPU 0: 2048 MiB" in said


def test_gpu_memory_without_nvml_says_nothing() -> None:
    class Broken:
        def nvmlDeviceGetCount(self) -> int:
            raise RuntimeError("not supported")

    assert GpuMemory(Broken()).wait_settled(0.0) is None


@pytest.mark.parametrize(
    ("body", "listing"),
    [
        ({"data": [{"id": "lora", "parent": "m"}, {"id": "m", "parent": None}]}, Listing(("m",), ("lora",))),
        ({"data": [{"id": "m"}, {"id": "alias"}]}, Listing(("m", "alias"))),
        ({"data": []}, Listing()),
        ({"data": [{"name": "x"}, 3]}, Listing()),
        ({"object": "list"}, Listing()),
        ([], Listing()),
        (None, Listing()),
    ],
)
def test_models_of_a_listing(body: Any, listing: Listing) -> None:
    assert read_listing(body) == listing


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("serve", "--api-key", "s3cret", "--port", "1"), ["serve", "--api-key", "***", "--port", "1"]),
        (("serve", "--api-key=s3cret"), ["serve", "--api-key=***"]),
        (("serve", "--hf-token", "t", "m"), ["serve", "--hf-token", "***", "m"]),
        (("serve", "--max-num-batched-tokens", "2048"), ["serve", "--max-num-batched-tokens", "2048"]),
    ],
)
def test_commands_are_recorded_without_secrets(command: tuple[str, ...], shown: list[str]) -> None:
    assert redacted(command) == shown
