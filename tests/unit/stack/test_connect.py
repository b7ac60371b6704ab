"""Kafka Connect before it starts: its login, what clients are told, its configuration, and what is refused."""

from __future__ import annotations

import os
import re
import socket
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import config, home
from deltaworks.connect.api import ConnectApi
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.kafka import permissions
from deltaworks.settings import Settings
from deltaworks.stack import (
    connect,
    connect_plugins,
    ports,
    postgres_server,
    secured_kafka,
    source_mariadb,
    source_postgres,
)
from deltaworks.stack.components import Component, read_components
from deltaworks.stack.java import Java
from deltaworks.stack.native import NativeHost
from tests.support.live_stack import free_pair

SOURCES = ("DELTAWORKS_CONNECT_SOURCE_POSTGRES_PASSWORD", "DELTAWORKS_CONNECT_SOURCE_MARIADB_PASSWORD")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home for which nothing is downloaded."""
    monkeypatch.setattr(connect, "ensure_jars", lambda *_: (Path("/cache/connect/one.jar"),))
    monkeypatch.setattr(connect, "find_java", lambda *_: Java(home=Path("/java"), version=17))
    monkeypatch.setattr(connect_plugins, "ensure", lambda *_: None)
    return replace(Settings.from_environment({}, cwd=tmp_path), home=tmp_path / "home", connect_port=free_pair())


def prepared(settings: Settings, name: str = "connect") -> Settings:
    home.make(settings)
    connect.prepare(settings, read_components(settings.infra), worker(settings, name), print)
    return settings


def told(settings: Settings) -> Mapping[str, object]:
    """What the settings say to whoever works in the home."""
    variables = {"DELTAWORKS_HOME": str(settings.home)}
    return Settings.from_environment(variables, cwd=settings.project).values.table("connect")


def configured(settings: Settings, name: str = "connect") -> dict[str, str]:
    return properties(connect.configuration(settings, worker(settings, name)))


def properties(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines), "nothing is said twice"
    return found


def worker(settings: Settings, name: str) -> Component:
    return read_components(settings.infra).by_name[name]


def test_the_password_is_made_once_and_only_its_user_can_read_it(settings: Settings) -> None:
    first, second = (connect.credentials(prepared(settings)) for _ in range(2))

    assert first.password == second.password
    assert len(first.password) == 60
    assert first.password not in repr(first)
    folder = settings.connect
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.rglob("*") if file.is_file()} == {0o600}
    assert {stat.S_IMODE(each.stat().st_mode) for each in (folder, folder / "login", folder / "secrets")} == {0o700}


def test_it_is_new_only_the_first_time(settings: Settings) -> None:
    home.make(settings)

    assert [connect.credentials(settings).created_now for _ in range(2)] == [True, False]


def test_workers_know_one_user_whose_password_no_connector_may_refer_to(settings: Settings) -> None:
    login = connect.credentials(prepared(settings))
    jaas = (settings.connect / "login" / "jaas.conf").read_text()

    (users,) = re.findall(r'PropertyFileLoginModule required file="(.+)";', jaas)
    assert properties(Path(users).read_text()) == {"deltaworks": login.password}
    allowed = configured(settings)["config.providers.file.param.allowed.paths"]
    assert not Path(users).is_relative_to(allowed)


def test_a_lost_password_is_made_anew(settings: Settings) -> None:
    before = connect.credentials(prepared(settings)).password
    (settings.connect / "login" / "password").unlink()

    after = connect.credentials(prepared(settings)).password

    assert after != before
    assert (settings.connect / "login" / "users.properties").read_text() == f"deltaworks={after}\n"


def test_clients_are_told_where_it_is_and_where_the_password_is(settings: Settings) -> None:
    file = settings.connect_access_in(prepared(settings).home)
    table = tomllib.loads(file.read_text())["connect"]

    login = connect.credentials(settings)
    assert (file.parent / table.pop("password")["file"]).read_text().strip() == login.password
    url = f"http://127.0.0.1:{settings.connect_port}"
    assert table == {"url": url, "username": "deltaworks", "standalone": False}
    assert login.password not in file.read_text()


def test_another_port_is_told_at_the_next_start(settings: Settings) -> None:
    prepared(settings)
    prepared(replace(settings, connect_port=8083))

    assert told(settings)["url"] == "http://127.0.0.1:8083"


def test_a_home_uses_its_own_unless_another_one_is_named(settings: Settings) -> None:
    file = settings.project / "deltaworks.toml"
    login = connect.credentials(prepared(settings))
    own = told(settings)

    assert (own["url"], own["username"]) == (login.url, "deltaworks")
    assert isinstance(own["password"], config.Reference)
    assert own["password"].read() == login.password
    file.write_text('[connect]\nurl = "https://connect.example.com"\n')
    assert told(settings) == {"url": "https://connect.example.com"}, "no password of ours goes to another one"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('url = "connect:8083"', "expected http:// or https://"),
        ('url = { file = "x" }', "expected http:// or https://"),
        ('user = "me"', "is no setting.\n  Hint: settings of .connect.: url, username, password, ca_file"),
        ('ca_file = { env = "CA" }', "is a reference, but it is no secret"),
    ],
)
def test_what_makes_no_sense_in_the_file_is_refused(settings: Settings, text: str, message: str) -> None:
    (settings.project / "deltaworks.toml").write_text(f"[connect]\n{text}\n")

    with pytest.raises(ConfigurationError, match=message):
        told(settings)


def test_what_the_stack_has_not_written_is_refused(settings: Settings) -> None:
    settings.connect_access_in(prepared(settings).home).write_text('[connect]\nusername = "me"\n')

    with pytest.raises(ConfigurationError, match=r"is not as the stack has written it\.\n.*deltaworks up connect"):
        told(settings)


def test_a_worker_listens_on_this_machine_asks_for_a_password_and_uses_the_kafka_of_the_home(
    settings: Settings,
) -> None:
    found = properties((prepared(settings).connect / "worker-1.properties").read_text())

    assert found["listeners"] == f"http://127.0.0.1:{settings.connect_port}"
    assert found["rest.advertised.host.name"] == "127.0.0.1"
    assert found["rest.extension.classes"].endswith(".BasicAuthSecurityRestExtension")
    assert found["bootstrap.servers"] == settings.bootstrap
    assert found["exactly.once.source.support"] == "enabled"
    assert found["plugin.discovery"] == "service_load"
    assert found["plugin.path"] == f"{settings.connect}/plugins"
    assert {value for name, value in found.items() if name.endswith("replication.factor")} == {"-1"}
    assert not [name for name in found if "ssl" in name or "sasl" in name]


def test_connectors_refer_to_their_own_files_and_variables(settings: Settings) -> None:
    found = configured(prepared(settings))

    assert found["config.providers"].split(",") == ["file", "directory", "env"]
    for name in ("file", "directory"):
        assert found[f"config.providers.{name}.param.allowed.paths"] == f"{settings.connect}/secrets"
    pattern = found["config.providers.env.param.allowlist.pattern"]
    names = ("DELTAWORKS_CONNECT_PG_PASSWORD", "DELTAWORKS_KAFKA_SASL_PASSWORD", "MY_DELTAWORKS_CONNECT_X")
    assert [bool(re.fullmatch(pattern, name)) for name in names] == [True, False, False]


def test_a_worker_gets_variables_of_connectors_and_none_of_ours(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTAWORKS_CONNECT_PG_PASSWORD", "s3cret")
    monkeypatch.setenv("DELTAWORKS_CONNECT_PORT", "1")
    monkeypatch.setenv("DELTAWORKS_CONTROL_URL", "postgresql://u:p@h/d")
    launch = NativeHost.of(prepared(settings)).launch(worker(settings, "connect"))

    assert launch.environment["DELTAWORKS_CONNECT_PG_PASSWORD"] == "s3cret"
    assert {name for name in launch.environment if name.startswith("DELTAWORKS_")} == {
        "DELTAWORKS_CONNECT_PG_PASSWORD",
        *SOURCES,
    }


def test_a_worker_has_the_passwords_of_the_homes_databases_before_they_are_started(settings: Settings) -> None:
    launch = NativeHost.of(prepared(settings)).launch(worker(settings, "connect"))

    postgres = postgres_server.passwords(source_postgres.server(settings))
    mariadb = source_mariadb.passwords(settings)
    assert [launch.environment[name] for name in SOURCES] == [postgres["cdc"], mariadb["cdc"]]
    assert {stat.S_IMODE(file.stat().st_mode) for file in (settings.source_pgpass, settings.source_options)} == {0o600}
    others = [word for each in (postgres, mariadb) for user, word in each.items() if user != "cdc"]
    assert len(others) == 4
    assert not [word for word in others if word in str((launch.command, launch.environment))]


def test_passwords_that_are_lost_are_not_made_up_for_a_database_that_has_others(settings: Settings) -> None:
    home.make(settings)
    (settings.source_postgres / "data").mkdir(parents=True)

    launch = NativeHost.of(prepared(settings)).launch(worker(settings, "connect"))

    assert not settings.source_pgpass.exists()
    assert [name for name in SOURCES if name in launch.environment] == [SOURCES[1]]


def test_what_the_user_says_of_a_database_wins(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOURCES[0], "theirs")

    assert connect.environment(prepared(settings))[SOURCES[0]] == "theirs"


def test_two_workers_are_one_group_and_have_a_port_each(settings: Settings) -> None:
    host = NativeHost.of(settings)
    one, two = (configured(prepared(settings, name), name) for name in ("connect", "connect-2"))

    differ = {"listeners", "rest.advertised.port"}
    assert {name for name in one if one[name] != two[name]} == differ
    assert [host.ports(worker(settings, name)) for name in ("connect", "connect-2")] == [
        (settings.connect_port,),
        (settings.connect_port + 1,),
    ]
    commands = [host.launch(worker(settings, name)).command for name in ("connect", "connect-2")]
    assert [command[-1] for command in commands] == [f"{settings.connect}/worker-{node}.properties" for node in (1, 2)]


def test_one_alone_keeps_positions_in_a_file_and_is_where_the_first_worker_would_be(settings: Settings) -> None:
    alone, first = (configured(prepared(settings, name), name) for name in ("connect-standalone", "connect"))

    positions = "offset.storage.file.filename"
    assert alone[positions] == f"{settings.connect}/standalone.offsets" and positions not in first
    assert alone["listeners"] == first["listeners"]
    assert {"group.id", "config.storage.topic", "exactly.once.source.support"} & alone.keys() == set()
    assert {name: value for name, value in alone.items() if name != positions} == {
        name: value for name, value in first.items() if name in alone
    }
    command = NativeHost.of(settings).launch(worker(settings, "connect-standalone")).command
    assert command[-2:] == [
        "org.apache.kafka.connect.cli.ConnectStandalone",
        f"{settings.connect}/standalone.properties",
    ]


@pytest.mark.parametrize(("name", "standalone"), [("connect", False), ("connect-standalone", True)])
def test_clients_know_whether_a_worker_is_alone(settings: Settings, name: str, standalone: bool) -> None:
    own = Settings.from_environment({"DELTAWORKS_HOME": str(prepared(settings, name).home)}, cwd=settings.project)

    with ConnectApi.of(own) as api:
        assert api.standalone == standalone


def test_it_is_left_out_unless_somebody_asks_for_it_and_brings_kafka(settings: Settings) -> None:
    components = read_components(settings.infra)

    assert not {"connect", "connect-2", "connect-standalone"} & {
        component.name for component in components.chosen(None)
    }
    assert [c.name for c in components.chosen(["connect"])] == ["kafka", "connect"]
    assert [c.name for c in components.chosen(["connect-2"])] == ["kafka", "connect-2"]
    assert [c.name for c in components.chosen(["connect-standalone"])] == ["kafka", "connect-standalone"]


def test_its_command_line_shows_no_password(settings: Settings) -> None:
    launch = NativeHost.of(prepared(settings)).launch(worker(settings, "connect"))
    password = connect.credentials(settings).password

    assert launch.command[0] == "/java/bin/java"
    assert launch.command[-2] == "org.apache.kafka.connect.cli.ConnectDistributed"
    assert f"-Djava.security.auth.login.config={settings.connect}/login/jaas.conf" in launch.command
    assert password not in str((launch.command, launch.environment))


def test_a_secured_kafka_is_reached_by_every_client_of_a_worker(settings: Settings) -> None:
    secured_kafka.make(settings, ports.free_ports)
    own = Settings.from_environment({"DELTAWORKS_HOME": str(settings.home)}, cwd=settings.project)
    found = properties((prepared(own).connect / "worker-1.properties").read_text())
    secrets = own.kafka / "secrets"
    password = (secrets / "deltaworks.password").read_text().strip()

    assert len(found["bootstrap.servers"].split(",")) == 3
    for client in ("", "producer.", "consumer.", "admin."):
        assert found[f"{client}security.protocol"] == "SASL_SSL"
        assert found[f"{client}sasl.mechanism"] == "SCRAM-SHA-512"
        assert found[f"{client}sasl.jaas.config"].endswith(f'required username="deltaworks" password="{password}";')
        assert found[f"{client}ssl.truststore.location"] == f"{secrets}/ca.pem"
        assert found[f"{client}ssl.keystore.location"] == f"{own.connect}/kafka.pem"
    assert (own.connect / "kafka.pem").read_text().splitlines()[0] == "-----BEGIN PRIVATE KEY-----"


def test_the_user_of_a_secured_kafka_may_be_in_its_groups(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    granted: list[permissions.Permission] = []
    monkeypatch.setattr(permissions, "grant", lambda cluster, user, allowed: granted.extend(allowed))
    secured_kafka.make(settings, ports.free_ports)

    secured_kafka.give_access(settings)

    group = connect.GROUP
    assert [(each.kind, each.prefixed) for each in granted if each.name == group] == [("group", True)]
    assert configured(settings)["group.id"] == group, "and Kafka Connect calls that of a sink connect-<name>"


def test_a_path_that_workers_cannot_use_is_refused(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match="it takes the comma for the end of a path"):
        prepared(replace(settings, home=settings.home.parent / "a,b"))


def test_a_port_that_leaves_no_room_for_a_second_worker_is_refused(settings: Settings) -> None:
    last = replace(settings, connect_port=65_535)

    assert connect.port(last, 1) == 65_535
    with pytest.raises(ConfigurationError, match=r"is 65535; worker 2 takes the next port\.\n  Hint: .* up to 65534"):
        connect.port(last, 2)


def test_where_nobody_listens_there_is_no_answer(settings: Settings) -> None:
    assert not connect.answers(prepared(settings), 1)


def test_whoever_has_a_port_is_named_with_the_variable(settings: Settings) -> None:
    host, port = NativeHost.of(settings), settings.connect_port + 1

    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(
            StackError,
            match=rf"(?s)Port {port}, where connect-2 .* process {os.getpid()} .*DELTAWORKS_CONNECT_PORT=",
        ):
            host.require_room_and_ports(worker(settings, "connect-2"))


def test_port_and_plugins_are_settings_that_other_processes_get(tmp_path: Path) -> None:
    (tmp_path / "deltaworks.toml").write_text('connect_plugins = ["file", "jdbc"]\nconnect_port = 8083\n')
    in_file = Settings.from_environment({}, cwd=tmp_path)
    by_variable = Settings.from_environment({"DELTAWORKS_CONNECT_PLUGINS": "debezium-postgres, jdbc"}, cwd=tmp_path)

    assert (in_file.connect_port, in_file.connect_plugins) == (8083, ("file", "jdbc"))
    assert by_variable.connect_plugins == ("debezium-postgres", "jdbc")
    (tmp_path / "deltaworks.toml").unlink()
    assert Settings.from_environment(by_variable.environment(), cwd=Path("/")) == by_variable
    assert Settings.from_environment({}, cwd=tmp_path).connect_plugins == ("file",)
