"""The gate as a user sees it: real pytest, real Locust processes, the embedded simulator."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from gate_project import POLICY, TEST, run

#: A worker on "another host" that is started before the master listens.
RETRIED = """\
import subprocess, sys, time
for _ in range(100):
    if subprocess.run([sys.executable, "-m", "pytest_inferslo.cli", "worker", "--master", "{address}"]).returncode == 0:
        sys.exit(0)
    time.sleep(0.2)
sys.exit(1)
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def left_behind(directory):
    """Processes of ours whose command line or working directory points into the test's own directory."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = " ".join(process.info["cmdline"] or [])
        if (
            "pytest_inferslo" in words
            and process.info["cwd"]
            and Path(process.info["cwd"]).is_relative_to(directory)
        ):
            found.append(words)
    return found


def eventually_nothing_left(directory, seconds=10.0):
    deadline = time.monotonic() + seconds
    while (found := left_behind(directory)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found == []


def test_proven_promises_pass_and_leave_a_record(project):
    pytester = project()
    result = run(pytester)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*PASS: steady on sim*, policy quick*"])
    latest = pytester.path / ".inferslo" / "latest"
    record = json.loads((latest / "run.json").read_text())
    counts = record["counts"]
    assert counts["issued"] == counts["succeeded"] == 500
    assert record["simulator"]["steps"] > 50
    assert json.loads((latest / "verdict.json").read_text())["status"] == "PASS"
    assert {"samples.arrow", "telemetry.arrow", "server.log", "e2e.hgrm"} <= {
        path.name for path in latest.iterdir()
    }
    assert (pytester.path / ".inferslo" / ".gitignore").is_file()
    judge = [sys.executable, "-m", "pytest_inferslo.cli", "judge", latest, "--prometheus"]
    assert 'status="PASS"} 1' in pytester.run(*judge).stdout.str()
    assert left_behind(pytester.path) == []


def test_a_breach_fails_the_item_with_the_table_and_exit_code_1(project):
    result = run(project(limit="1ms"))
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*FAIL: steady on sim*", "*e2e p50*FAIL*"])


def test_too_few_samples_are_inconclusive_with_exit_code_8(project):
    result = run(project(limit="10s", rate=20, seconds=1))
    assert result.ret == 8
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*INCONCLUSIVE*", "*more requests*"])


@pytest.mark.parametrize(
    ("action", "outcome"), [("skip", "skipped"), ("xfail", "xfailed"), ("warn", "passed")]
)
def test_inconclusive_does_what_the_option_says(project, action, outcome):
    result = run(project(limit="10s", rate=20, seconds=1), f"--inconclusive={action}")
    assert result.ret == 0
    assert result.parseoutcomes()[outcome] == 1
    assert "table above" not in result.stdout.str()
    result.stdout.fnmatch_lines(["*= inferslo =*", "INCONCLUSIVE: steady*", "objective*limit*", "e2e p50*"])


def test_an_untrusted_measurement_is_an_error_with_exit_code_9(project, tmp_path):
    pytester = project(more="  undelivered: 1%\n")
    test = TEST.replace('drain="5s"', 'drain="5s", max_in_flight=1, max_connections=1')
    pytester.makepyfile(test_load=test.format(rate=400, seconds=2))
    junit = tmp_path / "junit.xml"
    result = run(pytester, f"--junitxml={junit}")
    assert result.ret == 9
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*INVALID: steady on sim*", "*undelivered*"])
    assert 'errors="1"' in junit.read_text()


def test_a_policy_with_unproven_scenarios_fails_the_session(project):
    """Case 22: a scenario that the policy names and that no test evaluated."""
    result = run(project(more="scenarios: [steady, bursty]\n"))
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*1 named scenario was not evaluated: bursty*"])


@pytest.mark.parametrize(("later_rate", "inconclusive"), [(60, "fail"), (2, "warn"), (2, "xfail")])
def test_a_rerun_does_not_launder_a_breach(project, later_rate, inconclusive):
    """Case 30: the second try would pass, or be let go as INCONCLUSIVE; the verdict says flaky and shows both."""
    pytester = project(limit="10s")
    test = TEST.replace(
        "    offer_load(",
        "    import pathlib\n"
        "    tries = pathlib.Path('tries'); first = not tries.exists(); tries.touch()\n"
        "    offer_load(",
    ).replace("output_tokens=4", "output_tokens=(200 if first else 1)")
    test = test.replace('"{rate}/s"', f"{{rate}} if first else {later_rate}")
    (pytester.path / "slo_policies" / "quick.yaml").write_text(POLICY.format(limit="300ms", more=""))
    pytester.makepyfile(test_load=test.format(rate=60, seconds=3))
    result = run(pytester, "--reruns=1", f"--inconclusive={inconclusive}")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*flaky*"])


@pytest.mark.parametrize("way_out", ["pytest.skip('not now')", "pytest.xfail('known')"])
def test_nor_does_a_rerun_that_lets_itself_go_before_its_load(project, way_out):
    test = TEST.replace(
        "    offer_load(",
        "    import pathlib\n"
        "    again = pathlib.Path('tries').exists(); pathlib.Path('tries').touch()\n"
        f"    if again: {way_out}\n"
        "    offer_load(",
    )
    pytester = project(limit="1us")
    pytester.makepyfile(test_load=test.format(rate=100, seconds=5))
    result = run(pytester, "--reruns=1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*flaky*"])


def test_under_xdist_one_load_at_a_time_and_the_summary_is_there(project, tmp_path):
    """Case 46."""
    pytester = project()
    test = TEST + TEST.split("\n\n", 1)[1].replace("test_steady", "test_again")
    pytester.makepyfile(test_load=test.format(rate=100, seconds=5))
    junit = tmp_path / "junit.xml"
    result = run(pytester, "-n2", f"--junitxml={junit}")
    assert result.ret == 0
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*PASS: steady on sim*"])
    result.stdout.fnmatch_lines(["*PASS: again on sim*"])
    assert junit.read_text().count('name="inferslo.quick.verdict" value="PASS"') == 2


def test_two_backends_run_each_scenario_on_each_and_are_compared(project):
    pytester = project()
    test = TEST.replace(
        '@pytest.mark.slo("quick")',
        '@pytest.mark.slo("quick")\n@pytest.mark.engine_args(max_num_seqs=[8, 64])',
    )
    pytester.makepyfile(test_load=test.format(rate=100, seconds=5))
    result = run(pytester, "-v")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*test_steady?sim-max_num_seqs=8?*", "*test_steady?sim-max_num_seqs=64?*"])
    result.stdout.fnmatch_lines(["*sim-max_num_seqs=8*sim-max_num_seqs=64*"])
    saved = sorted((pytester.path / ".inferslo" / "runs").iterdir())
    again = pytester.run(sys.executable, "-m", "pytest_inferslo.cli", "compare", *saved)
    assert again.ret == 0
    letters = [directory.name.rpartition("-")[2] for directory in saved]
    again.stdout.fnmatch_lines([f"*{letters[0]}*{letters[1]}*"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--backend=vlm"], ["*no such backend*vllm*"]),
        (["--slo-policy=nowhere"], ["*nowhere*no such policy*"]),
        (["--slo-policy=qiuck"], ["*qiuck*quick*"]),
        (["--load-seconds=soon"], ["*load-seconds*"]),
        (["--slo-policy="], ["*--slo-policy is empty*"]),
        (["--backend-env=NOEQUALS"], ["*KEY=VALUE*"]),
        (["--inferslo-workers=0"], ["*--inferslo-workers=0 needs --inferslo-expect-workers*"]),
    ],
    ids=lambda value: str(value[0]),
)
def test_what_can_be_refused_is_refused_before_anything_starts(project, arguments, says):
    pytester = project()
    result = run(pytester, *arguments)
    assert result.ret == 4
    result.stderr.fnmatch_lines(says)
    assert (
        not (result.session_config.rootpath if hasattr(result, "session_config") else Path("none"))
        .joinpath(".inferslo")
        .exists()
    )


@pytest.mark.parametrize("xdist", ["no:xdist", "xdist"])
def test_collecting_a_load_warns_of_nothing(project, xdist):
    result = run(project(), "-p", xdist, "--collect-only", "--strict-markers", "-W", "error")
    assert result.ret == 0
    result.assert_outcomes()


def test_all_load_may_come_from_other_hosts(project):
    """... who hear how they are to wait for each request."""
    pytester = project()
    arguments = [
        "--inferslo-pacing=spin",
        "--inferslo-workers=0",
        "--inferslo-expect-workers=1",
        f"--inferslo-bind=127.0.0.1:{free_port()}",
    ]
    address = arguments[-1].partition("=")[2]
    worker = subprocess.Popen(
        [sys.executable, "-c", RETRIED.format(address=address)], cwd=pytester.path, stdout=subprocess.DEVNULL
    )
    try:
        result = run(pytester, *arguments)
        assert result.ret == 0
        assert worker.wait(timeout=30) == 0
        (record,) = pytester.path.glob(".inferslo/runs/*/run.json")
        assert [each["pacing"] for each in json.loads(record.read_text())["workers"]] == ["timerfd, spin"]
    finally:
        worker.kill()
        worker.wait()


def test_a_faulty_policy_is_refused_with_all_its_faults(project):
    pytester = project()
    (pytester.path / "slo_policies" / "quick.yaml").write_text(
        "policy: quick\nobjectives:\n  - tttf p99 <= 80ms\n  - e2e p99 <= 80\n"
    )
    result = run(pytester)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*quick.yaml:3*tttf*ttft*"])
    result.stderr.fnmatch_lines(["*quick.yaml:4*"])


def test_a_load_without_a_promise_is_refused(project):
    pytester = project()
    pytester.makepyfile(test_load=TEST.replace('@pytest.mark.slo("quick")', "").format(rate=10, seconds=1))
    result = run(pytester)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*promises nothing*"])


def test_a_policy_that_the_scenario_cannot_show_is_refused_before_the_server(project):
    pytester = project()
    (pytester.path / "slo_policies" / "quick.yaml").write_text(
        "policy: quick\nobjectives: [icl p99 <= 80ms]\n"
    )
    pytester.makepyfile(test_load=TEST.replace('drain="5s"', "streaming=False").format(rate=10, seconds=1))
    result = run(pytester)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*icl*stream*"])
    assert not (pytester.path / ".inferslo").exists()


@pytest.mark.parametrize(
    "arguments", [["."], ["sub"], ["--pyargs", "json"], ["nowhere"]], ids=lambda a: a[-1]
)
def test_the_options_are_known_wherever_pytest_starts(pytester, arguments):
    """Case 47."""
    (pytester.path / "sub").mkdir()
    result = run(pytester, "--backend=sim", "--load-seconds=5", *arguments)
    assert "unrecognized arguments" not in result.stderr.str()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM], ids=lambda s: s.name)
def test_nothing_is_left_when_pytest_is_killed_in_mid_run(project, how):
    """Case 44."""
    pytester = project(seconds=60)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=pytester.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
    )
    samples = pytester.path / ".inferslo" / "latest" / "samples.arrow"
    deadline = time.monotonic() + 60
    while not (samples.exists() and samples.stat().st_size > 20_000) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left_behind(pytester.path)
    process.send_signal(how)
    output = process.communicate(timeout=30)[0].decode()
    assert eventually_nothing_left(pytester.path), output
    if how is signal.SIGINT:
        assert process.returncode == 2
        assert re.search("KeyboardInterrupt|Interrupted", output)
        assert re.search(r"test_steady was interrupted.*lies in \.inferslo/runs/\S+-steady-", output)
    judged = pytester.run(sys.executable, "-m", "pytest_inferslo.cli", "judge", ".inferslo/latest")
    assert judged.ret == 9
    cause = r"* into a load of 60 s: interrupted (Ctrl-C)*" if how is signal.SIGINT else "*pytest was killed*"
    judged.stdout.fnmatch_lines(
        [
            "Measurement invalid:*",
            "*server_survived 1*ended before its time*",
            cause,
            "*in consequence also:*",
            "Why",
        ]
    )
    judged.stdout.no_fnmatch_line("*raise max_connections*")
    assert "judgement.py" not in judged.stderr.str(), "where a warning was given is nobody's business"


LOCUSTFILE = """\
import uuid
from locust import HttpUser, constant, task

class Chat(HttpUser):
    wait_time = constant(0.02)

    @task
    def ask(self):
        message = {"role": "user", "content": str(uuid.uuid4())}
        self.client.post("/v1/chat/completions", json={"model": "simulated", "max_tokens": 4, "messages": [message]})
"""


def test_an_existing_locustfile_runs_under_a_policy(project):
    pytester = project()
    (pytester.path / "users_of_ours.py").write_text(LOCUSTFILE)
    pytester.makepyfile(
        test_load="""
        import pytest

        @pytest.mark.slo("quick")
        def test_users(offer_load):
            offer_load(locustfile="users_of_ours.py", users=8, duration="5s")
        """
    )
    result = run(pytester)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*PASS: users on sim*", "*closed loop: latency starts at the send*"])
    record = json.loads((pytester.path / ".inferslo" / "latest" / "run.json").read_text())
    assert record["counts"]["succeeded"] > 100
    assert record["scenario"]["locustfile"]["users"] == 8


def test_a_load_beyond_what_this_machine_can_offer_is_refused_before_a_server_starts(project):
    pytester = project(rate=2_000_000, seconds=1)
    result = run(pytester)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*needs * load generator workers; there are 1*"])
    assert not (pytester.path / ".inferslo" / "runs").exists()


def test_a_run_that_may_stop_early_ends_once_its_verdict_is_certain(project):
    pytester = project()
    test = TEST.replace('drain="5s"', 'drain="5s", stop_when_certain=True')
    pytester.makepyfile(test_load=test.format(rate=100, seconds=60))
    result = run(pytester)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*PASS: steady on sim*", "*stopped early: PASS is certain*"])
    record = json.loads((pytester.path / ".inferslo" / "latest" / "run.json").read_text())
    assert record["window"]["end"] < 60e9
    assert record["counts"]["never_sent"] > 0
