"""The two PostgreSQLs of a home before they start: what is theirs, and who may do what."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import home
from deltaworks.settings import Settings
from deltaworks.stack import postgres, postgres_server, source_postgres
from deltaworks.stack.components import read_components


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = replace(Settings.from_environment({}, cwd=tmp_path), home=tmp_path / "home")
    home.make(settings)
    return settings


def test_two_servers_share_nothing(settings: Settings) -> None:
    one, two = postgres.server(settings), source_postgres.server(settings)

    assert {one.name, one.folder, one.pgpass, one.port}.isdisjoint({two.name, two.folder, two.pgpass, two.port})
    assert {settings.source_postgres, settings.source_pgpass} <= set(settings.parts), "down --delete-data knows them"


def test_passwords_are_made_once_for_each_role_and_only_their_user_can_read_them(settings: Settings) -> None:
    server = source_postgres.server(settings)
    first, second = (postgres_server.make_passwords(server) for _ in range(2))

    assert first == second == postgres_server.passwords(server)
    assert set(first) == {"postgres", "app", "cdc"}
    assert len(set(first.values())) == 3
    assert stat.S_IMODE(server.pgpass.stat().st_mode) == 0o600


def test_the_login_of_the_application_hides_the_password_and_is_new_once(settings: Settings) -> None:
    first, second = (source_postgres.credentials(settings) for _ in range(2))

    assert (first.created_now, second.created_now) == (True, False)
    assert first.password == second.password
    assert first.password not in repr(first)
    assert first.url == f"postgresql://app@127.0.0.1:{settings.source_postgres_port}/shop"


def test_its_log_is_decoded_and_cannot_fill_the_disk(settings: Settings) -> None:
    options = read_components(settings.infra).software["source-postgres"].settings

    assert options["wal_level"] == "logical"
    assert options["max_slot_wal_keep_size"] == "1GB"
    assert int(options["max_wal_senders"]) >= int(options["max_replication_slots"]) >= 10


def test_ports_and_programs_come_from_the_file_of_the_project(tmp_path: Path) -> None:
    lines = ("source_postgres_port = 5000", "source_mariadb_port = 5001", "opensearch_port = 5002")
    (tmp_path / "deltaworks.toml").write_text("\n".join((*lines, 'mariadb_bin = "/opt/mariadb/bin"', "")))

    found = Settings.from_environment({"DELTAWORKS_OPENSEARCH_PORT": "5003"}, cwd=tmp_path)
    again = Settings.from_environment(found.environment(), cwd=tmp_path)

    for each in (found, again):
        assert (each.source_postgres_port, each.source_mariadb_port, each.opensearch_port) == (5000, 5001, 5003)
        assert each.mariadb_bin == Path("/opt/mariadb/bin")
