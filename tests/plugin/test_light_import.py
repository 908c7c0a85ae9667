"""A pytest run that uses none of this pays for one small module, and is never patched by gevent."""

import subprocess
import sys

HEAVY = (
    "numpy",
    "scipy",
    "locust",
    "gevent",
    "pyarrow",
    "rich",
    "requests",
    "pynvml",
    "ruamel.yaml",
    "hdrh",
    "psutil",
)


def test_loading_the_plugin_imports_nothing_heavy():
    program = f"import sys, pytest_inferslo.plugin; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_offering_a_load_never_imports_gevent_or_locust():
    """Case 45: the pytest process keeps its own sockets, threads and ssl."""
    program = (
        "import sys, pytest_inferslo.gate, pytest_inferslo.judgement, pytest_inferslo.rig; "
        "print([m for m in ('gevent', 'locust') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
