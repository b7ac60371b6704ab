"""Kafka Connect of the stack, as a client sees it that knows nothing but `access.toml`."""

from __future__ import annotations

import base64
import json
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from confluent_kafka import Producer

from deltaworks.config import Reference
from deltaworks.connect import Connector, FileSink, FileSource, planning
from deltaworks.connect.api import ConnectApi
from deltaworks.connect.file_streams import FILE_SINK
from deltaworks.connect.options import dead_letters_of
from deltaworks.connect.project import Loaded, load
from deltaworks.connect.values import text_of
from deltaworks.connectors import dead_letters, resends
from deltaworks.connectors.lags import lags_soon
from deltaworks.connectors.overview import overview
from deltaworks.connectors.supervision import Decision, supervise
from deltaworks.connectors.watch import watch
from deltaworks.control import registry
from deltaworks.control.connector_book import ConnectorBook
from deltaworks.control.incident_book import IncidentBook
from deltaworks.control.policy import RestartPolicy
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.kafka.admin import TopicSpec, create_topics, partition_counts
from deltaworks.kafka.clients import make
from deltaworks.pytest_plugin.live import own_settings
from deltaworks.settings import Settings
from deltaworks.stack import connect, connect_plugins, ports, postgres_server, source_postgres
from deltaworks.stack.lifecycle import Status, down, log_of, status, up
from deltaworks.topology.records import Coordinates
from tests.integration import connector_in_airflow, shown_of_connectors
from tests.integration.control.conftest import running as registry_server
from tests.support import polling
from tests.support.connect_rest import Rest
from tests.support.live_stack import await_restart, free_pair, kill_component, listening, read_all
from tests.support.secrecy import files_below, holding

TILL, VAULT = (f"s3cret-{secrets.token_hex(12)}" for _ in range(2))
"""Secrets of a connector: one in a variable of the workers, one in a file."""


@contextmanager
def own_home(*, secured: bool = False, plugins: tuple[str, ...] = ("file",)) -> Iterator[Settings]:
    """What lasts of it is short enough for every path, and gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        settings = own_settings(Path(folder) / "home", secured=secured)
        settings = replace(settings, connect_port=free_pair(), connect_plugins=plugins)
        try:
            yield settings
        finally:
            down(settings)


@pytest.fixture(scope="module")
def running() -> Iterator[Settings]:
    with own_home() as settings, pytest.MonkeyPatch.context() as variables:
        variables.setenv("DELTAWORKS_CONNECT_SHOP", "by-variable")
        variables.setenv("DELTAWORKS_CONNECT_TILL", TILL)
        assert up(settings, only=["connect"], tethered=True).started == ["kafka", "connect"]
        yield settings


def client(settings: Settings, node: int = 1) -> Rest:
    """With the login of the home, as the settings of somebody tell it who works there."""
    told = Settings.from_environment({"DELTAWORKS_HOME": str(settings.home)}, cwd=settings.home).values.table("connect")
    assert isinstance(told["password"], Reference)
    assert told["url"] == f"http://127.0.0.1:{connect.port(settings, 1)}"
    url = f"http://127.0.0.1:{connect.port(settings, node)}"
    return Rest(url, f"{told['username']}:{told['password'].read()}")


def process(settings: Settings, name: str = "connect") -> Status:
    return next(entry for entry in status(settings) if entry.name == name)


until = partial(polling.until, timeout_s=90)


def source(file: Path, topic: str, **others: str) -> dict[str, str]:
    """A connector that reads the lines of a file, each exactly once."""
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": topic,
        "exactly.once.support": "required",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "topic.creation.default.replication.factor": "-1",
        "topic.creation.default.partitions": "1",
        **others,
    }


def start(rest: Rest, name: str, config: dict[str, str]) -> None:
    answer = rest("POST", "/connectors", {"name": name, "config": config})
    assert answer.status == 201, answer
    until(lambda: rest.states(name) == ["RUNNING", "RUNNING"])


def append(file: Path, *lines: str) -> None:
    with file.open("a") as out:
        out.writelines(f"{line}\n" for line in lines)


def lines_of(settings: Settings, topic: str) -> list[str]:
    """What the topic holds that is committed."""
    if topic not in partition_counts(settings.cluster):
        return []
    return [(message.value() or b"").decode() for message in read_all(settings.cluster, topic)]


def test_lines_of_a_file_arrive_in_kafka(running: Settings, tmp_path: Path) -> None:
    rest = client(running)
    append(tmp_path / "in.txt", "one", "two")

    start(rest, "arrive", source(tmp_path / "in.txt", "arrived"))
    until(lambda: lines_of(running, "arrived") == ["one", "two"])
    append(tmp_path / "in.txt", "three")

    until(lambda: lines_of(running, "arrived") == ["one", "two", "three"])
    assert rest("GET", "/connectors").content == ["arrive"]
    plugins = {each["class"].rpartition(".")[2] for each in rest("GET", "/connector-plugins").content}
    assert plugins == {"FileStreamSourceConnector", "FileStreamSinkConnector"}
    assert rest("DELETE", "/connectors/arrive").status == 204


def test_whoever_does_not_know_the_password_gets_and_makes_nothing(running: Settings, tmp_path: Path) -> None:
    rest = client(running)
    config = source(tmp_path / "in.txt", "foreign")

    for login in (None, "deltaworks:wrong", "deltaworks:", f"admin:{connect.credentials(running).password}"):
        stranger = replace(rest, login=login)
        for path in ("/", "/health", "/connectors", "/connector-plugins", "/admin/loggers"):
            assert stranger("GET", path).status == 401, (login, path)
        assert stranger("POST", "/connectors", {"name": "foreign", "config": config}).status == 401
        assert stranger("PUT", "/connectors/foreign/config", config).status == 401
        # what workers tell each other needs a signature with the key of their session
        assert stranger("POST", "/connectors/foreign/tasks", [config]).status in (400, 403)
        assert stranger("PUT", "/connectors/foreign/fence").status in (400, 403)
    assert "foreign" not in rest("GET", "/connectors").content


def test_a_connector_refers_to_secrets_of_its_own_and_to_no_others(running: Settings, tmp_path: Path) -> None:
    rest = client(running)
    (running.connect / "secrets" / "shop.properties").write_text("topic=and-file\n")
    append(tmp_path / "in.txt", "one")
    reference = f"${{env:DELTAWORKS_CONNECT_SHOP}}-${{file:{running.connect}/secrets/shop.properties:topic}}"
    foreign = f"stolen-${{file:{running.connect}/login/users.properties:deltaworks}}"

    start(rest, "refer", source(tmp_path / "in.txt", reference))
    until(lambda: lines_of(running, "by-variable-and-file") == ["one"])
    assert rest("GET", "/connectors/refer/config").content["topic"] == reference

    rest("POST", "/connectors", {"name": "steal", "config": source(tmp_path / "in.txt", foreign)})
    until(lambda: "FAILED" in rest.states("steal"))
    assert not [topic for topic in partition_counts(running.cluster) if topic.startswith("stolen-")]
    for name in ("refer", "steal"):
        assert rest("DELETE", f"/connectors/{name}").status == 204


def test_it_listens_on_this_machine_only_and_nothing_shows_the_password(running: Settings) -> None:
    pid = process(running).pid
    password = connect.credentials(running).password

    where = {(address.removeprefix("::ffff:"), port) for address, port in listening(pid)}
    assert where == {("127.0.0.1", running.connect_port)}
    shown = [
        *psutil.Process(pid).cmdline(),
        *psutil.Process(pid).environ().values(),
        log_of(running, "connect").read_text(),
        (running.connect / "worker-1.properties").read_text(),
        running.connect_access_in(running.home).read_text(),
    ]
    assert not [text for text in shown if password in text]


def test_it_is_ready_for_the_password_of_its_home_only(running: Settings, tmp_path: Path) -> None:
    (tmp_path / "connect").mkdir()

    assert connect.answers(running, 1)
    assert not connect.answers(replace(running, home=tmp_path), 1)


def test_another_home_does_not_start_one_on_the_same_port(running: Settings) -> None:
    told = rf"Port {running.connect_port}, where connect should listen, is used by connect of the"
    with own_home() as other, pytest.raises(StackError, match=told):
        up(replace(other, connect_port=running.connect_port), only=["connect"], tethered=True)
    assert process(running).state == "ready"


def test_an_unknown_plugin_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with own_home(plugins=("oracle",)) as settings:
        with pytest.raises(ConfigurationError, match="Kafka Connect has no plugin 'oracle' here"):
            up(settings, only=["connect"], tethered=True)
        assert status(settings) == []


def test_a_killed_worker_comes_back_and_its_connector_goes_on_exactly(running: Settings, tmp_path: Path) -> None:
    rest = client(running)
    append(tmp_path / "in.txt", "one", "two")
    start(rest, "survive", source(tmp_path / "in.txt", "survived"))
    until(lambda: lines_of(running, "survived") == ["one", "two"])
    before = process(running).restarts

    killed = kill_component(running, "connect")
    append(tmp_path / "in.txt", "three")
    await_restart(running, "connect", killed)

    until(lambda: rest.states("survive") == ["RUNNING", "RUNNING"])
    append(tmp_path / "in.txt", "four")
    until(lambda: len(lines_of(running, "survived")) >= 4)
    assert lines_of(running, "survived") == ["one", "two", "three", "four"]
    assert process(running).restarts == before + 1
    assert rest("DELETE", "/connectors/survive").status == 204


@pytest.mark.slow
def test_a_second_worker_takes_over_from_a_killed_one(running: Settings, tmp_path: Path) -> None:
    assert up(running, only=["connect-2"], tethered=True).started == ["connect-2"]
    rests = [client(running, node) for node in (1, 2)]
    append(tmp_path / "in.txt", "one")

    for number, rest in enumerate(rests):  # one of them hands the request on to the leader
        start(rest, f"shared-{number}", source(tmp_path / "in.txt", f"shared-{number}"))
    until(lambda: len({_worker_of(rests[0], f"shared-{number}") for number in (0, 1)}) == 2)
    moved = next(name for name in ("shared-0", "shared-1") if _worker_of(rests[0], name) == rests[0].url[7:])
    killed = kill_component(running, "connect")
    append(tmp_path / "in.txt", "two")

    until(lambda: all(lines_of(running, f"shared-{number}") == ["one", "two"] for number in (0, 1)))
    assert rests[1].states(moved) == ["RUNNING", "RUNNING"]
    await_restart(running, "connect", killed)
    for number in (0, 1):
        assert rests[1]("DELETE", f"/connectors/shared-{number}").status == 204


def _worker_of(rest: Rest, name: str) -> str:
    """Where the task of a connector runs."""
    answer = rest("GET", f"/connectors/{name}/status")
    return next((task["worker_id"] for task in answer.content.get("tasks", [])), "")


@pytest.mark.slow
def test_one_alone_goes_on_from_its_file_with_the_connectors_that_are_known(tmp_path: Path) -> None:
    """Killed, it has no connector; the supervision deploys it again, and the source goes on where it was."""
    made = {"topic.creation.default.replication.factor": -1, "topic.creation.default.partitions": 1}
    file = tmp_path / "in.txt"
    lines = FileSource(name="lines", file=str(file), topic="alone", config=made)
    with own_home() as settings:
        assert up(settings, only=["connect-standalone"], tethered=True).started == ["kafka", "connect-standalone"]
        with pytest.raises(StackError, match=r"Port \d+, where connect "):
            up(settings, only=["connect"], tethered=True)
        with registry_of(settings) as supervised:
            go_on_alone(supervised, lines, file)


def go_on_alone(settings: Settings, lines: Connector, file: Path) -> None:
    rest, book = client(settings), ConnectorBook.of(settings)
    append(file, "one", "two")
    with ConnectApi.of(settings) as api:
        exact = replace(lines, config={**lines.config, "exactly.once.support": "required"})
        refused = planning.plan({"lines": exact}, api)
        assert ["standalone mode" in str(each) for each in refused.problems] == [True]
        planning.apply(planning.plan({"lines": lines}, api), api)
        book.deployed("lines", lines.properties, cluster=api.cluster(), by="me")
    until(lambda: lines_of(settings, "alone") == ["one", "two"])
    positions = settings.connect / "standalone.offsets"
    until(lambda: positions.is_file() and b"in.txt" in positions.read_bytes())

    killed = kill_component(settings, "connect-standalone")
    append(file, "three")
    await_restart(settings, "connect-standalone", killed)
    until(lambda: rest("GET", "/connectors").content == [])
    with ConnectApi.of(settings) as api:
        (decision,) = supervise(api, Loaded({"lines": lines}), book).decisions
    assert decision.action == "deploy"
    until(lambda: lines_of(settings, "alone") == ["one", "two", "three"])


@pytest.mark.slow
def test_down_keeps_connectors_and_positions_and_deleted_data_is_gone(tmp_path: Path) -> None:
    with own_home() as settings:
        go_through_it(settings, tmp_path / "in.txt")


def go_through_it(settings: Settings, file: Path) -> None:
    up(settings, only=["connect"], tethered=True)
    append(file, "one")
    start(client(settings), "stay", source(file, "stayed"))
    until(lambda: lines_of(settings, "stayed") == ["one"])
    pid = process(settings).pid

    assert "connect" in down(settings)
    assert not psutil.pid_exists(pid)
    assert ports.is_free(settings.connect_port)

    append(file, "two")
    up(settings, only=["connect"], tethered=True)
    until(lambda: client(settings).states("stay") == ["RUNNING", "RUNNING"])
    until(lambda: lines_of(settings, "stayed") == ["one", "two"])

    down(settings, delete_data=True)
    assert not settings.home.exists()


@pytest.mark.slow
def test_sources_and_sinks_reach_a_secured_kafka(tmp_path: Path) -> None:
    """With the password, the certificate and the rights of the home's user."""
    with own_home(secured=True) as settings:
        up(settings, only=["connect"], tethered=True)
        rest = client(settings)
        append(tmp_path / "in.txt", "one", "two")
        start(rest, "read", source(tmp_path / "in.txt", "secured"))
        until(lambda: lines_of(settings, "secured") == ["one", "two"])

        sink = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "topics": "secured",
            "file": str(tmp_path / "out.txt"),
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        }
        start(rest, "write", sink)
        until(lambda: (tmp_path / "out.txt").is_file() and (tmp_path / "out.txt").read_text() == "one\ntwo\n")
        secret = (settings.kafka / "secrets" / "deltaworks.password").read_text().strip()
        assert secret not in log_of(settings, "connect").read_text()


@pytest.fixture(scope="module")
def supervised(running: Settings) -> Iterator[Settings]:
    """The same home, with a registry and a project of its own."""
    with registry_of(running) as settings:
        yield settings


@contextmanager
def registry_of(settings: Settings) -> Iterator[Settings]:
    """A home whose stack runs, with a registry and a project of its own."""
    with tempfile.TemporaryDirectory(prefix="deltaworks-tests-") as folder, registry_server(Path(folder)) as server:
        (project := Path(folder) / "project" / "jobs" / "connectors").mkdir(parents=True)
        told = Settings.from_environment({"DELTAWORKS_HOME": str(settings.home)}, cwd=settings.home)
        found = replace(settings, control_url=server.new_database(), project=project.parents[1], values=told.values)
        registry.migrate(found)
        try:
            yield found
        finally:
            registry.close()


def write_sink(settings: Settings, name: str, file: Path, topic: str, **others: str) -> None:
    """The file of a connector that appends records to a file."""
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "1",
        "file": str(file),
        "topics": topic,
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        **others,
    }
    (settings.jobs / "connectors" / f"{name}.json").write_text(json.dumps({"name": name, "config": config}))


def open_kinds(settings: Settings) -> set[str]:
    return {each.kind for each in IncidentBook.of(settings).listed()}


def test_a_task_that_fails_is_restarted_with_pauses_and_a_limit_and_told(supervised: Settings, tmp_path: Path) -> None:
    """Its folder is missing, so each restart fails; then it is there, and somebody restarts it."""
    rest, policy = client(supervised), RestartPolicy(first_s=1.0, longest_s=4.0, limit=3, healthy_s=600.0)
    target = tmp_path / "missing" / "out.txt"
    write_sink(supervised, "limited", target, "limited")
    start(rest, "fed", source(tmp_path / "in.txt", "limited"))
    append(tmp_path / "in.txt", "one")
    deploy(supervised, "limited")
    until(lambda: "FAILED" in rest.states("limited"))

    decided: list[Decision] = []
    times: list[float] = []

    def given_up() -> bool:
        if "FAILED" in rest.states("limited"):
            (decision,) = watch(supervised, policy) or ()
            decided.append(decision)
            times.extend([time.monotonic()] if decision.action == "restart" else [])
        return bool(decided) and decided[-1].action == "give_up"

    until(given_up)
    restarts = [each for each in decided if each.action == "restart"]
    assert len(restarts) == policy.limit
    assert times[1] - times[0] >= 1.0 and times[2] - times[1] >= 2.0, "the pauses grow"
    assert "3 restarts in a row have not helped: 1 of 1 tasks have failed" in decided[-1].reason
    assert "Couldn't find or create file" in decided[-1].reason
    assert open_kinds(supervised) == {"connector_failed", "connector_given_up"}

    (seen,) = overview(supervised).connectors
    assert (seen.name, seen.state, seen.tasks, seen.failed_tasks) == ("limited", "RUNNING", 1, 1)
    assert str(seen.reason).startswith("nothing restarts it: 3 restarts")
    assert watch(supervised, policy) == (decided[-1],), "and it stays so"

    target.parent.mkdir()
    until(lambda: rest("POST", "/connectors/limited/restart?includeTasks=true&onlyFailed=true").status == 202)
    until(lambda: rest.states("limited") == ["RUNNING", "RUNNING"])
    until(lambda: target.is_file() and target.read_text() == "one\n")
    (decision,) = watch(supervised, policy) or ()
    assert (decision.action, decision.reason) == ("nothing", "it runs")
    assert open_kinds(supervised) == set()
    for name in ("limited", "fed"):
        forget(supervised, name)


def test_one_that_is_gone_is_deployed_again_a_drift_is_repaired_and_a_stopped_one_rests(
    supervised: Settings, tmp_path: Path
) -> None:
    rest = client(supervised)
    write_sink(supervised, "kept", tmp_path / "out.txt", "kept")
    deploy(supervised, "kept")
    until(lambda: rest.states("kept") == ["RUNNING", "RUNNING"])
    wanted = config_of(rest, "kept")

    until(lambda: rest("DELETE", "/connectors/kept").status == 204)
    (decision,) = watch(supervised) or ()
    assert decision.action == "deploy"
    until(lambda: config_of(rest, "kept") == wanted)

    until(lambda: rest("PUT", "/connectors/kept/config", {**wanted, "errors.log.enable": "true"}).status == 200)
    repaired = FileSink(name="kept", file=str(tmp_path / "out.txt"), topics=["kept"], on_drift="repair")
    with ConnectApi.of(supervised) as api:
        book = ConnectorBook.of(supervised)
        until(lambda: supervise(api, Loaded({"kept": repaired}), book).decisions[0].action == "repair")
    until(lambda: config_of(rest, "kept") == wanted)

    until(lambda: rest("PUT", "/connectors/kept/stop").status == 204)
    until(lambda: rest.states("kept") == ["STOPPED"])
    (decision,) = watch(supervised) or ()
    assert (decision.action, decision.reason) == ("nothing", "it is stopped")
    assert rest.states("kept") == ["STOPPED"]
    forget(supervised, "kept")


def config_of(rest: Rest, name: str) -> Any:
    """The settings of a connector; None while the workers rebalance."""
    answer = rest("GET", f"/connectors/{name}/config")
    return answer.content if answer.status == 200 else None


def deploy(settings: Settings, name: str) -> None:
    """As the DAG of the connector does it."""
    with ConnectApi.of(settings) as api:
        (change,) = (planned := planning.plan({name: load(settings, name)}, api, whole=False)).changes
        planning.apply(planned, api)
        ConnectorBook.of(settings).deployed(name, change.wanted or {}, cluster=api.cluster(), by="me")


def forget(settings: Settings, name: str) -> None:
    """Deletes a connector, and its file."""
    ConnectorBook.of(settings).desire(name, "deleted", by="me")
    until(lambda: client(settings)("DELETE", f"/connectors/{name}").status == 204)
    for file in (settings.jobs / "connectors").glob(f"{name}.*"):
        file.unlink()


def test_records_that_fail_are_dead_letters_and_come_again_once_after_a_repair(
    supervised: Settings, tmp_path: Path
) -> None:
    """Lines that are no JSON fail in a sink that takes them for JSON; then somebody corrects its converter."""
    rest, target, running, settings = client(supervised), tmp_path / "out.txt", supervised, supervised
    create_topics(running.cluster, [TopicSpec(name="lettered", partitions=2)])
    json_of_lines = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "1",
        "topics": "lettered",
        "file": str(target),
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        **{name: text_of(value) for name, value in dead_letters_of("lettered_failed", 1).items()},
    }
    start(rest, "lettering", json_of_lines)
    with ConnectApi.of(settings) as api:
        ConnectorBook.of(settings).deployed("lettering", json_of_lines, cluster=api.cluster(), by="me")
    watch(settings)
    assert open_kinds(settings) == set()
    write(running, "lettered", 1, (b"k", b"7", []), (b"k", b"no {", [("own", b"1")]), (None, b"\xff{", []))
    until(lambda: counted(settings, "lettering") == 2)
    until(lambda: target.read_text() == "7\n")
    watch(settings)
    (incident,) = IncidentBook.of(settings).listed("lettering")
    assert (incident.kind, incident.what) == (
        "sink_dead_letters",
        "2 records have become dead letters within an hour",
    )
    assert overview(settings, "lettering").connectors[0].incidents == 1

    with ConnectApi.of(settings) as api:
        (count,) = dead_letters.counts(settings.cluster, {"lettering": json_of_lines})
        assert (count.topic, count.total, count.recent) == ("lettered_failed", 2, 2)
        assert dead_letters.counts_soon(settings.cluster, api, {"lettering": json_of_lines}) == {"lettering": count}
        until(lambda: lags_soon(settings.cluster, api, ["lettering"], within_s=5.0) == {"lettering": 0})
        second, first = dead_letters.newest(settings.cluster, "lettering", "lettered_failed", 20)
        assert (first.record, second.record) == (Coordinates("lettered", 1, 1), Coordinates("lettered", 1, 2))
        assert (first.key, first.value, first.headers) == (b"k", b"no {", (("own", b"1"),))
        assert (second.key, second.value, second.headers) == (None, b"\xff{", ())
        assert (first.connector, first.stage) == ("lettering", "VALUE_CONVERTER")
        assert first.executor == "org.apache.kafka.connect.json.JsonConverter"
        assert first.error_class == "org.apache.kafka.connect.errors.DataException"
        assert first.message.startswith("Converting byte[] to Kafka Connect data failed")

        # it fails again as long as nobody has corrected it
        planned = resends.plan(settings, api, "lettering", [first.at])
        assert (planned.count, resends.send(settings, planned, by="ann")) == (1, 1)
        until(lambda: counted(settings, "lettering") == 3)
        again = dead_letters.newest(settings.cluster, "lettering", "lettered_failed", 1)[0]
        assert again.again and again.record is not None and again.record.offset > 2
        assert {name for name, _ in again.headers} == {"own", "__deltaworks.sent_again"}

        texts = {**json_of_lines, "value.converter": "org.apache.kafka.connect.storage.StringConverter"}
        api.stop("lettering")  # or its task would take what comes next for JSON, too
        until(lambda: rest.states("lettering") == ["STOPPED"])
        assert rest("PUT", "/connectors/lettering/config", texts).status == 200
        write(running, "lettered", 1, (b"k", b"after", []))
        assert lags_soon(settings.cluster, api, ["lettering"], within_s=5.0)["lettering"] > 0
        api.resume("lettering")
        until(lambda: rest.states("lettering") == ["RUNNING", "RUNNING"])
        until(lambda: target.read_text() == "7\nafter\n")
        planned = resends.plan(settings, api, "lettering")
        assert sorted((each.count, each.again, each.stays) for each in planned.groups) == [
            (1, 0, "sent before"),
            (2, 1, None),
        ]
        assert resends.send(settings, planned, by="ann") == 2
        assert resends.send(settings, planned, by="ann") == 0

    until(lambda: target.read_text().count("\n") >= 4)
    assert sorted(target.read_bytes().decode(errors="replace").splitlines()) == ["7", "after", "no {", "\ufffd{"]
    sent = [each for each in read_all(running.cluster, "lettered") if each.headers() and each.value() != b"no {"]
    assert [(each.key(), each.value(), each.partition()) for each in sent] == [(None, b"\xff{", 1)]
    assert counted(settings, "lettering") == 3
    watch(settings)
    assert open_kinds(settings) == {"sink_dead_letters"}, "an hour has not passed"
    with closing(psycopg.connect(settings.registry_url.replace("+psycopg", ""), autocommit=True)) as connection:
        connection.execute("UPDATE samples SET at = at - INTERVAL '2 hours'")
    watch(settings)
    assert open_kinds(settings) == set()
    forget(settings, "lettering")


def test_a_plugin_of_another_version_than_the_file_says_is_refused(running: Settings, tmp_path: Path) -> None:
    told = Settings.from_environment({"DELTAWORKS_HOME": str(running.home)}, cwd=running.home)
    config = {"file": str(tmp_path / "out.txt"), "topics": "versioned"}
    wanted = Connector(name="versioned", class_=FILE_SINK, config=config, plugin_version="4.2.0")
    with ConnectApi.of(told) as api:
        locked = connect_plugins.versions(told, api.url)
        there = {each.class_: each.version for each in api.plugins()}
        assert there.items() <= locked.items(), "the lock has what the worker runs"
        (problem,) = planning.plan({"versioned": wanted}, api).problems
        assert str(problem).startswith("versioned: connector.plugin.version: is 4.2.0, but the workers have")
        older = dict.fromkeys(there, "4.2.0")
        (problem,) = planning.plan({"versioned": replace(wanted, plugin_version=None)}, api, locked=older).problems
        assert "but the lock of their plugins has 4.2.0" in problem.what

        planned = planning.plan({"versioned": replace(wanted, plugin_version=there[FILE_SINK])}, api)
        assert (planned.problems, planned.notes) == ((), ())
        planning.apply(planned, api)
        until(lambda: client(running).states("versioned") == ["RUNNING", "RUNNING"])
        api.delete("versioned")


def counted(settings: Settings, name: str) -> int:
    """How many dead letters its topic holds."""
    (found,) = dead_letters.counts(settings.cluster, {name: config_of(client(settings), name) or {}}) or (None,)
    return 0 if found is None else found.total


def write(settings: Settings, topic: str, partition: int, *records: tuple[bytes | None, bytes, Any]) -> None:
    """Keys, values and headers."""
    producer = make(Producer, settings.cluster, {})
    for key, value, headers in records:
        producer.produce(topic, value, key, partition, headers=headers)
    assert producer.flush(30) == 0


def test_no_secret_is_anywhere_but_in_the_files_for_it(
    supervised: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sink is deployed by its DAG; then everything is searched that anybody can see of it, and all files of the home.

    The consumer of its task gets three passwords, whether it needs them or not.
    """
    rest, home, target = client(supervised), supervised.home, tmp_path / "out.txt"
    of_database = postgres_server.passwords(source_postgres.server(supervised))[source_postgres.CDC]
    login = connect.credentials(supervised).password
    vault = supervised.connect / "secrets" / "vault.properties"
    vault.touch(0o600)
    vault.write_text(f"word={VAULT}\n")
    write_sink(
        supervised,
        "guarded",
        target,
        "guarded",
        **{
            "consumer.override.ssl.keystore.password": "${env:DELTAWORKS_CONNECT_TILL}",
            "consumer.override.ssl.truststore.password": "${env:DELTAWORKS_CONNECT_SOURCE_POSTGRES_PASSWORD}",
            "consumer.override.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="a" password="${{file:{vault}:word}}";',
        },
    )
    write_sink(supervised, "mistaken", target, "guarded", **{"errors.retry.timeout": "${env:DELTAWORKS_CONNECT_TILL}"})
    create_topics(supervised.cluster, [TopicSpec(name="guarded", partitions=1)])
    write(supervised, "guarded", 0, (None, b"one", []))

    seen = connector_in_airflow.kept(supervised, "guarded")
    assert seen.pop("state") == "success", seen["log of the tasks"]
    until(lambda: target.is_file() and target.read_text() == "one\n")
    watch(supervised)
    seen |= shown_of_connectors.by_commands(supervised, monkeypatch, capsys)
    seen |= shown_of_connectors.in_registry(supervised)
    seen |= {f"GET {path}": str(rest("GET", path).content) for path in shown_of_connectors.PATHS}
    validated = rest("PUT", shown_of_connectors.VALIDATE, {**config_of(rest, "guarded"), "name": "guarded"})
    seen |= {"validated": str(validated.content)}
    seen |= {each.name: str(psutil.Process(each.pid).cmdline()) for each in status(supervised)}

    words = TILL, VAULT, of_database, login, base64.b64encode(f"deltaworks:{login}".encode()).decode()
    assert [place for place, text in seen.items() if any(word in text for word in words)] == []
    unseen = {"table samples", "table connectors", "database of Airflow", "connect plan guarded"} - seen.keys()
    assert unseen == set() and "guarded" in seen["table connectors"] and "guarded" in seen["database of Airflow"]
    # What a broker keeps by offset and by time has no text, and is large.
    files = [each for each in files_below(home) if each.suffix not in (".index", ".timeindex")]
    meant = {vault, supervised.source_pgpass, home / "connect/login/password", home / "connect/login/users.properties"}
    assert set(holding(files, *words)) == set(map(str, meant))
    assert {stat.filemode(each.stat().st_mode) for each in meant} == {"-rw-------"}
    # What the worker itself does not hide, the search finds; so nobody here shows its answer.
    mistaken = json.loads((supervised.jobs / "connectors" / "mistaken.json").read_text())["config"]
    assert TILL in str(rest("PUT", shown_of_connectors.VALIDATE, {**mistaken, "name": "mistaken"}).content)
    (supervised.jobs / "connectors" / "mistaken.json").unlink()
    forget(supervised, "guarded")
