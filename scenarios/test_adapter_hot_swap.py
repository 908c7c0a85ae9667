"""Loads, uses and unloads an adapter under load: each update within 2 s, and no request fails for it.

    ADAPTER=/adapters/a pytest --backend=scenarios/groups/hot-swap.yaml scenarios/test_adapter_hot_swap.py

Heavy: the server must load adapters at run time (`lora_runtime: true` in a group file; the simulator always does).
"""

import os
import threading
import time

import pytest
import requests

from pytest_inferslo import Scenario, constant, synthetic

NAME = "hot"
WITHIN_S = 2.0


def swap(server, stop, updates):
    """Over and over: load, one answer, unload; the seconds of each, or what went wrong."""
    endpoint = server.endpoints[0]
    while not stop.wait(2.0):
        started = time.monotonic()
        try:
            server.load_adapter(NAME, os.environ.get("ADAPTER", "/adapters/hot"))
            ask = {"model": NAME, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
            requests.post(f"{endpoint.url}/v1/chat/completions", json=ask, timeout=10).raise_for_status()
            server.unload_adapter(NAME)
            updates.append(time.monotonic() - started)
        except Exception as error:
            updates.append(error)
            return


@pytest.mark.heavy
@pytest.mark.slo("interactive-chat")
def test_adapter_hot_swap(offer_load, backend):
    server = backend.start()
    server = getattr(server, "servers", [server])[0]
    stop, updates = threading.Event(), []
    swapping = threading.Thread(target=swap, args=(server, stop, updates))
    swapping.start()
    try:
        offer_load(
            Scenario(
                arrivals=constant("36/s"),
                warmup="2s",
                duration="28s",
                prompts=synthetic(input_tokens=(16, 64), output_tokens=8),
            )
        )
    finally:
        stop.set()
        swapping.join()
    assert updates, "no adapter was loaded while the load ran"
    assert all(isinstance(update, float) and update < WITHIN_S for update in updates), updates
