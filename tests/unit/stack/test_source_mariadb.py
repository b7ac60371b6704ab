"""The MariaDB of a home before it starts: which one is taken, its users, its command."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import home
from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.stack import debian, source_mariadb
from deltaworks.stack.components import read_components

SERVER = "#!/bin/sh\necho 'mariadbd  Ver {version} for debian-linux-gnu on x86_64'\n"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home on a machine without MariaDB and without apt."""
    monkeypatch.setattr(source_mariadb, "_USUAL", ())
    monkeypatch.setattr(source_mariadb, "server_user", lambda: None)
    monkeypatch.setattr(debian, "is_here", lambda _: False)
    settings = replace(Settings.from_environment({}, cwd=tmp_path), home=tmp_path / "home", path=())
    home.make(settings)
    return settings


def installed(folder: Path, version: str = "10.11.19-MariaDB-0+deb12u1", *, without: str = "") -> Path:
    """Programs that say a version; the folder of the server."""
    for name in ("sbin/mariadbd", "bin/mariadb-install-db", "bin/mariadb"):
        if name.rpartition("/")[2] != without:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(SERVER.format(version=version))
            (folder / name).chmod(0o755)
    return folder / "sbin"


def test_that_of_the_settings_is_taken_before_that_of_the_path_and_no_other(settings: Settings, tmp_path: Path) -> None:
    on_path = replace(settings, path=(installed(tmp_path / "path"),))
    chosen = replace(on_path, mariadb_bin=installed(tmp_path / "own"))

    assert source_mariadb.find_programs(on_path).server == tmp_path / "path/sbin/mariadbd"
    assert source_mariadb.find_programs(chosen).client == tmp_path / "own/bin/mariadb"
    with pytest.raises(ConfigurationError, match=r"has no mariadbd(?s:.*)DELTAWORKS_MARIADB_BIN="):
        source_mariadb.prepare(replace(on_path, mariadb_bin=tmp_path / "none" / "bin"), print)


@pytest.mark.parametrize(
    ("version", "without", "told"),
    [
        ("10.4.2-MariaDB", "", "version 10.4, older than 10.5"),
        ("8.4.0", "", "mariadbd does not start"),
        ("10.11.19-MariaDB", "mariadb-install-db", "it has no mariadb-install-db"),
    ],
)
def test_one_that_cannot_be_used_is_named_with_the_reason(
    settings: Settings, tmp_path: Path, version: str, without: str, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        source_mariadb.find_programs(replace(settings, path=(installed(tmp_path / "x", version, without=without),)))


def test_without_mariadb_and_apt_the_way_out_is_named_and_nothing_is_made(settings: Settings) -> None:
    told = r"None was found\.\n  Hint: on Debian(?s:.*)DELTAWORKS_MARIADB_BIN=<folder with mariadbd>(?s:.*)of your own"
    with pytest.raises(ConfigurationError, match=told):
        source_mariadb.prepare(settings, print)

    assert list(settings.source_mariadb.iterdir()) == []
    assert not settings.source_options.exists()


def test_passwords_are_made_once_and_clients_read_them(settings: Settings) -> None:
    first, second = (source_mariadb.make_passwords(settings) for _ in range(2))

    assert first == second == source_mariadb.passwords(settings)
    assert set(first) == {"root", "app", "cdc"}
    assert stat.S_IMODE(settings.source_options.stat().st_mode) == 0o600
    assert "[client-cdc]\nprotocol=tcp\n" in settings.source_options.read_text()
    assert {settings.source_mariadb, settings.source_options} <= set(settings.parts), "down --delete-data knows them"
    login = source_mariadb.credentials(settings)
    assert login.password == first["app"] and login.password not in repr(login)


def test_its_statements_are_one_per_line_and_not_in_the_log(settings: Settings) -> None:
    lines = source_mariadb._statements(source_mariadb.make_passwords(settings))

    assert lines[0] == "SET SESSION sql_log_bin = 0;"
    assert all(line.endswith(";") and line.count(";") == 1 and "\n" not in line for line in lines)
    of_cdc = [line for line in lines if line.startswith("GRANT") and "'cdc'" in line]
    assert of_cdc == [
        "GRANT SELECT, LOCK TABLES ON shop.* TO 'cdc'@'127.0.0.1';",
        "GRANT RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'cdc'@'127.0.0.1';",
    ]


def test_it_listens_on_this_machine_only_and_its_command_shows_no_password(settings: Settings, tmp_path: Path) -> None:
    own = replace(settings, path=(installed(tmp_path / "path"),))
    words = source_mariadb.make_passwords(own)
    command = source_mariadb.command(own, read_components(own.infra).software["mariadb"])

    assert command[:2] == [str(tmp_path / "path/sbin/mariadbd"), "--no-defaults"]
    expected = {"--bind-address=127.0.0.1", "--socket=", "--binlog-format=ROW", "--binlog-row-image=FULL"}
    assert expected <= set(command)
    assert not [word for word in words.values() if word in str((command, source_mariadb.environment(own)))]
