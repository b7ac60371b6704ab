"""A connector: values as Connect has them, references instead of secrets, and what is refused."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from deltaworks import connect
from deltaworks.connect import Connector, FileSink
from deltaworks.connect.secrets import expression, holds_password, is_secret, masked, shown
from deltaworks.errors import ConfigurationError

CLASS = "org.example.Source"
SECRET = "hunter2-secret"


def connector(**arguments: Any) -> Connector:
    return Connector(**{"name": "orders_cdc", "class_": CLASS, **arguments})


def refused(**arguments: Any) -> str:
    with pytest.raises(ConfigurationError) as told:
        connector(**arguments)
    return str(told.value)


def test_settings_are_texts_as_connect_has_them() -> None:
    made = connector(
        config={"port": 5432, "ratio": 1.5, "on": True, "off": False, "text": "a,b", "empty": ""},
        tasks_max=3,
        secrets={"database.password": {"env": "CDC_PASSWORD"}},
    )

    assert made.properties == {
        "name": "orders_cdc",
        "connector.class": CLASS,
        "tasks.max": "3",
        "port": "5432",
        "ratio": "1.5",
        "on": "true",
        "off": "false",
        "text": "a,b",
        "empty": "",
        "database.password": "${env:CDC_PASSWORD}",
    }
    assert "tasks.max" not in connector(tasks_max=None).properties


def test_a_connector_does_not_change() -> None:
    config = {"a": "1"}
    made: Any = connector(config=config)
    config["a"] = "2"

    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "other"
    with pytest.raises(TypeError):
        made.config["a"] = "3"
    assert made.properties["a"] == "1"
    assert made == connector(config={"a": "1"})


@pytest.mark.parametrize(
    ("reference", "written"),
    [
        ({"env": "CDC_PASSWORD"}, "${env:CDC_PASSWORD}"),
        ({"file": "/run/secrets/cdc.properties", "key": "pw"}, "${file:/run/secrets/cdc.properties:pw}"),
        ({"directory": "/run/secrets", "key": "cdc"}, "${directory:/run/secrets:cdc}"),
        ({"provider": "vault", "path": "db/shop", "key": "password"}, "${vault:db/shop:password}"),
        ("${vault:db/shop:password}", "${vault:db/shop:password}"),
    ],
)
def test_references_are_those_of_config_providers(reference: Any, written: str) -> None:
    assert expression(reference, "here") == written


def test_a_connection_of_airflow_is_no_place_for_workers_to_read() -> None:
    told = refused(secrets={"database.password": {"airflow": "shop_db", "field": "password"}})

    assert "is in a connection of Airflow, which the workers of Kafka Connect cannot read" in told
    assert '{"env": "NAME"}' in told and "shop_db" not in told


@pytest.mark.parametrize(
    "reference",
    [
        SECRET,
        f"x${{env:A}}{SECRET}",
        {"env": f"{SECRET} a"},
        {"env": SECRET, "key": "a"},
        {"file": f"/{SECRET}"},
        {"file": SECRET, "key": "a"},
        {"file": f"/a:{SECRET}", "key": "a"},
        {"file": "/a", "key": f"}}{SECRET}"},
        {"provider": "a b", "path": SECRET, "key": "a"},
        {"command": SECRET},
        {"env": 7},
        {},
        None,
        7,
    ],
)
def test_what_is_no_reference_is_refused_without_showing_it(reference: Any) -> None:
    told = refused(secrets={"database.password": reference})

    assert told.startswith("connector 'orders_cdc': secrets['database.password'] is no reference.\n  Hint: ")
    assert SECRET not in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"name": "a/b"}, "'a/b' cannot be the name of a connector."),
        ({"name": 7}, "name=7 is no text."),
        ({"class_": " "}, "Connector 'orders_cdc' has no class."),
        ({"tasks_max": 0}, "has tasks_max=0."),
        ({"tasks_max": True}, "has tasks_max=True."),
        ({"tasks_max": "2"}, "has tasks_max='2'."),
        ({"config": {"a": None}}, "has 'a' of type null; expected text, a number or a bool.\n  Hint: leave it out"),
        ({"config": {"a": ["x", "y"]}}, "has 'a' of type list; expected text, a number or a bool.\n  Hint: one text, "),
        ({"config": {"a": float("nan")}}, "has 'a' of type float"),
        ({"config": {7: "a"}}, "has a setting 7."),
        ({"config": {"name": "x"}}, "has 'name' in its settings.\n  Hint: name= is for it"),
        ({"config": {"connector.class": "x"}}, "Hint: class_= is for it"),
        ({"config": {"tasks.max": 1}}, "Hint: tasks_max= is for it"),
        ({"config": {"a": "${env:B}"}, "secrets": {"a": {"env": "B"}}}, "has 'a' in config= and in secrets="),
    ],
)
def test_what_cannot_be_sent_is_refused(arguments: dict[str, Any], told: str) -> None:
    assert told in refused(**arguments)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("database.password", SECRET),
        ("password", SECRET),
        ("ssl.key.password", SECRET),
        ("sasl.jaas.config", f'required username="u" password="{SECRET}";'),
        ("basic.auth.user.info", f"user:{SECRET}"),
        ("aws.secret.access.key", SECRET),
        ("api_key", SECRET),
        ("connection.url", f"jdbc:postgresql://db/shop?user=u&password={SECRET}"),
        ("mongodb.connection.string", f"mongodb://u:{SECRET}@db:27017"),
    ],
)
def test_a_secret_that_is_text_is_refused_without_showing_it(setting: str, value: str) -> None:
    told = refused(config={setting: value})

    assert (setting in told and "${env:" in told) or "secrets=" in told
    assert SECRET not in told


def test_references_within_values_and_empty_passwords_are_sent() -> None:
    config = {
        "connection.url": "jdbc:postgresql://db/shop?user=u&password=${env:PW}",
        "mongodb.connection.string": "mongodb://u:${file:/x:pw}@db:27017",
        "sasl.jaas.config": 'required username="u" password="${env:PW}";',
        "database.password": "",
        "key.converter.basic.auth.credentials.source": "USER_INFO",
    }

    assert config.items() <= connector(config=config).properties.items()


@pytest.mark.parametrize("name", ["database.user", "basic.auth.credentials.source", "token.bucket.size", "tasks.max"])
def test_other_settings_are_no_secrets(name: str) -> None:
    assert not is_secret(name)


def test_what_is_shown_has_no_secret() -> None:
    assert shown("database.password", SECRET) == "***"
    assert shown("database.password", "${env:A}") == "${env:A}"
    assert shown("sasl.jaas.config", f'password="{SECRET}" x="${{env:A}}"') == "***"
    assert shown("anything", SECRET, secret=True) == "***"
    assert shown("url", f"jdbc:x://u:{SECRET}@db?password={SECRET}&a=b") == "jdbc:x://u:***@db?password=***&a=b"
    assert shown("snapshot.mode", "initial") == "initial"
    assert (shown("a", None), shown("database.password", "")) == (None, "")


@pytest.mark.parametrize(
    "text",
    [
        f"could not log in: password={SECRET}, user=u",
        f'{{"password": "{SECRET}"}}',
        f"the token: {SECRET}",
        f"jdbc:postgresql://u:{SECRET}@db:5432/shop does not answer",
        f"api-key = '{SECRET}'",
    ],
)
def test_texts_of_others_are_masked(text: str) -> None:
    assert SECRET not in masked(text)
    assert "***" in masked(text)


def test_a_text_without_a_secret_stays() -> None:
    text = 'FATAL: password authentication failed for user "cdc" at db.example.com:5432'

    assert masked(text) == text
    assert masked("password=${env:A}") == "password=${env:A}"
    assert not holds_password("jdbc:postgresql://db.example.com:5432/shop?user=u")


def test_what_follows_from_a_drift_is_no_setting_and_is_one_of_two() -> None:
    repaired = FileSink(name="x", file="/x", topics=["t"], on_drift="repair")

    assert repaired.on_drift == "repair"
    assert repaired.properties == FileSink(name="x", file="/x", topics=["t"]).properties
    with pytest.raises(ConfigurationError, match="has dead_letters_alert=0"):
        FileSink(name="x", file="/x", topics=["t"], dead_letters_alert=0)
    with pytest.raises(ConfigurationError, match="has plugin_version=''"):
        Connector(name="x", class_="org.example.Sink", plugin_version="")
    with pytest.raises(ConfigurationError, match="in config= and as plugin_version="):
        Connector(name="x", class_="o.S", plugin_version="1", config={"connector.plugin.version": "2"})
    with pytest.raises(ConfigurationError, match="has on_drift='undo'"):
        Connector(name="x", class_="org.example.Sink", on_drift="undo")  # type: ignore[arg-type]


MAKERS = [
    each
    for each in (getattr(connect, name) for name in connect.__all__)
    if not isinstance(each, type) and inspect.signature(each).return_annotation == "Connector"
]


@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: str(maker.__name__))
def test_each_function_that_makes_one_takes_what_every_connector_has(maker: Any) -> None:
    samples: dict[str, Any] = {
        "hostname": "h",
        "password": {"env": "P"},
        "server_id": 7,
        "topics": ["t"],
        "urls": ["u"],
    }
    samples |= {"flush_size": 5, "url": "hdfs://n" if maker is connect.HdfsSink else "jdbc:postgresql://h/d"}
    needed = [each for each in inspect.signature(maker).parameters.values() if each.default is each.empty]
    named = [each.name for each in needed if each.kind is each.KEYWORD_ONLY]

    made = maker(
        **{name: samples.get(name, "x") for name in named},
        on_drift="repair",
        transforms=[connect.Flatten()],
        key_converter="bytes",
        value_converter="json-with-schema",
    )

    assert made.on_drift == "repair"
    expected = {
        "transforms": "flatten",
        "transforms.flatten.type": "org.apache.kafka.connect.transforms.Flatten$Value",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
    }
    assert expected.items() <= made.properties.items()
