"""The local launcher, with real processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deltaworks import processes
from deltaworks.control.launchers import NAMES, DriverSpec, LocalLauncher, launcher
from deltaworks.control.launchers.local import driver_command
from deltaworks.control.lease import ProcessId
from deltaworks.control.model import DeployOptions
from deltaworks.control.preflight import preflight
from deltaworks.control.supervisor import address, client
from deltaworks.control.supervisor.address import Address
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.exits import NO_RESTART, code_of
from deltaworks.kafka import admin
from deltaworks.settings import Settings

SLEEP = "import os, time; print(*sorted(os.environ), flush=True); time.sleep(600)"


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    settings = replace(Settings.from_environment({}, cwd=tmp_path), path=(Path("/usr/bin"),))
    yield settings
    for entry in processes.registered(settings.run):
        processes.stop(settings.run, entry, timeout_s=0.0)


def spec(settings: Settings, generation: int = 1) -> DriverSpec:
    return DriverSpec(pipeline="p", generation=generation, options=DeployOptions(), log=settings.logs / "p.log")


def sleeping(settings: Settings) -> LocalLauncher:
    return LocalLauncher(settings, lambda s: [sys.executable, "-c", SLEEP, "--generation", str(s.generation)])


def first_line(log: Path) -> str:
    for _ in range(1_000):
        if log.read_text().endswith("\n"):
            return log.read_text()
        time.sleep(0.01)
    raise AssertionError("it said nothing")


def test_a_driver_is_started_found_suspended_and_killed(settings: Settings) -> None:
    local = sleeping(settings)
    driver = local.submit(spec(settings))
    first_line(settings.logs / "p.log")

    assert local.status(driver) == "alive"
    assert local.drivers("p")[1].items() <= driver.items()
    assert local.drivers("q") == {}
    assert not local.suspended(driver)
    os.kill(driver["pid"], signal.SIGSTOP)
    while psutil.Process(driver["pid"]).status() != psutil.STATUS_STOPPED:
        pass
    assert local.suspended(driver)
    local.kill(driver)
    assert local.status(driver) == "ended"
    assert local.drivers("p") == {}


def test_the_same_generation_is_not_started_twice(settings: Settings) -> None:
    local = sleeping(settings)
    first = local.submit(spec(settings))

    assert local.submit(spec(settings))["pid"] == first["pid"]


def test_a_stop_request_is_a_sigterm(settings: Settings) -> None:
    local = sleeping(settings)
    driver = local.submit(spec(settings))
    first_line(settings.logs / "p.log")
    local.request_stop(driver)
    psutil.wait_procs([process for process in psutil.process_iter() if process.pid == driver["pid"]], timeout=10)

    assert local.status(driver) == "ended"
    local.request_stop(driver)


def test_killing_an_old_driver_leaves_the_registration_of_a_new_one(settings: Settings) -> None:
    local = sleeping(settings)
    old = local.submit(spec(settings))
    new = local.submit(spec(settings, 2))

    local.kill(old)

    assert local.status(new) == "alive"
    assert list(local.drivers("p")) == [2]


def test_another_hosts_driver_is_not_judged_by_our_processes(settings: Settings) -> None:
    local = sleeping(settings)
    elsewhere = local.submit(spec(settings)) | {"host": "elsewhere"}

    assert local.status(elsewhere) == "gone"
    local.kill(elsewhere)
    assert list(local.drivers("p")) == [1], "it still runs"


def test_the_command_of_a_driver_carries_the_options(settings: Settings) -> None:
    options = DeployOptions(trigger_interval_s=0.5, start_offsets="latest")

    command = driver_command(replace(spec(settings, 7), options=options))

    assert command[1:] == [
        *("-m", "deltaworks.cli", "run", "p", "--generation", "7"),
        *("--trigger-interval", "0.5", "--start-offsets", "latest"),
    ]


class Elsewhere:
    """The settings of a process that may run on any machine, and the supervisor that its home announces."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
        self.settings = replace(settings, supervisor="elsewhere")
        self.local = LocalLauncher(self.settings)
        self._patch = monkeypatch.setattr

    def announces(self, host: str, *, answers: bool = True) -> None:
        self.settings.run.mkdir(parents=True, exist_ok=True)
        process = ProcessId.of(os.getpid())
        address.write(self.settings.run, Address(host=host, port=9, token="t", process=process, machine="m"))
        self._patch(client, "answers", lambda settings: answers)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Elsewhere:
    return Elsewhere(monkeypatch, settings)


def test_where_any_machine_may_deploy_a_supervisor_has_to_run_elsewhere(elsewhere: Elsewhere) -> None:
    with pytest.raises(StackError, match="none answers") as raised:
        elsewhere.local.check()
    assert "DELTAWORKS_SUPERVISOR_HOST" in str(raised.value.hint)

    elsewhere.announces("10.0.0.7", answers=False)
    with pytest.raises(StackError, match="none answers"):
        elsewhere.local.check()

    elsewhere.announces("10.0.0.7")
    elsewhere.local.check()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.53", "::1", "0.0.0.0", "localhost"])
def test_where_any_machine_may_deploy_an_address_of_one_machine_is_refused(elsewhere: Elsewhere, host: str) -> None:
    elsewhere.announces(host)

    with pytest.raises(StackError, match=f"the one on m listens on {host}"):
        elsewhere.local.check()


def test_a_preflight_refuses_it_before_it_asks_kafka(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "answers", lambda _: pytest.fail("Kafka was asked"))

    with pytest.raises(StackError, match="it needs a supervisor elsewhere"):
        preflight(elsewhere.settings, "orders", DeployOptions(), print)


def test_a_refusal_is_no_reason_to_give_a_stream_up(elsewhere: Elsewhere) -> None:
    with pytest.raises(StackError) as raised:
        elsewhere.local.check()
    assert code_of(raised.value) not in NO_RESTART


def test_where_any_machine_may_deploy_no_supervisor_is_started(
    elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_START_S", 0.0)

    with pytest.raises(StackError, match="No supervisor answers"):
        client.ensure(elsewhere.settings)
    assert processes.registered(elsewhere.settings.run) == []


def test_where_the_supervisor_may_be_started_here_none_has_to_run(settings: Settings) -> None:
    LocalLauncher(settings).check()


def test_an_unknown_launcher_is_refused_with_those_that_exist(settings: Settings) -> None:
    assert [type(launcher(settings, name)) for name in NAMES] == [LocalLauncher]
    with pytest.raises(ConfigurationError, match="'moon'") as raised:
        launcher(settings, "moon")
    assert raised.value.hint == "launchers: local"
