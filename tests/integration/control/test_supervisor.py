"""The supervisor as a process that is killed, asked wrongly and replaced; with real drivers but for Spark."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import psutil
import pytest

from deltaworks import processes
from deltaworks.control import actions, registry
from deltaworks.control.launchers import Launcher, LocalLauncher
from deltaworks.control.lease import ProcessId
from deltaworks.control.model import Deployment, DeployOptions, PipelineStatus
from deltaworks.control.overview import overview
from deltaworks.control.supervisor import address, client, messages
from deltaworks.control.supervisor.address import Address
from deltaworks.control.supervisor.keeping import SOON_S
from deltaworks.control.supervisor.messages import AskAbout, Envelope, Hello, Launch, Leave, Refused
from deltaworks.errors import StackError
from deltaworks.settings import Settings
from tests.integration.control import fake_driver
from tests.integration.control.conftest import Control, ended, project, running
from tests.integration.control.test_actions import drivers, observe, pid_of, stop
from tests.support.polling import until


@dataclass(frozen=True)
class Supervised(Control):
    """A project whose drivers the supervisor starts."""

    def launchers(self, settings: Settings, name: str) -> Launcher:
        return LocalLauncher(settings, fake_driver.command(*self.driver_options), partial(client.launch, settings))

    def deploy(self, **more: object) -> Deployment:
        known: dict[str, object] = {"requested_by": "test", "launchers": self.launchers}
        return actions.deploy(self.settings, "p", **{**known, **more})  # type: ignore[arg-type]

    def latest(self) -> Deployment:
        return self.registry.deployments("p", limit=1)[0]

    def until_running(self, generation: int) -> Deployment:
        """Waits for that generation, which must be the latest one then."""
        until(lambda: (self.latest().generation, self.latest().state) == (generation, "running"))
        return self.latest()


@contextmanager
def supervisor(control: Control, *driver_options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor that listens. It is killed in the end."""
    command = [sys.executable, "-m", "tests.integration.control.fake_supervisor", *driver_options]
    log = client.log_of(control.settings)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=control.settings.process_environment(), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        until(lambda: listener(control) == process.pid or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        process.kill()
        process.wait()


def listener(control: Control) -> int | None:
    found = address.read(control.settings.run)
    return found.process.pid if found is not None and client.answers(control.settings) else None


@pytest.fixture
def supervised(control: Control) -> Supervised:
    return Supervised(control.settings, ("--commits",))


def test_a_driver_that_dies_is_started_again_and_how_it_died_is_known(supervised: Supervised) -> None:
    with supervisor(supervised, "--commits") as process:
        first = supervised.deploy()
        assert psutil.Process(pid_of(first)).ppid() == process.pid
        os.kill(pid_of(first), signal.SIGKILL)

        second = supervised.until_running(2)

        assert second.requested_by.startswith("supervisor")
        ended = supervised.registry.deployment("p", 1)
        assert ended is not None
        assert (ended.state, ended.reason) == ("failed", "its process was killed (SIGKILL)")
        assert [driver.pid for driver in drivers(supervised)] == [pid_of(second)]


def test_many_deaths_between_batches_are_no_crash_loop(supervised: Supervised) -> None:
    with supervisor(supervised, "--commits"):
        pid = pid_of(supervised.deploy())
        for generation in range(2, 8):
            until(partial(has_committed, supervised, generation - 1))
            os.kill(pid, signal.SIGKILL)
            pid = pid_of(supervised.until_running(generation))

        record = supervised.registry.pipeline("p")
        assert record is not None
        assert record.gave_up is None


def pid_of_running(control: Control) -> int:
    entry = processes.find(control.settings.run, "p")
    assert entry is not None and entry.alive
    return entry.pid


def has_committed(control: Control, generation: int) -> bool:
    beat = observe(control, generation).heartbeat
    return beat is not None and beat.batch_id is not None


def test_a_driver_that_says_that_no_restart_helps_is_given_up(supervised: Supervised) -> None:
    with supervisor(supervised, "--fail", "78"):
        driver = pid_of(supervised.deploy())
        os.kill(driver, signal.SIGKILL)

        until(lambda: supervised.registry.pipeline("p").gave_up)  # type: ignore[union-attr]

        assert supervised.latest().generation == 2
        assert drivers(supervised) == []


def test_a_stream_that_is_stopped_stays_stopped(supervised: Supervised) -> None:
    with supervisor(supervised):
        supervised.deploy()
        assert stop(supervised).state == "stopped"
        until(lambda: supervised.latest().state == "stopped")

        assert drivers(supervised) == []
        assert supervised.latest().generation == 1


def test_drivers_survive_a_killed_supervisor_and_the_next_one_adopts_them(supervised: Supervised) -> None:
    with supervisor(supervised) as first:
        driver = pid_of(supervised.deploy())
        first.kill()
        first.wait()
    assert not client.answers(supervised.settings)
    assert [process.pid for process in drivers(supervised)] == [driver]

    with supervisor(supervised):
        os.kill(driver, signal.SIGKILL)

        supervised.until_running(2)


def test_what_died_while_there_was_no_supervisor_is_started_by_the_next_one(supervised: Supervised) -> None:
    with supervisor(supervised):
        driver = pid_of(supervised.deploy())
    os.kill(driver, signal.SIGKILL)

    with supervisor(supervised):
        supervised.until_running(2)


def test_a_restart_that_a_killed_supervisor_had_begun_is_finished_by_the_next_one(supervised: Supervised) -> None:
    with supervisor(supervised, "--slow-start", "3") as first:
        driver = pid_of(supervised.deploy())
        os.kill(driver, signal.SIGKILL)
        until(lambda: supervised.latest().generation == 2 and supervised.latest().external_id is not None)
        begun = supervised.latest()
        first.kill()

    with supervisor(supervised):
        second = supervised.until_running(2)

        assert pid_of(second) == pid_of(begun)
        assert [process.pid for process in drivers(supervised)] == [pid_of(begun)]


@pytest.mark.parametrize("before", ["claimed", "allocated"])
def test_a_supervisor_killed_before_the_launch_has_begun_nothing_that_lasts(
    supervised: Supervised, before: str
) -> None:
    with supervisor(supervised):
        driver = pid_of(supervised.deploy())
    os.kill(driver, signal.SIGKILL)
    by = f"supervisor at {socket.gethostname()}"
    assert supervised.registry.claim("p", 1, "restart", by, restarts=0)
    if before == "allocated":
        supervised.registry.allocate(
            "p",
            DeployOptions(),
            above=1,
            request_id="restart of generation 1",
            requested_by=by,
            log=str(supervised.settings.logs / "p.log"),
            healing=True,
        )

    with supervisor(supervised):
        supervised.until_running(2)


def test_the_supervisor_of_a_container_stops_the_drivers_first(supervised: Supervised) -> None:
    with supervisor(supervised, client.DRAIN) as process:
        supervised.deploy()
        process.terminate()

        assert process.wait(20) == 0

        assert drivers(supervised) == []
        assert observe(supervised, 1).state == "stopped"
        assert supervised.latest().generation == 1
    with supervisor(supervised):
        supervised.until_running(2)


def test_the_latest_supervisor_takes_over_and_the_drivers_go_on(supervised: Supervised) -> None:
    with supervisor(supervised) as first:
        driver = pid_of(supervised.deploy())
        with supervisor(supervised) as second:
            assert first.wait(10) == 0
            assert listener(supervised) == second.pid
            assert [process.pid for process in drivers(supervised)] == [driver]


def test_one_that_is_started_in_need_leaves_another_one_where_it_is(supervised: Supervised) -> None:
    with supervisor(supervised) as first:
        command = [sys.executable, "-m", "tests.integration.control.fake_supervisor", client.IF_NONE]
        second = subprocess.run(command, env=supervised.settings.process_environment(), timeout=30, check=False)

        assert second.returncode == 0
        assert listener(supervised) == first.pid


def test_while_the_registry_is_away_what_dies_is_started_again(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="deltaworks-tests-") as folder, running(Path(folder)) as server:
        settings = project(tmp_path / "project", server.new_database())
        registry.migrate(settings)
        supervised = Supervised(settings, ("--commits",))
        with ended(settings), supervisor(supervised, "--commits") as process:
            driver = pid_of(supervised.deploy())
            until(lambda: has_committed(supervised, 1))
            time.sleep(2 * SOON_S)  # it has looked since
            server.kill()
            os.kill(driver, signal.SIGKILL)
            until(lambda: has_committed(supervised, 2))
            again = pid_of_running(supervised)
            os.kill(again, signal.SIGKILL)
            until(lambda: has_committed(supervised, 3))
            assert process.poll() is None
            server.start()
            until(lambda: "the registry is back" in client.log_of(settings).read_text())
            third = pid_of_running(supervised)
            assert [driver.pid for driver in drivers(supervised)] == [third], "what runs is left alone"

            os.kill(third, signal.SIGKILL)
            supervised.until_running(4)

            assert stop(supervised).state == "stopped"
            assert drivers(supervised) == []


def test_what_was_stopped_while_the_registry_was_away_stays_stopped(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="deltaworks-tests-") as folder, running(Path(folder)) as server:
        settings = project(tmp_path / "project", server.new_database())
        registry.migrate(settings)
        supervised = Supervised(settings)
        with ended(settings), supervisor(supervised):
            supervised.deploy()
            server.kill()
            stop(supervised)
            until(lambda: client.log_of(settings).read_text().count("process ") >= 1)
            assert drivers(supervised) == []
            server.start()
            until(lambda: supervised.registry.pipeline("p").desired == "stopped")  # type: ignore[union-attr]
            assert drivers(supervised) == []


def test_it_is_started_where_none_answers_once(supervised: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MODULE", "tests.integration.control.fake_supervisor")
    client.ensure(supervised.settings)
    first = listener(supervised)
    client.ensure(supervised.settings)

    assert listener(supervised) == first
    entry = processes.find(supervised.settings.run, client.NAME)
    assert entry is not None
    assert entry.pid == first
    assert client.leave(supervised.settings)
    until(lambda: processes.find(supervised.settings.run, client.NAME) is None)
    assert address.read(supervised.settings.run) is None


def test_one_that_cannot_start_says_why(supervised: Supervised, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MODULE", "tests.integration.no_such_module")

    with pytest.raises(StackError, match="No supervisor answers") as raised:
        client.ensure(supervised.settings)

    assert "no_such_module" in str(raised.value)


def test_a_driver_of_another_machine_is_asked_about_and_told_through_the_supervisor(supervised: Supervised) -> None:
    """As Airflow sees it from another container, which shares the home and nothing else."""
    with supervisor(supervised):
        driver = supervised.deploy().external_id
        assert driver is not None
        found, there = address.read(supervised.settings.run), driver | {"host": "elsewhere"}
        assert found is not None
        local = LocalLauncher(supervised.settings)
        assert local.status(there) == "gone"
        address.write(supervised.settings.run, msgspec.structs.replace(found, machine="elsewhere"))
        assert local.status(there) == "gone", "that machine says so: the host of this driver is another one's"

        asked_there = partial(client.ask, supervised.settings)
        assert asked_there(AskAbout("status", driver)).fact == "alive"
        assert asked_there(AskAbout("suspended", driver)).fact is False
        asked_there(AskAbout("kill", driver))
        assert asked_there(AskAbout("status", driver)).fact == "ended"


def test_it_says_how_the_streams_are_to_who_means_the_same_registry(supervised: Supervised) -> None:
    settings = supervised.settings
    assert client.overview(settings) is None
    with supervisor(supervised):
        supervised.deploy()
        supervised.until_running(1)

        seen, expected = client.overview(settings, "p"), overview(settings, "p", launchers=supervised.launchers)

        assert seen is not None
        assert (seen.deployments, seen.registry_problem) == (expected.deployments, None)
        assert as_it_is(seen.pipelines) == as_it_is(expected.pipelines) == [("p", "running", "running", 1, 0)]
        assert client.overview(replace(settings, control_url="postgresql+psycopg://elsewhere/x")) is None


def as_it_is(pipelines: list[PipelineStatus]) -> list[tuple[object, ...]]:
    """Without what changes from look to look."""
    return [(each.name, each.desired, each.seen.state, each.seen.generation, each.restarts) for each in pipelines]


def test_who_does_not_know_the_token_is_refused(supervised: Supervised, tmp_path: Path) -> None:
    with supervisor(supervised):
        found = address.read(supervised.settings.run)
        assert found is not None
        assert (supervised.settings.run / "supervisor.address").stat().st_mode & 0o077 == 0
        launch = Launch(name="q", kind="pipeline", command=("/bin/sleep", "9"), log=str(tmp_path / "l"), environment={})
        for question in (Hello(), Leave(), launch):
            assert isinstance(asked(found, Envelope("wrong", question)), Refused)
        for nonsense in (b"\n", b"{}\n", b"\xff\xfe\n", b'{"token": 1}\n', b"GET / HTTP/1.1\r\n"):
            assert isinstance(asked(found, nonsense), Refused), nonsense

        assert listener(supervised) == found.process.pid
        assert processes.find(supervised.settings.run, "q") is None


def test_silence_does_not_keep_it_from_answering_others(supervised: Supervised) -> None:
    with supervisor(supervised):
        found = address.read(supervised.settings.run)
        assert found is not None
        silent = [socket.create_connection((found.host, found.port)) for _ in range(8)]
        try:
            assert listener(supervised) == found.process.pid
        finally:
            for connection in silent:
                connection.close()


def test_an_address_of_another_version_or_cut_off_is_none(supervised: Supervised) -> None:
    run = supervised.settings.run
    mine = Address(host="127.0.0.1", port=1, token="t", process=ProcessId.of(os.getpid()), machine=socket.gethostname())
    address.write(run, mine)
    assert address.read(run) == mine
    whole = (run / "supervisor.address").read_bytes()
    for content in (b"", whole[:20], msgspec.json.encode(msgspec.structs.replace(mine, format=2))):
        (run / "supervisor.address").write_bytes(content)
        assert address.read(run) is None
        assert not client.answers(supervised.settings)


def asked(found: Address, message: Envelope | bytes) -> messages.Answer:
    with socket.create_connection((found.host, found.port), timeout=10) as connection:
        if isinstance(message, bytes):
            connection.sendall(message)
        else:
            messages.send(connection, message)
        answer: messages.Answer = msgspec.json.decode(messages.receive(connection), type=messages.Answer)
        return answer
