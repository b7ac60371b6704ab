"""Deploy, stop, restart and observe, on a real PostgreSQL and with real processes that need no Spark."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deltaworks import exits, files, processes
from deltaworks.control import actions, batches, code, fence, heartbeat, lease, outcome, registry, retention
from deltaworks.control.launchers import LocalLauncher
from deltaworks.control.model import Deployment, DeployOptions, Observation
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import (
    ConfigurationError,
    ConflictError,
    ControlUnavailableError,
    IncompatibleCheckpointError,
    StackError,
)
from deltaworks.stack.ports import free_ports
from tests.integration.control import fake_driver
from tests.integration.control.conftest import Control
from tests.support.polling import until
from tests.support.processes import is_gone

DEPLOY = """
import sys
from deltaworks.control import actions
from deltaworks.settings import Settings
from tests.integration.control.conftest import Control
settings = Settings.from_environment()
request = sys.argv[1] or None
done = actions.deploy(settings, "p", request_id=request, requested_by="other", launchers=Control(settings).launchers)
print(done.generation, flush=True)
"""


def deploy(control: Control, **more: object) -> Deployment:
    known: dict[str, object] = {"requested_by": "test", "launchers": control.launchers}
    return actions.deploy(control.settings, "p", **{**known, **more})  # type: ignore[arg-type]


def observe(control: Control, generation: int, **more: float) -> Observation:
    return actions.observe(control.settings, "p", generation, launchers=control.launchers, **more)


def stop(control: Control, **more: object) -> Observation:
    return actions.stop(control.settings, "p", requested_by="test", launchers=control.launchers, **more)  # type: ignore[arg-type]


def paths(control: Control) -> PipelinePaths:
    return PipelinePaths.of(control.settings, "p")


def drivers(control: Control) -> list[psutil.Process]:
    """Every driver of this home that lives."""
    found = []
    for process in psutil.process_iter():
        with_home = {"DELTAWORKS_HOME": str(control.settings.home)}
        try:
            if (
                "tests.integration.control.fake_driver" in process.cmdline()
                and with_home.items() <= process.environ().items()
            ):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if not is_gone(process)]


def pid_of(deployment: Deployment) -> int:
    assert deployment.external_id is not None
    return int(deployment.external_id["pid"])


def without_registry(control: Control) -> Control:
    """The same home, while PostgreSQL is away."""
    nowhere = f"postgresql+psycopg://deltaworks@127.0.0.1:{free_ports(1)[0]}/deltaworks"
    return replace(control, settings=replace(control.settings, control_url=nowhere))


def started(control: Control, script: str, *arguments: str) -> subprocess.Popen[str]:
    """Another process with the same settings."""
    env = {**os.environ, **control.settings.environment()}
    return subprocess.Popen([sys.executable, "-c", script, *arguments], env=env, stdout=subprocess.PIPE, text=True)


@contextmanager
def unregistered_driver(control: Control, generation: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver that nobody launched: as it looks to a host that cannot see its process."""
    command = [
        sys.executable,
        "-m",
        "tests.integration.control.fake_driver",
        "run",
        "p",
        "--generation",
        str(generation),
    ]
    env = {**os.environ, **control.settings.environment()}
    with subprocess.Popen([*command, *options], env=env, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_deployment_runs_and_is_in_the_book(control: Control) -> None:
    done = deploy(control, options=DeployOptions(start_offsets="latest"), request_id="r1")

    assert (done.generation, done.state, done.request_id, done.requested_by) == (1, "running", "r1", "test")
    assert done.options.start_offsets == "latest"
    assert [process.pid for process in drivers(control)] == [pid_of(done)]
    assert os.getsid(pid_of(done)) == pid_of(done)
    entry = processes.find(control.settings.run, "p")
    assert entry is not None and entry.kind == "pipeline"
    seen = observe(control, 1)
    assert (seen.state, seen.reason, seen.log_lines) == ("running", None, [])
    assert seen.heartbeat is not None and seen.heartbeat.generation == 1
    until(lambda: control.registry.known("p", 0).beat)


def test_a_driver_inherits_no_secret_and_nothing_of_airflow(control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    done = deploy(control)

    environment = psutil.Process(pid_of(done)).environ()
    assert "secret" not in environment.values()
    assert environment["TZ"] == "Europe/Berlin"
    assert environment["DELTAWORKS_HOME"] == str(control.settings.home)


def test_a_second_deployment_drains_the_first(control: Control) -> None:
    first = deploy(control)
    second = deploy(control)

    assert (second.generation, second.state) == (2, "running")
    assert [process.pid for process in drivers(control)] == [pid_of(second)]
    seen = observe(control, 1)
    assert (seen.state, seen.reason, seen.exit_code) == ("superseded", "generation 2 has taken over", exits.OK)
    old = control.registry.deployment("p", first.generation)
    assert old is not None and old.state == "superseded" and old.exit_code == exits.OK
    numbers = [record.batch for record in batches.read(paths(control).batches)]
    assert numbers == list(range(len(numbers))), "the second went on where the first stopped"


def test_two_deployments_at_the_same_time_leave_one_driver(control: Control) -> None:
    both = [started(control, DEPLOY, "") for _ in range(2)]
    said = [process.communicate(timeout=60)[0].strip() for process in both]

    assert [process.returncode for process in both] == [0, 0]
    assert sorted(said) == ["1", "2"]
    assert len(drivers(control)) == 1
    assert observe(control, 1).state == "superseded"
    assert observe(control, 2).state == "running"
    assert fence.read(paths(control).fence) == 2
    until(lambda: (beat := control.registry.known("p", 0).beat) and beat.generation == 2)
    copied = control.registry.batches("p", fake_driver.QUERY_ID)
    assert [record.batch for record in copied] == list(range(len(copied)))


def test_a_suspended_driver_is_replaced_at_once(control: Control) -> None:
    first = deploy(control)
    os.kill(pid_of(first), signal.SIGSTOP)
    begun = time.monotonic()

    second = deploy(control)

    assert time.monotonic() - begun < 30, "it did not wait for a drain that cannot come"
    assert [process.pid for process in drivers(control)] == [pid_of(second)]
    assert observe(control, 1).state == "superseded"
    killed = outcome.read(paths(control).outcome(1))
    assert killed is not None and killed.reason is not None and "generation 2 replaces it" in killed.reason


def test_a_driver_that_does_not_drain_is_killed(control: Control) -> None:
    stubborn = control.with_driver("--ignore-drain")
    deploy(stubborn)

    second = deploy(control, drain_s=0.5)

    assert [process.pid for process in drivers(control)] == [pid_of(second)]


def suspend_between_writes(pid: int, fence_file: Path) -> None:
    """Suspends a driver at a moment at which it does not keep newer generations out."""
    process, lock_file = psutil.Process(pid), fence_file.with_name(f"{fence_file.name}.lock")
    while True:
        process.suspend()
        until(lambda: process.status() == psutil.STATUS_STOPPED)
        with lock_file.open("r+b") as file:
            if files.lock(file, patience_s=0.0):
                return
        process.resume()


def test_a_zombie_that_wakes_up_can_write_nothing(control: Control) -> None:
    """Its host could not end it, and its lock did not keep the next one out: a network drive, say."""
    with unregistered_driver(control, 1, "--no-lease") as zombie:
        until(
            lambda: (beat := control.registry.known("p", 0).beat) and beat.generation == 1 and beat.state == "running"
        )
        suspend_between_writes(zombie.pid, paths(control).fence)
        second = deploy(control)
        until(
            lambda: (beat := control.registry.known("p", 0).beat) and beat.generation == 2 and beat.state == "running"
        )
        written = {record.batch: record for record in batches.read(paths(control).batches)}

        os.kill(zombie.pid, signal.SIGCONT)
        assert zombie.wait(30) == exits.LEASE

    assert second.generation == 2
    beat = heartbeat.read(paths(control).heartbeat)
    assert beat is not None and beat.generation == 2
    assert control.registry.known("p", 0).beat.generation == 2  # type: ignore[union-attr]
    now = {record.batch: record for record in batches.read(paths(control).batches)}
    assert {batch: now[batch] for batch in written} == written
    assert observe(control, 1).state == "superseded"
    assert observe(control, 2).state == "running"


def test_the_same_request_again_is_the_same_deployment(control: Control) -> None:
    first = deploy(control, request_id="run-1")
    again = deploy(control, request_id="run-1")
    another = deploy(control, request_id="run-2")

    assert again.generation == first.generation == 1
    assert again.external_id == first.external_id
    assert another.generation == 2
    assert deploy(control, request_id="run-1").state == "superseded"
    assert len(drivers(control)) == 1


def test_a_request_goes_on_where_a_killed_process_was(control: Control) -> None:
    slow = control.with_driver("--slow-start", "2")
    script = DEPLOY.replace("Control(settings).launchers", "Control(settings, ('--slow-start', '2')).launchers")
    killed = started(control, script, "run-1")
    until(lambda: processes.find(control.settings.run, "p"))  # a driver is found once it is registered
    killed.kill()
    killed.communicate()
    (driver,) = drivers(control)

    done = deploy(slow, request_id="run-1")

    assert (done.generation, done.state, pid_of(done)) == (1, "running", driver.pid)
    assert drivers(control) == [driver]


def test_a_driver_that_fails_says_why(control: Control) -> None:
    broken = control.with_driver("--fail", str(exits.CONFIG))

    with pytest.raises(StackError) as raised:
        deploy(broken, request_id="run-1")

    assert "Pipeline 'p', generation 1, did not start: it was told to fail" in str(raised.value)
    assert f"Hint: tell it otherwise; see the full log in {control.settings.logs / 'p.log'}" in str(raised.value)
    assert raised.value.log == ("ValueError: it was told to fail",)
    seen = observe(control, 1)
    assert (seen.state, seen.exit_code, seen.reason) == (
        "failed",
        exits.CONFIG,
        "it was told to fail\n  Hint: tell it otherwise",
    )
    assert seen.log_lines == ["ValueError: it was told to fail"]
    with pytest.raises(StackError, match="it was told to fail"):
        deploy(broken, request_id="run-1")
    assert drivers(control) == []


def test_only_the_lines_of_its_own_generation_explain_an_end(control: Control) -> None:
    with pytest.raises(StackError):
        deploy(control.with_driver("--fail", str(exits.DATA)))
    done = deploy(control)
    os.kill(pid_of(done), signal.SIGKILL)
    until(lambda: observe(control, 2).state == "dead")

    assert observe(control, 2).log_lines == []
    assert observe(control, 2).exit_code is None


def test_a_driver_without_heartbeat_is_given_up_and_ended(control: Control) -> None:
    mute = [
        sys.executable,
        "-c",
        "import time; print('hello', flush=True); time.sleep(600)",
        "fake",
        "--generation",
        "1",
    ]

    with pytest.raises(StackError, match="no heartbeat"):
        deploy(
            control, launch_s=0.5, launchers=lambda settings, name: LocalLauncher(settings, command=lambda spec: mute)
        )

    entry = processes.find(control.settings.run, "p")
    assert entry is None or not entry.members()


def test_who_expects_a_generation_that_is_not_the_latest_gets_nothing(control: Control) -> None:
    deploy(control)

    with pytest.raises(ConflictError, match="Generation 1 of pipeline 'p' is running"):
        deploy(control, expected_generation=1)
    with pytest.raises(ConflictError, match=r"Generation 7 .* no longer the latest: 1 is"):
        deploy(control, expected_generation=7)

    assert len(drivers(control)) == 1
    assert fence.read(paths(control).fence) == 1


def test_a_restart_that_was_claimed_before_somebody_stopped_it_does_not_happen(control: Control) -> None:
    done = deploy(control)
    os.kill(pid_of(done), signal.SIGKILL)
    stop(control)

    with pytest.raises(ConflictError, match="was stopped meanwhile"):
        deploy(control, expected_generation=1)


def test_an_unknown_pipeline_or_launcher_is_refused(control: Control) -> None:
    with pytest.raises(ConfigurationError) as raised:
        actions.deploy(control.settings, "q", requested_by="test")
    assert raised.value.hint == "pipelines here: p"

    with pytest.raises(ConfigurationError) as raised:
        actions.deploy(control.settings, "p", DeployOptions(launcher="moon"), requested_by="test")
    assert raised.value.hint == "launchers: local"
    assert control.registry.pipelines() == []


def test_stop_drains(control: Control) -> None:
    deploy(control)
    said: list[str] = []

    seen = stop(control, report=said.append)

    assert (seen.generation, seen.state, seen.exit_code) == (1, "stopped", exits.OK)
    assert said[-1] == "drained"
    assert drivers(control) == []
    assert control.registry.pipeline("p").desired == "stopped"  # type: ignore[union-attr]
    assert control.registry.deployment("p", 1).state == "stopped"  # type: ignore[union-attr]
    assert processes.find(control.settings.run, "p") is None
    assert lease.read_holder(paths(control).lease) is None
    stop(control, report=said.append)
    assert said[-1] == "was not running"


def test_stop_ends_a_driver_that_does_not_listen(control: Control) -> None:
    done = deploy(control.with_driver("--ignore-drain"))
    os.kill(pid_of(done), signal.SIGSTOP)

    seen = stop(control)

    assert seen.state == "stopped"
    assert seen.reason is not None and "stopped by test" in seen.reason
    assert drivers(control) == []


def test_stop_works_without_the_registry(control: Control) -> None:
    deploy(control)
    away = without_registry(control)
    said: list[str] = []

    assert stop(away, report=said.append).state == "stopped"

    assert any("does not answer" in line for line in said)
    assert drivers(control) == []
    with pytest.raises(ControlUnavailableError):
        deploy(away)


def test_stop_ends_a_run_in_the_foreground(control: Control) -> None:
    with unregistered_driver(control, 1) as driver:
        until(lambda: observe(control, 1).state == "running")

        assert stop(control).state == "stopped"

        assert driver.wait(10) == exits.OK


def test_stop_during_a_deployment_wins(control: Control) -> None:
    slow = control.with_driver("--slow-start", "60")
    with ThreadPoolExecutor(1) as pool:
        deploying = pool.submit(deploy, slow)
        until(lambda: drivers(control))

        seen = stop(slow, timeout_s=0.2)

        with pytest.raises(ConflictError, match="was stopped while generation 1 was starting"):
            deploying.result(10)
    assert seen.state == "stopped"
    assert drivers(control) == []


def test_restart_keeps_the_options(control: Control) -> None:
    deploy(control, options=DeployOptions(trigger_interval_s=5.0))

    again = actions.restart(control.settings, "p", requested_by="test", launchers=control.launchers)

    assert (again.generation, again.options.trigger_interval_s) == (2, 5.0)
    assert len(drivers(control)) == 1


def edit(control: Control, text: str) -> None:
    job = control.settings.project / "jobs" / "p.py"
    job.write_text(job.read_text() + text)


def runs_from(deployment: Deployment) -> Path:
    """The folder that a driver's own `deltaworks` comes from."""
    assert deployment.external_id is not None
    environment = psutil.Process(deployment.external_id["pid"]).environ()
    first, *_ = environment["PYTHONPATH"].split(os.pathsep)
    assert first == environment["DELTAWORKS_CODE"] and environment["PYTHONSAFEPATH"] == "1"
    return Path(first)


def test_a_restart_keeps_the_code_and_a_deployment_takes_the_new_one(control: Control) -> None:
    first = deploy(control)
    edit(control, "raise SystemExit('an edit that nobody has deployed')\n")
    again = actions.restart(control.settings, "p", requested_by="test", launchers=control.launchers)

    assert first.code is not None and again.code == first.code
    assert runs_from(again) == control.settings.archives / first.code
    assert retention.code_of(paths(control), again.generation) == first.code

    new = deploy(control)
    assert new.code not in (None, first.code)
    assert "SystemExit" in (runs_from(new) / "jobs" / "p.py").read_text()


def test_until_its_launch_a_deployment_may_have_the_code_of_before(control: Control) -> None:
    """As when a checkpoint is switched: whoever restarts what was broken off before runs what ran before."""
    first = deploy(control)
    edit(control, "NEW = True\n")
    seen: list[str | None] = []

    def broken_off(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deploy(control, runs=code.archive(control.settings), until_launch=first, before_launch=broken_off)
    (latest,) = control.registry.deployments("p", limit=1)
    assert (latest.generation, latest.code) == (first.generation + 1, first.code)
    restarted = actions.restart(control.settings, "p", requested_by="test", launchers=control.launchers)
    assert runs_from(restarted).name == first.code

    def look(_: int) -> None:
        seen.append(control.registry.deployments("p", limit=1)[0].code)

    runs = code.archive(control.settings)
    done = deploy(control, runs=runs, until_launch=restarted, before_launch=look)
    assert seen == [first.code]
    assert (runs_from(done).name, control.registry.deployments("p", limit=1)[0].code) == (runs.digest, runs.digest)


def test_the_same_request_again_runs_the_code_that_it_had(control: Control) -> None:
    first = deploy(control, request_id="r")
    edit(control, "# later\n")

    assert deploy(control, request_id="r").code == first.code


def test_a_restart_whose_archive_is_gone_is_refused_and_leaves_what_runs(control: Control) -> None:
    first = deploy(control)
    assert first.code is not None
    shutil.rmtree(control.settings.archives / first.code)

    with pytest.raises(IncompatibleCheckpointError, match=r"is gone.*\n.*deltaworks deploy"):
        actions.restart(control.settings, "p", requested_by="test", launchers=control.launchers)
    assert observe(control, first.generation).state == "running"


def test_archives_that_no_generation_names_go_with_a_deployment(control: Control) -> None:
    unused = code.archive(control.settings)
    os.utime(unused.path / "manifest.json", (1, 1))
    edit(control, "# changed\n")

    deploy(control)

    assert not unused.path.exists()


def test_who_says_so_runs_from_the_source(control: Control) -> None:
    source = replace(control, settings=replace(control.settings, run_from="source"))
    deployed = deploy(source)

    assert deployed.code is None and not list(control.settings.archives.glob("*"))
    assert "DELTAWORKS_CODE" not in drivers(control)[0].environ()


def test_what_was_never_deployed_cannot_be_restarted(control: Control) -> None:
    with pytest.raises(ConfigurationError, match="was never deployed"):
        actions.restart(control.settings, "p", requested_by="test")


def test_a_look_tells_dead_stalled_and_unknown_apart_also_without_the_registry(control: Control) -> None:
    done = deploy(control)
    away = without_registry(control)
    assert observe(away, 1).state == "running"

    os.kill(pid_of(done), signal.SIGSTOP)
    until(lambda: observe(control, 1, stalled_after_s=0.3).state == "stalled")
    assert observe(away, 1, stalled_after_s=0.3).state == "stalled"
    assert observe(control, 1).state == "running", "a short pause is nothing"

    os.kill(pid_of(done), signal.SIGKILL)
    until(lambda: observe(control, 1).state == "dead")
    seen = observe(away, 1)
    assert (seen.state, seen.exit_code) == ("dead", None)
    assert seen.reason == "its process was killed, or crashed without leaving a reason"
    assert observe(away, 9).state == "unknown"


def test_a_deployment_that_was_broken_off_before_the_launch_is_dead(control: Control) -> None:
    with control.registry.deploying("p"):
        control.registry.allocate(
            "p", DeployOptions(), above=0, request_id=None, requested_by="t", log="l", healing=False
        )
        assert observe(control, 1).state == "launching"

    assert observe(control, 1).state == "dead"


def test_a_driver_survives_whoever_launched_it(control: Control) -> None:
    launcher = started(control, DEPLOY, "")
    assert launcher.communicate(timeout=60)[0].strip() == "1"

    seen = observe(control, 1)

    assert seen.state == "running"
    assert seen.heartbeat is not None and psutil.Process(seen.heartbeat.pid).ppid() != launcher.pid


def test_a_fork_does_not_use_the_connections_of_its_parent(control: Control) -> None:
    assert control.registry.pipelines() == []
    child = os.fork()
    if child == 0:
        try:
            assert control.registry.pipelines() == []
            registry.close()
        except BaseException:
            os._exit(1)
        os._exit(0)

    assert os.waitpid(child, 0)[1] == 0
    assert control.registry.pipelines() == []
