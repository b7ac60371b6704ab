"""A setting that refers to a connection of Airflow: what it is, who gets it, and that nothing shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings

SECRET = "p@ss:w/rd%"
FIELDS = {
    "conn_type": "postgres",
    "login": "shop",
    "password": SECRET,
    "host": "db.example.com",
    "port": 5433,
    "schema": "registry",
    "extra": {"sslmode": "verify-full", "sasl.password": SECRET, "linger.ms": 5, "keepalive": True, "more": {"a": 1}},
}
URI = "postgres://shop:p%40ss%3Aw%2Frd%25@db.example.com:5433/registry?sslmode=verify-full&sasl.password=p%40ss%3Aw%2Frd%25"
VARIABLE = "DELTAWORKS_CONNECTION_shop_2D_db_20_password"


@pytest.fixture(autouse=True)
def no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DELTAWORKS_")]:
        monkeypatch.delenv(name)


def add(monkeypatch: pytest.MonkeyPatch, text: str = json.dumps(FIELDS)) -> None:
    """Adds the connection `shop-db` to Airflow."""
    monkeypatch.setenv("AIRFLOW_CONN_SHOP-DB", text)


def settings(project: Path, field: str | None = None, **variables: str) -> Settings:
    """Those of a project whose `client.id` is the field of the connection, so that any text may be in it."""
    named = "" if field is None else f', field = "{field}"'
    (project / "deltaworks.toml").write_text(f'[kafka]\n"client.id" = {{ airflow = "shop-db"{named} }}\n')
    return Settings.from_environment(variables, cwd=project)


def value(project: Path, field: str | None = None) -> Any:
    return settings(project, field).cluster.client({})["client.id"]


@pytest.mark.parametrize("text", [json.dumps(FIELDS), URI], ids=["JSON", "URI"])
def test_a_reference_names_a_connection_and_what_of_it(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    add(monkeypatch, text)

    assert value(tmp_path) == SECRET
    assert value(tmp_path, "extra.sasl.password") == SECRET
    assert [value(tmp_path, field) for field in ("login", "host", "port", "schema")] == [
        "shop",
        "db.example.com",
        "5433",
        "registry",
    ]
    assert value(tmp_path, "url") == (
        "postgresql+psycopg://shop:p%40ss%3Aw%2Frd%25@db.example.com:5433/registry?sslmode=verify-full"
    )


def test_numbers_and_switches_of_an_extra_are_written_as_kafka_reads_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    add(monkeypatch)

    assert (value(tmp_path, "extra.linger.ms"), value(tmp_path, "extra.keepalive")) == ("5", "true")


def test_any_setting_may_be_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add(monkeypatch)
    (tmp_path / "deltaworks.toml").write_text('control_url = { airflow = "shop-db", field = "url" }\n')

    found = Settings.from_environment({}, cwd=tmp_path)

    assert found.registry_url.startswith("postgresql+psycopg://shop:p%40ss")
    assert found.values.is_reference("DELTAWORKS_CONTROL_URL")


def test_a_driver_gets_the_value_and_needs_no_airflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add(monkeypatch)
    (tmp_path / "deltaworks.toml").write_text(
        'control_url = { airflow = "shop-db", field = "url" }\n'
        '[pipelines.payments.kafka]\n"sasl.password" = { airflow = "shop-db" }\n'
    )
    found = Settings.from_environment({}, cwd=tmp_path)
    environment = found.driver_environment()
    program = (
        "import sys; sys.modules['airflow'] = None\n"
        "from deltaworks.settings import Settings\n"
        "settings = Settings.from_environment()\n"
        "print(settings.registry_url, settings.cluster_of('payments').client({})['sasl.password'])"
    )

    monkeypatch.delenv("AIRFLOW_CONN_SHOP-DB")
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, "PYTHONPATH": found.joined_python_path},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )

    assert said.stdout.split() == [found.registry_url, SECRET], said.stderr
    assert environment[VARIABLE] == SECRET
    assert "DELTAWORKS_CONTROL_URL" not in environment
    assert Settings.from_environment(environment, cwd=Path("/")) == found


def test_a_process_that_does_not_need_it_may_not_find_it(tmp_path: Path) -> None:
    found = settings(tmp_path)

    assert VARIABLE not in found.environment()
    with pytest.raises(ConfigurationError):
        found.cluster.client({})


def test_nothing_shows_it(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    from deltaworks.cli import app

    add(monkeypatch)
    (tmp_path / "deltaworks.toml").write_text(
        'control_url = { airflow = "shop-db", field = "url" }\n[kafka]\n"sasl.password" = { airflow = "shop-db" }\n'
    )
    monkeypatch.chdir(tmp_path)
    found = Settings.from_environment()
    found.driver_environment()

    monkeypatch.setattr(sys, "argv", ["deltaworks", "config", "show"])
    with pytest.raises(SystemExit):
        app.main()

    shown = capsys.readouterr().out
    assert "***" in shown
    for text in (shown, f"{found!r} {found.values!r} {found.cluster!r} {found.cluster}", caplog.text):
        assert SECRET not in text
        assert "p%40ss" not in text


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("", None, "There is no connection 'shop-db'."),
        ("{", None, "There is no connection 'shop-db'."),
        (json.dumps({"conn_type": "kafka", "login": "s3cret"}), None, "has no text or number in 'password'"),
        (json.dumps({"conn_type": "kafka", "password": "s3cret"}), "url", "has no text or number in 'url'"),
        (json.dumps(FIELDS | {"password": "s3cret"}), "extra.nothing", "has no text or number in 'extra.nothing'"),
        (json.dumps(FIELDS | {"password": "s3cret"}), "extra.more", "has no text or number in 'extra.more'"),
        (
            json.dumps({"conn_type": "kafka", "extra": "s3cret"}),
            "extra.a",
            "The extra of the connection",
        ),
        (
            json.dumps({"conn_type": "kafka", "extra": ["s3cret"]}),
            "extra.a",
            "The extra of the connection",
        ),
    ],
)
def test_what_is_not_there_is_told_with_the_key_and_without_secrets(
    text: str, field: str | None, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    add(monkeypatch, text)

    with pytest.raises(ConfigurationError) as raised:
        value(tmp_path, field)

    assert message in str(raised.value)
    assert f"kafka.client.id in {tmp_path / 'deltaworks.toml'} refers to a connection of Airflow" in str(raised.value)
    assert "s3cret" not in str(raised.value)
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_a_connection_that_is_not_there_says_who_finds_which(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        value(tmp_path)

    assert "any other process needs AIRFLOW_CONN_SHOP-DB or a secrets backend" in str(raised.value.hint)


def test_a_lookup_that_fails_does_not_tell_what_it_was_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from airflow.sdk import BaseHook

    def refused(conn_id: str) -> None:
        raise PermissionError(f"s3cret of {conn_id}")

    monkeypatch.setattr(BaseHook, "get_connection", refused)

    with pytest.raises(ConfigurationError, match="cannot look up the connection 'shop-db': PermissionError") as raised:
        value(tmp_path)
    assert "s3cret" not in str(raised.value)


def test_without_airflow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "deltaworks.airflow.connections", raising=False)
    monkeypatch.setitem(sys.modules, "airflow.sdk", None)

    with pytest.raises(ConfigurationError, match=r"but 'airflow\.sdk' is not installed") as raised:
        value(tmp_path)
    assert raised.value.hint == "pip install 'deltaworks[airflow]'"


@pytest.mark.parametrize(
    "reference",
    [
        '{ airflow = "shop-db", field = "passwort" }',
        '{ airflow = "shop-db", field = "extra." }',
        '{ airflow = "shop-db", env = "A" }',
        '{ env = "A", field = "password" }',
        '{ field = "password" }',
        "{ airflow = 1 }",
    ],
)
def test_a_reference_that_is_none_says_what_one_is(reference: str, tmp_path: Path) -> None:
    (tmp_path / "deltaworks.toml").write_text(f"control_url = {reference}\n")

    with pytest.raises(ConfigurationError, match=r"control_url in .* is no reference") as raised:
        Settings.from_environment({}, cwd=tmp_path)
    assert '{ airflow = "connection", field = "password" }' in str(raised.value.hint)


def test_each_connection_and_field_has_a_variable_of_its_own() -> None:
    from deltaworks.config import Reference

    named = [("a-b", "login"), ("a_b", "login"), ("a.b", "login"), ("A-B", "login"), ("a", "extra.b"), ("a", "extra.B")]
    variables = {Reference(origin="test", airflow=conn_id, field=field).variable for conn_id, field in named}

    assert len(variables) == len(named)
    assert not [name for name in variables if name is None or not name.isidentifier()]
