"""Plugins of Kafka Connect against their lock, without a network: Ivy is replaced."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings
from deltaworks.stack import connect_plugins, jars
from deltaworks.stack.connect_plugins import ensure, folder, known, versions
from deltaworks.stack.ivy import Module
from deltaworks.stack.jars import Jar, read_lock
from deltaworks.stack.java import Java
from tests.unit.stack.test_components import INFRA

POSTGRES = "debezium-postgres"


def archive(**files: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return out.getvalue()


class Repository:
    """Serves what it was told, and counts."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.asked: list[str] = []

    def download(self, java: Java, settings: Settings, modules: Sequence[Module], *, into: Path, **_: Any) -> None:
        for module in modules:
            self.asked.append(module.artifact)
            (into / module.file_name).write_bytes(self.content[module.artifact])


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    repository = Repository()
    monkeypatch.setattr(jars, "download", repository.download)
    monkeypatch.setattr(jars, "find_java", lambda *_: Java(home=Path("/java"), version=17))
    return repository


@pytest.fixture
def settings(tmp_path: Path, repository: Repository) -> Settings:
    """A lock with the modules of the real one, and other content."""
    for jar in read_lock(INFRA, "connect-plugins").jars:
        name = jar.module.artifact
        is_jar = jar.module.extension == "jar"
        repository.content[name] = b"a jar" if is_jar else archive(**{f"{name}/one.jar": name, f"{name}/LICENSE": "l"})
    infra = tmp_path / "infra"
    (infra / "jars").mkdir(parents=True)
    (infra / "components.toml").write_bytes((INFRA / "components.toml").read_bytes())
    lock(infra, repository.content)
    found = Settings.from_environment({"HOME": str(tmp_path)}, cwd=tmp_path)
    return replace(found, infra=infra, cache=tmp_path / "cache")


def lock(infra: Path, content: dict[str, bytes]) -> None:
    modules = [jar.module for jar in read_lock(INFRA, "connect-plugins").jars]
    lines = [Jar(m, hashlib.sha256(content[m.artifact]).hexdigest(), len(content[m.artifact])) for m in modules]
    (infra / "jars" / "connect-plugins.lock").write_text("\n".join(map(str, lines)) + "\n")


def files(settings: Settings) -> dict[str, str]:
    there = sorted(file for file in folder(settings).rglob("*") if file.is_file() and not file.name.startswith("."))
    return {file.relative_to(folder(settings)).as_posix(): file.read_text() for file in there}


def test_without_a_choice_only_connectors_of_files_are_there(settings: Settings, repository: Repository) -> None:
    ensure(settings, print)

    assert repository.asked == ["connect-file"]
    (name,) = files(settings)
    assert name.startswith("file/org.apache.kafka__connect-file__")


def test_an_archive_is_unpacked_into_a_folder_of_its_own_once(settings: Settings, repository: Repository) -> None:
    both = replace(settings, connect_plugins=(POSTGRES, "jdbc"))

    for _ in range(2):
        ensure(both, print)

    assert files(both) == {
        "debezium-postgres/debezium-connector-postgres/LICENSE": "l",
        "debezium-postgres/debezium-connector-postgres/one.jar": "debezium-connector-postgres",
        "jdbc/debezium-connector-jdbc/LICENSE": "l",
        "jdbc/debezium-connector-jdbc/one.jar": "debezium-connector-jdbc",
    }
    assert sorted(repository.asked) == ["debezium-connector-jdbc", "debezium-connector-postgres"]


def test_another_choice_takes_plugins_away_and_another_home_downloads_nothing(
    settings: Settings, repository: Repository
) -> None:
    ensure(replace(settings, connect_plugins=(POSTGRES, "file")), print)
    ensure(settings, print)
    other = replace(settings, home=settings.home.with_name("other"), connect_plugins=(POSTGRES,))
    ensure(other, print)

    assert {name.partition("/")[0] for name in files(settings)} == {"file"}
    assert {name.partition("/")[0] for name in files(other)} == {POSTGRES}
    assert len(repository.asked) == 2


def test_a_plugin_of_another_version_replaces_the_one_that_is_there(settings: Settings, repository: Repository) -> None:
    own = replace(settings, connect_plugins=(POSTGRES,))
    ensure(own, print)
    repository.content["debezium-connector-postgres"] = archive(new="n")
    lock(settings.infra, repository.content)

    ensure(own, print)

    assert files(own) == {"debezium-postgres/new": "n"}


def test_one_that_was_not_unpacked_to_its_end_is_unpacked_again(settings: Settings) -> None:
    own = replace(settings, connect_plugins=(POSTGRES,))
    half = folder(own) / POSTGRES / "half"
    half.parent.mkdir(parents=True)
    half.touch()

    ensure(own, print)

    assert f"{POSTGRES}/debezium-connector-postgres/one.jar" in files(own)
    assert not half.exists()


def test_one_that_is_not_what_the_lock_says_is_refused_and_not_unpacked(
    settings: Settings, repository: Repository
) -> None:
    repository.content["debezium-connector-postgres"] = archive(evil="e")

    with pytest.raises(ConfigurationError, match=r"postgres:3\S+:tar.gz:plugin does not match the lock: SHA-256"):
        ensure(replace(settings, connect_plugins=(POSTGRES,)), print)

    assert files(settings) == {}
    assert not list((settings.cache / "jars").glob("io.debezium*"))


def test_an_archive_writes_nothing_outside_of_its_folder(
    settings: Settings, repository: Repository, tmp_path: Path
) -> None:
    repository.content["debezium-connector-postgres"] = archive(**{"../outside": "o"})
    lock(settings.infra, repository.content)

    with pytest.raises(StackError, match=r"cannot be unpacked into .*: '\.\./outside' is a link, a device or"):
        ensure(replace(settings, connect_plugins=(POSTGRES,)), print)

    assert list(tmp_path.rglob("outside")) == []


def test_an_unknown_name_is_refused_with_the_known_ones_before_anything_changes(
    settings: Settings, repository: Repository
) -> None:
    message = r"no plugin 'debezium-oracle' here\.\n  Hint: DELTAWORKS_CONNECT_PLUGINS may name file, debezium-"
    with pytest.raises(ConfigurationError, match=message):
        ensure(replace(settings, connect_plugins=("file", "debezium-oracle")), print)

    assert repository.asked == []
    assert not folder(settings).exists()


def test_every_plugin_of_the_lock_has_a_name() -> None:
    here = Settings.from_environment()
    locked = {jar.module.artifact for jar in read_lock(here.infra, "connect-plugins").jars}

    assert {plugin.module.artifact for plugin in known(here).values()} == locked
    assert connect_plugins.known(here).keys() >= {"file", POSTGRES, "debezium-mariadb", "debezium-mysql", "jdbc"}


def test_the_lock_says_versions_of_workers_of_this_home_and_of_no_others(tmp_path: Path) -> None:
    settings = replace(Settings.from_environment({}), home=tmp_path, infra=INFRA)
    assert versions(settings, "http://127.0.0.1:1") == {}
    (tmp_path / "connect").mkdir()
    settings.connect_access_in(tmp_path).write_text('[connect]\nurl = "http://127.0.0.1:1"\nusername = "deltaworks"\n')

    assert versions(settings, "http://connect.example.com:8083") == {}
    found = versions(settings, "http://127.0.0.1:1")
    locked = {jar.module.version for jar in read_lock(INFRA, "connect-plugins").jars}
    assert set(found.values()) == locked
    assert found["io.debezium.connector.postgresql.PostgresConnector"].endswith(".Final")
