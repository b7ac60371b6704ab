"""The SQL server before it starts: its login, its command, and how it is asked whether it lets a client in."""

from __future__ import annotations

import json
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.stack.java import Java
from deltaworks.stack.sql import client, compiled, server
from tests.support.object_stores import S3_TABLE

COMPLETE, BAD = 5, 3


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}, cwd=tmp_path), home=tmp_path, sql_port=1234)


def test_a_password_is_made_once_and_only_its_user_can_read_it(settings: Settings) -> None:
    first, second = server.credentials(settings), server.credentials(settings)

    assert (first.created_now, second.created_now) == (True, False)
    assert first.password == second.password == first.file.read_text().strip()
    assert len(first.password) > 20
    assert stat.S_IMODE(first.file.stat().st_mode) == 0o600
    assert (first.url, first.user) == ("jdbc:hive2://127.0.0.1:1234/default", "reader")
    assert first.password not in repr(first)


def test_the_password_of_the_settings_is_not_kept(settings: Settings) -> None:
    login = server.credentials(replace(settings, sql_user="bi", sql_password="given"))

    assert (login.user, login.password, login.created_now) == ("bi", "given", False)
    assert not login.file.exists()


@contextmanager
def answering(status: int | None) -> Iterator[tuple[socket.socket, list[bytes]]]:
    """A connection to a server that reads a login, and answers with a status of SASL; None: it hangs up."""
    ours, theirs = socket.socketpair()
    read: list[bytes] = []

    def serve() -> None:
        with theirs:
            read.append(theirs.recv(1000))
            if status is not None:
                theirs.sendall(bytes([status, 0]))
                theirs.sendall(bytes(3))

    thread = threading.Thread(target=serve)
    thread.start()
    with ours:
        yield ours, read
    thread.join()


@pytest.mark.parametrize(("status", "expected"), [(COMPLETE, True), (BAD, False), (None, False)])
def test_a_server_lets_in_whom_it_says_so(status: int | None, expected: bool) -> None:
    with answering(status) as (connection, read):
        assert client.lets_in(connection, "reader", "word") is expected

    assert b"".join(read) == b"\1\0\0\0\5PLAIN" + b"\2\0\0\0\x0c\0reader\0word"


def test_where_nobody_listens_there_is_no_answer(settings: Settings) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert not client.answers(replace(settings, sql_port=unused.getsockname()[1]))


def test_without_the_jars_of_spark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ConfigurationError, match=r"needs PySpark with its jars\.\n  Hint: pip install"):
        compiled.spark_jars()


@pytest.fixture
def stored(tmp_path: Path) -> Settings:
    text = f'tables = "s3://lake/tables"{S3_TABLE}ca_file = "ca.pem"\n'
    (tmp_path / "deltaworks.toml").write_text(text)
    (tmp_path / "ca.pem").touch()
    return Settings.from_environment({}, cwd=tmp_path)


def test_the_keys_of_a_store_are_in_the_environment(settings: Settings, stored: Settings) -> None:
    told = server.store_environment(stored)

    hadoop = json.loads(told["DELTAWORKS_SQL_HADOOP"])
    assert hadoop["fs.s3a.bucket.lake.secret.key"] == "s3cret"
    assert hadoop["fs.s3.impl"].endswith(".S3AFileSystem")
    assert told["DELTAWORKS_SQL_AUTHORITIES"] == str(stored.project / "ca.pem")
    assert server.store_environment(settings) == {}


def test_a_command_has_the_jars_of_a_store_if_the_tables_are_in_one_and_no_key(
    settings: Settings, stored: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ensure_jars", lambda settings, name, report=None: (Path(f"{name}.jar"),))
    monkeypatch.setattr(server, "compiled", lambda settings, java, delta, report: Path(f"from-{delta[0].stem}"))
    monkeypatch.setattr(server, "find_java", lambda settings, versions: Java(home=Path("java"), version=21))
    monkeypatch.setattr(server, "spark_jars", lambda: Path("pyspark"))

    for home, classpath in (
        (settings, "from-spark:spark.jar:pyspark/*"),
        (stored, "from-spark:spark.jar:s3.jar:pyspark/*"),
    ):
        command = server.command(home)
        assert command[command.index("-cp") + 1] == classpath
        assert command[-1] == str(home.tables)
        assert not [word for word in command if "s3cret" in word]
