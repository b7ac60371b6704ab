"""What a connection says, who gets to see it, and how it is tested."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Connection

from deltaworks.airflow import hook
from deltaworks.airflow.access import Access
from deltaworks.airflow.hook import DeltaworksHook, variables
from deltaworks.config import Reference
from deltaworks.control.launchers.base import DriverSpec
from deltaworks.control.launchers.local import driver_command
from deltaworks.control.model import DeployOptions
from deltaworks.doctor import Finding
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

SECRET = "p@ss:w/rd%"
KAFKA_SECRET = "k4fka"
TOML = '[environments.prod]\nbootstrap = "of-the-file:9092"\ncores = 7\n'


class Connections:
    """The connections of an Airflow, as its workers find them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
        self._set = monkeypatch.setenv
        self.project = project
        (project / "jobs").mkdir()
        (project / "deltaworks.toml").write_text(TOML)
        for name in [name for name in os.environ if name.startswith("DELTAWORKS_")]:
            monkeypatch.delenv(name)
        self.add(
            "shop",
            conn_type="deltaworks",
            host="db.example.com",
            port=5433,
            login="shop",
            password=SECRET,
            schema="registry",
            extra=self.extra(),
        )
        settings = {"bootstrap.servers": "kafka-1:9092", "group.id": "dags", "security.protocol": "SASL_SSL"}
        self.add("kafka_default", conn_type="kafka", extra={**settings, "sasl.password": KAFKA_SECRET})

    def extra(self, **other: Any) -> dict[str, Any]:
        names = {"project": str(self.project), "environment": "prod", "home": str(self.project / "state")}
        return {**names, "kafka_conn_id": "kafka_default", **other}

    def add(self, name: str, *, extra: Any = None, **fields: Any) -> None:
        text = {} if extra is None else {"extra": extra if isinstance(extra, str) else json.dumps(extra)}
        self._set(f"AIRFLOW_CONN_{name.upper()}", json.dumps({**fields, **text}))


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Connections:
    return Connections(monkeypatch, tmp_path)


def settings_of(name: str = "shop") -> Settings:
    return DeltaworksHook(name).settings()


def test_settings_are_those_of_the_connection(connections: Connections) -> None:
    settings = settings_of()

    assert (settings.project, settings.home) == (connections.project, connections.project / "state")
    assert (settings.values.environment, settings.cores) == ("prod", 7)
    assert settings.bootstrap == "kafka-1:9092"
    assert settings.registry_url == "postgresql+psycopg://shop:p%40ss%3Aw%2Frd%25@db.example.com:5433/registry"


def test_a_trigger_gets_the_same_settings(connections: Connections) -> None:
    assert asyncio.run(DeltaworksHook("shop").settings_async()) == settings_of()
    assert asyncio.run(Access(conn_id="shop").settings_async()) == Access(conn_id="shop").settings() == settings_of()


def test_what_is_empty_is_as_the_environment_says(connections: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    connections.add("bare", conn_type="deltaworks", extra={"project": "", "kafka_conn_id": ""})
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(connections.project))
    monkeypatch.setenv("DELTAWORKS_CORES", "3")

    assert settings_of("bare") == Settings.from_environment()
    assert variables(Connection(conn_id="bare", conn_type="deltaworks")) == {}


def test_the_project_of_a_dag_file_holds_where_the_connection_names_none(connections: Connections) -> None:
    connections.add("bare", conn_type="deltaworks", extra={"environment": "prod"})

    assert DeltaworksHook("bare", str(connections.project)).settings().project == connections.project
    assert DeltaworksHook("shop", "/of/the/dag/file").settings().project == connections.project


def test_without_a_connection_the_environment_holds(connections: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTAWORKS_HOME", str(connections.project / "elsewhere"))

    assert Access().settings() == Settings.from_environment()
    assert Access(project=str(connections.project)).settings().project == connections.project


def test_kafkas_clients_get_the_settings_of_its_connection_without_those_of_consumers(connections: Connections) -> None:
    assert settings_of().cluster.client({"group.id": "ours"}) == {
        "bootstrap.servers": "kafka-1:9092",
        "group.id": "ours",
        "sasl.password": KAFKA_SECRET,
        "security.protocol": "SASL_SSL",
    }


def test_kafka_connect_is_where_a_connection_says_and_its_login_stays_there(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    (connections.project / "deltaworks.toml").write_text(TOML + '[connect]\nurl = "http://of-the-file:8083"\n')
    connections.add("shop", conn_type="deltaworks", extra=connections.extra(connect_conn_id="deltaworks_connect"))
    fields = {"conn_type": "http", "host": "connect.example.com", "port": 8443, "schema": "https", "login": "ada"}
    connections.add("deltaworks_connect", **fields, password=SECRET, extra={"ca_file": "/etc/ca.pem", "other": 1})

    settings = settings_of()

    table = settings.values.table("connect")
    assert (table["url"], table["ca_file"]) == ("https://connect.example.com:8443", "/etc/ca.pem")
    assert [each.read() for each in table.values() if isinstance(each, Reference)] == ["ada", SECRET]
    assert SECRET not in f"{settings!r} {settings.values!r} {table!r}"


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({"host": "connect"}, "http://connect"),
        ({"host": "https://connect", "port": 8083, "schema": "http"}, "https://connect:8083"),
    ],
)
def test_what_the_connection_of_kafka_connect_leaves_out(
    connections: Connections, fields: dict[str, Any], url: str
) -> None:
    connections.add("shop", conn_type="deltaworks", extra=connections.extra(connect_conn_id="workers"))
    connections.add("workers", conn_type="http", **fields)

    assert settings_of().values.table("connect") == {"url": url}


def test_a_connection_of_kafka_connect_without_a_host_says_so(connections: Connections) -> None:
    connections.add("shop", conn_type="deltaworks", extra=connections.extra(connect_conn_id="workers"))
    connections.add("workers", conn_type="http", password=SECRET)

    with pytest.raises(ConfigurationError, match="The connection 'workers' has no host") as told:
        settings_of()
    assert SECRET not in str(told.value)


def test_the_registry_may_want_tls(connections: Connections) -> None:
    more = connections.extra(sslmode="verify-full", sslrootcert="/etc/ssl/company.pem")
    connections.add("shop", conn_type="deltaworks", host="db", extra=more)

    url = settings_of().registry_url
    assert (
        url
        == "postgresql+psycopg://deltaworks@db/deltaworks?sslmode=verify-full&sslrootcert=%2Fetc%2Fssl%2Fcompany.pem"
    )


def test_a_driver_has_the_same_settings_and_no_secret_on_its_command_line(connections: Connections) -> None:
    settings = settings_of()
    environment = settings.driver_environment()
    spec = DriverSpec(pipeline="orders", generation=1, options=DeployOptions(), log=Path("log"))

    assert Settings.from_environment(environment, cwd=Path("/")) == settings
    assert environment["DELTAWORKS_KAFKA_SASL_PASSWORD"] == KAFKA_SECRET
    assert not [word for word in driver_command(spec) if SECRET in word or KAFKA_SECRET in word]


def test_secrets_stay_out_of_the_environment_of_the_process_and_out_of_what_is_shown(connections: Connections) -> None:
    before = dict(os.environ)
    settings = settings_of()

    assert dict(os.environ) == before
    shown = (
        f"{settings!r} {settings.values!r} {settings.cluster!r} {settings.cluster} {DeltaworksHook('shop').__dict__}"
    )
    for secret in (SECRET, "p%40ss", KAFKA_SECRET):
        assert secret not in shown
    assert "sasl.password" in repr(settings.cluster)


def test_a_connection_that_is_not_there_says_how_to_add_it(connections: Connections) -> None:
    with pytest.raises(ConfigurationError, match="There is no connection 'nowhere'") as raised:
        settings_of("nowhere")
    assert "airflow connections add nowhere" in str(raised.value.hint)

    connections.add("shop", conn_type="deltaworks", extra=connections.extra(kafka_conn_id="nowhere"))
    with pytest.raises(ConfigurationError, match="no connection 'nowhere', which the connection 'shop' names"):
        settings_of()


@pytest.mark.parametrize(
    ("extra", "kafka", "message"),
    [
        ('{"project": "s3cret', None, "The extra of the connection 'shop' cannot be used"),
        ({"project": ["s3cret"]}, None, "The extra of the connection 'shop' cannot be used"),
        ({"environment": "test"}, None, "The connection 'shop' cannot be used: There is no environment 'test'"),
        (None, {"sasl.password": "s3cret"}, "'kafka_default' has no 'bootstrap.servers'"),
        (None, {"bootstrap.servers": "k:1", "x": ["s3cret"]}, "The extra of the connection 'kafka_default' cannot"),
        (None, {"bootstrap.servers": "k"}, "The connection 'shop' cannot be used: DELTAWORKS_BOOTSTRAP is 'k'"),
    ],
)
def test_a_connection_that_cannot_be_used_says_so_without_its_secrets(
    connections: Connections, extra: Any, kafka: Any, message: str
) -> None:
    if isinstance(extra, dict):
        extra = connections.extra(**extra)
    connections.add("shop", conn_type="deltaworks", extra=extra or connections.extra())
    if kafka is not None:
        connections.add("kafka_default", conn_type="kafka", extra=kafka)

    with pytest.raises(ConfigurationError) as raised:
        settings_of()
    assert message in str(raised.value)
    assert "s3cret" not in str(raised.value)
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


class Clinic:
    """What the checks find."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.findings: list[Finding] = []
        self.asked: list[tuple[Settings, Any]] = []
        monkeypatch.setattr(hook, "examine", self._examine)

    def _examine(self, settings: Settings, names: Any) -> list[Finding]:
        self.asked.append((settings, names))
        return self.findings


@pytest.fixture
def clinic(monkeypatch: pytest.MonkeyPatch) -> Clinic:
    return Clinic(monkeypatch)


def test_a_test_tries_what_the_connection_names(connections: Connections, clinic: Clinic) -> None:
    clinic.findings = [Finding("Kafka", "ok", "it answers"), Finding("supervisor", "warning", "none", "start it")]

    passed, said = DeltaworksHook("shop").test_connection()

    assert passed
    assert said.splitlines()[1:] == ["supervisor: warning: none; start it", "Kafka: ok: it answers"]
    assert clinic.asked == [(settings_of(), ("settings", "home", "Kafka", "registry", "supervisor"))]


def test_a_test_that_fails_says_what_to_do_and_in_which_field(connections: Connections, clinic: Clinic) -> None:
    clinic.findings = [
        Finding("Kafka", "ok", "it answers"),
        Finding("registry", "failed", "no answer", "deltaworks up"),
    ]

    passed, said = DeltaworksHook("shop").test_connection()

    assert not passed
    assert (
        said.splitlines()[1] == "registry: failed: no answer; deltaworks up (in this form: the fields of the registry)"
    )


def test_a_test_of_a_connection_that_cannot_be_used_says_why(connections: Connections, clinic: Clinic) -> None:
    connections.add("shop", conn_type="deltaworks", extra=connections.extra(environment="test"))

    passed, said = DeltaworksHook("shop").test_connection()

    assert (passed, clinic.asked) == (False, [])
    assert "There is no environment 'test'" in said and "its environments: prod" in said


@pytest.mark.thorough
def test_a_test_really_tries_and_shows_no_secret(connections: Connections) -> None:
    nobody = {"bootstrap.servers": "127.0.0.1:9", "sasl.password": KAFKA_SECRET, "security.protocol": "SASL_PLAINTEXT"}
    more = {"sasl.mechanism": "PLAIN", "sasl.username": "shop"}
    connections.add("kafka_default", conn_type="kafka", extra={**nobody, **more})
    connections.add(
        "shop", conn_type="deltaworks", host="127.0.0.1", port=9, password=SECRET, extra=connections.extra()
    )

    passed, said = DeltaworksHook("shop").test_connection()

    assert not passed
    assert "Kafka: failed: no answer at 127.0.0.1:9" in said
    assert "registry: failed: The registry (PostgreSQL) does not answer" in said
    assert not (connections.project / "state").exists()
    for secret in (SECRET, "p%40ss", KAFKA_SECRET):
        assert secret not in said
