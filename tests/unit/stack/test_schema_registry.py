"""The schema registry before it starts: its passwords, what clients are told, and its configuration."""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import home
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings
from deltaworks.stack import ports, schema_registry
from deltaworks.stack.components import read_components
from deltaworks.stack.native import NativeHost

NAME = "schema-registry"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home in which nothing is built."""
    monkeypatch.setattr(schema_registry, "ensure_built", lambda *_: Path("/cache/schema-registry"))
    (port,) = ports.free_ports(1)
    return replace(Settings.from_environment({}, cwd=tmp_path), home=tmp_path / "home", schema_registry_port=port)


def prepared(settings: Settings) -> Settings:
    home.make(settings)
    schema_registry.prepare(settings, read_components(settings.infra).software["axonops"], print)
    return settings


def told(settings: Settings) -> Mapping[str, object]:
    """What the settings say to whoever works in the home."""
    variables = {"DELTAWORKS_HOME": str(settings.home)}
    return Settings.from_environment(variables, cwd=settings.project).values.table("schema_registry")


def test_passwords_are_made_once_and_only_their_user_can_read_them(settings: Settings) -> None:
    first, second = (schema_registry.credentials(prepared(settings)) for _ in range(2))

    assert (first.user, first.password) == (second.user, second.password) != (second.user, "")
    assert len(first.password) == 60
    assert first.password not in repr(first)
    folder = settings.schema_registry
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.rglob("*") if file.is_file()} == {0o600}
    assert {stat.S_IMODE(each.stat().st_mode) for each in (folder, folder / "secrets")} == {0o700}


def test_they_are_new_only_the_first_time_and_together(settings: Settings) -> None:
    """The password of the role tells whether that of the user is in the database."""
    home.make(settings)
    files = [settings.schema_registry / "secrets" / name for name in ("password", "database")]

    assert [schema_registry.credentials(settings).created_now for _ in range(2)] == [True, False]
    before = [file.read_text() for file in files]
    files[0].unlink()
    assert schema_registry.credentials(settings).created_now
    assert not {file.read_text() for file in files} & set(before)


def test_clients_are_told_where_it_is_and_where_the_password_is(settings: Settings) -> None:
    file = settings.schema_registry_access_in(prepared(settings).home)
    table = tomllib.loads(file.read_text())["schema_registry"]

    login = schema_registry.credentials(settings)
    assert (file.parent / table.pop("password")["file"]).read_text().strip() == login.password
    assert table == {"url": f"http://127.0.0.1:{settings.schema_registry_port}", "username": "deltaworks"}
    assert login.password not in file.read_text()


def test_another_port_is_told_at_the_next_start(settings: Settings) -> None:
    prepared(settings)
    prepared(replace(settings, schema_registry_port=8081))

    assert told(settings)["url"] == "http://127.0.0.1:8081"


def test_a_home_uses_its_own_registry_unless_another_one_is_named(settings: Settings) -> None:
    file = settings.project / "deltaworks.toml"
    url = f"http://127.0.0.1:{prepared(settings).schema_registry_port}"

    file.write_text("[schema_registry]\nregister = false\n")
    assert {name: told(settings)[name] for name in ("url", "username", "register")} == {
        "url": url,
        "username": "deltaworks",
        "register": "false",
    }

    file.write_text('[schema_registry]\nurl = "https://registry.example.com"\n')
    assert told(settings) == {"url": "https://registry.example.com"}, "no password of ours goes to another one"


def test_what_the_stack_has_not_written_is_refused(settings: Settings) -> None:
    settings.schema_registry_access_in(prepared(settings).home).write_text("[schema_registry]\nregister = true\n")

    with pytest.raises(ConfigurationError, match=r"is not as the stack has written it\.\n.*deltaworks up schema-reg"):
        told(settings)


def test_it_listens_on_this_machine_and_gets_its_passwords_in_the_environment(settings: Settings) -> None:
    software = read_components(settings.infra).software["axonops"]
    program, option = schema_registry.command(prepared(settings), software)
    environment = schema_registry.environment(settings)

    assert (program, option) == ("/cache/schema-registry", f"--config={settings.schema_registry}/registry.yaml")
    text = Path(option.removeprefix("--config=")).read_text()
    written = json.loads(text)
    assert written["server"] == {"host": "127.0.0.1", "port": settings.schema_registry_port}
    assert written["storage"]["postgresql"]["port"] == settings.postgres_port
    assert written["security"]["auth"]["enabled"] is True
    secrets = {(settings.schema_registry / "secrets" / name).read_text().strip() for name in ("password", "database")}
    assert {value for name, value in environment.items() if name.endswith("_PASSWORD")} == secrets
    assert not [secret for secret in secrets if secret in text]
    assert Path(environment["HOME"]) == settings.schema_registry


def test_it_is_left_out_unless_somebody_asks_for_it_and_brings_its_database(settings: Settings) -> None:
    components = read_components(settings.infra)

    assert NAME not in {component.name for component in components.chosen(None)}
    assert [component.name for component in components.chosen([NAME])] == ["postgres", "registry", NAME]


def test_its_process_begins_as_a_module_that_shows_no_password(settings: Settings) -> None:
    host = NativeHost.of(prepared(settings))

    launch = host.launch(host.components.by_name[NAME])

    assert launch.command == [sys.executable, "-P", "-m", "deltaworks.stack.schema_registry"]
    assert schema_registry.credentials(settings).password not in str((launch.command, launch.environment))


def test_where_nobody_listens_there_is_no_answer(settings: Settings) -> None:
    assert not schema_registry.answers(prepared(settings))


def test_without_postgresql_it_says_so(settings: Settings) -> None:
    (port,) = ports.free_ports(1)

    with pytest.raises(StackError, match=r"(?s)gives the schema registry no database: .*deltaworks logs postgres"):
        schema_registry.make_database(replace(prepared(settings), postgres_port=port))


def test_whoever_has_its_port_is_named_with_the_variable(settings: Settings) -> None:
    host, port = NativeHost.of(settings), settings.schema_registry_port

    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(
            StackError,
            match=rf"(?s)Port {port}, where {NAME} .* process {os.getpid()} .*DELTAWORKS_SCHEMA_REGISTRY_PORT=",
        ):
            host.require_room_and_ports(host.components.by_name[NAME])
