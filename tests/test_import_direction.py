"""core <- {backends, loadgen, telemetry, storage, reports, servers} <- run <- fixtures <- plugin: nothing returns."""

import ast
from pathlib import Path

import pytest

import pytest_inferslo

PACKAGE = Path(pytest_inferslo.__file__).parent
EDGES = {"backends", "loadgen", "telemetry", "storage", "reports", "servers"}
#: Which edges may know another one, and what for.
ALLOWED = {
    ("backends", "servers"): "the simulator is one of the servers",
    ("loadgen", "servers"): "calibration runs against the null server",
    ("loadgen", "storage"): "the master writes samples as they arrive",
}
PURE_MUST_NOT_IMPORT = {
    "socket",
    "threading",
    "subprocess",
    "multiprocessing",
    "asyncio",
    "time",
    "pytest",
    "os",
    "select",
}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def area(module_or_path):
    parts = module_or_path.split(".")
    return parts[1] if len(parts) > 1 else ""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_inwards(path):
    own = path.relative_to(PACKAGE).parts[0]
    ours = {name for name in imports(path) if name.startswith("pytest_inferslo.")}
    areas = {area(name) for name in ours} - {"errors", own}
    if own == "core":
        assert not areas, f"core imports {areas}"
        assert not PURE_MUST_NOT_IMPORT & {name.split(".")[0] for name in imports(path)}
    elif own in EDGES:
        edges = {other for other in areas & EDGES if (own, other) not in ALLOWED}
        assert not edges, f"{own} imports the edges {edges}"
        assert not areas & {"run", "gate", "rig", "fixtures", "plugin", "session", "collection", "options"}
