"""The pytest side: options, markers, collection-time checks, reports and exit codes.

Kept light on purpose: a pytest run that uses none of this pays for one small module. Everything heavy is imported
by the fixtures, at the moment at which a load is offered.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pytest_inferslo.collection import options_of, refuse_unmeasured
from pytest_inferslo.fixtures import backend, close_rig, offer_load
from pytest_inferslo.options import add_options
from pytest_inferslo.place import told, unoffered
from pytest_inferslo.session import REFUSAL, RUNS, SessionVerdicts, annotate

__all__ = ["backend", "offer_load"]

_XDIST_GROUP = "inferslo"


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_inferslo import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "slo(policy, ...): the policies, by name or path, that judge this test's load"
    )
    config.addinivalue_line(
        "markers", "engine_args(name=[values]): run once per value, with that server argument"
    )
    options_of(config)  # a faulty option is a usage error, before anything is collected
    config.pluginmanager.register(SessionVerdicts(config), "inferslo-session")
    if config.getoption("dist", "no") == "load":
        # One server and one load at a time: xdist must keep our items on one of its workers.
        config.option.dist = "loadgroup"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        from pytest_inferslo.collection import parametrize_backends

        parametrize_backends(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        if "offer_load" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(_XDIST_GROUP))


def pytest_collection_finish(session: pytest.Session) -> None:
    try:
        _check_before_any_load(session)
    except pytest.UsageError as error:
        session.config.stash[REFUSAL] = str(error)
        raise


def _check_before_any_load(session: pytest.Session) -> None:
    refuse_unmeasured(session.items)
    loads = [item for item in session.items if "offer_load" in getattr(item, "fixturenames", ())]
    if loads:
        from pytest_inferslo.collection import check_before_any_server

        known_before = check_before_any_server(session.config, loads)
        reporter = session.config.pluginmanager.getplugin("terminalreporter")  # none in workers of xdist
        for line in known_before if reporter is not None else ():
            reporter.write_line(f"note: {line}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    call: pytest.CallInfo[object] | None = getattr(report, "call", None)
    if report.failed and call is not None and call.excinfo is not None:
        report.longrepr = told(collector.config, call.excinfo) or report.longrepr
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if "offer_load" in getattr(item, "fixturenames", ()):
        unoffered(item, call)
    report = yield
    if "offer_load" in getattr(item, "fixturenames", ()) or RUNS in item.stash:
        annotate(item, call, report)
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    status = getattr(report, "inferslo_status", None)
    if status == "INVALID" and report.failed:
        return "error", "E", "INVALID"
    if status == "INCONCLUSIVE" and report.failed:
        return "failed", "I", "INCONCLUSIVE"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    close_rig(session.config)


def pytest_report_header(config: pytest.Config) -> str | None:
    given = config.getoption("inferslo_backend") or config.getini("inferslo_backend")
    return f"inferslo: backend {', '.join(given)}" if given else None
