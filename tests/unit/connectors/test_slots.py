"""How the databases of connectors are asked for their slots, and what is made of the answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from deltaworks.connect import DebeziumPostgres
from deltaworks.connect.answers import Running, Status
from deltaworks.connect.api import ConnectApi, Patience
from deltaworks.connect.connector import Connector
from deltaworks.connect.secrets import Reference
from deltaworks.connect.slots import Slot
from deltaworks.connectors import slots
from deltaworks.connectors.slots import followed, look, seen_soon, trouble
from deltaworks.settings import Settings
from tests.support.fake_connect import FILE_SOURCE, FakeConnect, fake_connect

RUNS = Status("shop_cdc", Running("RUNNING"))
OFFSETS = [{"partition": {"server": "shop"}, "offset": {"lsn": 26858016}}]


def cdc(password: Reference = "${env:SLOT_PASSWORD}", **config: Any) -> Connector:
    return DebeziumPostgres(
        name="shop_cdc", hostname="db", user="cdc", password=password, dbname="shop", topic_prefix="shop", config=config
    )


class Database:
    """What psycopg is told, and what it answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.row: Mapping[str, Any] | None = {"wal_status": "reserved"}
        self.behind: int | None = 4_096
        self.logins: list[dict[str, Any]] = []
        self.fails = False
        monkeypatch.setattr(psycopg, "connect", self._connect)

    def _connect(self, **login: Any) -> Database:
        self.logins.append(login)
        if self.fails:
            raise psycopg.OperationalError("connection refused")
        return self

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, query: str, values: tuple[str, ...]) -> Database:
        assert "pg_replication_slots" in query and values == ("shop_cdc",)
        return self

    def fetchone(self) -> tuple[Mapping[str, Any], int | None] | None:
        return None if self.row is None else (self.row, self.behind)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setenv("SLOT_PASSWORD", "s3cret")
    return Database(monkeypatch)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("HOME", str(tmp_path))
    return replace(Settings.from_environment({}), home=tmp_path / "home")


@pytest.fixture
def fake() -> Iterator[FakeConnect]:
    with fake_connect() as made:
        yield made


def client(fake: FakeConnect) -> ConnectApi:
    return ConnectApi(fake.url, patience=Patience(rebalance_s=0.0))


def test_the_database_is_asked_as_the_file_of_the_connector_says(database: Database, settings: Settings) -> None:
    database.behind = None
    database.row = {"wal_status": "lost", "invalidation_reason": "wal_removed", "slot_name": "shop_cdc"}

    assert look(settings, cdc()) == Slot(name="shop_cdc", wal_status="lost", why="wal_removed")
    (login,) = database.logins
    asked = {name: login[name] for name in ("host", "port", "user", "dbname", "password")}
    assert asked == {"host": "db", "port": "5432", "user": "cdc", "dbname": "shop", "password": "s3cret"}
    assert login["connect_timeout"] <= 2


def test_an_older_database_says_no_reason_and_a_missing_slot_is_no_row(database: Database, settings: Settings) -> None:
    assert look(settings, cdc()) == Slot(name="shop_cdc", wal_status="reserved", behind_bytes=4_096)
    database.behind = -8
    assert look(settings, cdc()) == Slot(name="shop_cdc", wal_status="reserved", behind_bytes=0), "it has read ahead"
    database.row = None
    assert look(settings, cdc()) == Slot(name="shop_cdc", exists=False)


def test_a_database_that_does_not_answer_is_not_known(database: Database, settings: Settings) -> None:
    database.fails = True
    assert look(settings, cdc()) == Slot(name="shop_cdc", known=False)


def test_a_database_whose_password_is_not_known_here_is_not_asked(database: Database, settings: Settings) -> None:
    vault = {"provider": "vault", "path": "db/shop", "key": "password"}
    for password in (vault, {"env": "NOT_SET"}, {"file": "/missing", "key": "pw"}):
        assert look(settings, cdc(password)) is None
    assert look(settings, Connector(name="lines", class_=FILE_SOURCE)) is None
    assert database.logins == []


def test_a_pgpass_is_used_where_no_password_is_known(database: Database, settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / ".pgpass"
    file.write_text("db:5432:shop:cdc:word\n")

    assert look(settings, cdc({"env": "NOT_SET"})) is not None
    assert database.logins[0]["passfile"] == str(file) and "password" not in database.logins[0]


def test_the_database_of_the_home_is_known(database: Database, settings: Settings) -> None:
    settings.home.mkdir()
    settings.source_pgpass.write_text("127.0.0.1:*:*:cdc:word\n")
    own = cdc({"env": "NOT_SET"})
    ours = replace(own, config={**own.config, "database.hostname": "127.0.0.1",
                                "database.port": settings.source_postgres_port})  # fmt: skip

    assert look(settings, own) is None
    assert look(settings, ours) is not None
    assert database.logins[0]["passfile"] == str(settings.source_pgpass)


def test_references_are_followed_to_variables_and_files_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOT_PASSWORD", "of env")
    (tmp_path / "cdc.properties").write_text("# pw=comment\nuser = cdc\npw = of=file\n")
    (tmp_path / "cdc").write_text("of directory\n")

    assert followed("plain") == "plain"
    assert followed("${env:SLOT_PASSWORD}") == "of env"
    assert followed(f"${{file:{tmp_path}/cdc.properties:pw}}") == "of=file"
    assert followed(f"${{directory:{tmp_path}:cdc}}") == "of directory"
    for nowhere in (
        f"${{file:{tmp_path}/cdc.properties:none}}",
        "${vault:a:b}",
        "x${env:SLOT_PASSWORD}",
        "${env:NONE}",
    ):
        assert followed(nowhere) is None


def test_a_missing_slot_matters_once_the_connector_has_offsets(fake: FakeConnect) -> None:
    made = fake.add("shop_cdc", cdc().properties)
    gone = Slot(name="shop_cdc", exists=False)
    with client(fake) as api:
        assert trouble(api, "shop_cdc", RUNS, gone) is None
        made.offsets = OFFSETS
        found = trouble(api, "shop_cdc", RUNS, gone)
    assert found is not None and found.danger == "lost"


def test_whoever_waits_gets_what_is_known_soon(
    fake: FakeConnect, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "SOON_S", 0.2)

    def slow(_: Settings, connector: Connector) -> Slot:
        time.sleep(5.0 if connector.name == "slow" else 0.0)
        return Slot(name=connector.name, wal_status="lost")

    monkeypatch.setattr(slots, "look", slow)
    connectors = {name: replace(cdc(), name=name) for name in ("slow", "quick")}
    begun = time.monotonic()
    with client(fake) as api:
        found = seen_soon(settings, api, connectors, dict.fromkeys(("slow", "quick", "theirs"), RUNS))

    assert {name: each.answered for name, each in found.items()} == {"slow": False, "quick": True, "theirs": True}
    assert [name for name, each in found.items() if each.trouble is not None] == ["quick"]
    assert time.monotonic() - begun < 3.0
