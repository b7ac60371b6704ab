"""OpenSearch before it starts: its archive, its configuration, its ports."""

from __future__ import annotations

import hashlib
import stat
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from deltaworks import home
from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings
from deltaworks.stack import jars, opensearch
from deltaworks.stack.components import read_components
from deltaworks.stack.ivy import Module
from deltaworks.stack.jars import Jar, read_lock
from deltaworks.stack.java import Java
from deltaworks.stack.native import NativeHost
from tests.unit.stack.test_components import INFRA

MODULE = Module.parse("org.opensearch.distribution.integ-test-zip:opensearch:2.19.6:zip")
TOP = "opensearch-2.19.6"


def archive(file: Path, *others: tuple[str, int]) -> bytes:
    with zipfile.ZipFile(file, "w") as out:
        for name, mode in ((f"{TOP}/bin/opensearch", 0o100755), (f"{TOP}/lib/one.jar", 0o100644), *others):
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            out.writestr(entry, name)
    return file.read_bytes()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A lock of an archive in the cache, so that nothing is downloaded."""
    monkeypatch.setattr(opensearch, "find_java", lambda *_: Java(home=Path("/java"), version=17))
    monkeypatch.setattr(opensearch, "server_user", lambda: None)
    infra = tmp_path / "infra"
    infra.mkdir()
    for name in ("components.toml", "opensearch"):
        (infra / name).symlink_to(INFRA / name)
    found = Settings.from_environment({"HOME": str(tmp_path)}, cwd=tmp_path)
    own = replace(found, infra=infra, cache=tmp_path / "cache", home=tmp_path / "home")
    serve(own, archive(tmp_path / "archive"))
    home.make(own)
    return own


def serve(settings: Settings, content: bytes) -> None:
    """Has the archive in the cache, and in the lock."""
    (settings.cache / "jars").mkdir(parents=True, exist_ok=True)
    (settings.cache / "jars" / MODULE.file_name).write_bytes(content)
    (settings.infra / "jars").mkdir(exist_ok=True)
    jar = Jar(MODULE, hashlib.sha256(content).hexdigest(), len(content))
    (settings.infra / "jars" / "opensearch.lock").write_text(f"{jar}\n")


def prepare(settings: Settings) -> None:
    opensearch.prepare(settings, read_components(settings.infra), print)


def test_the_lock_has_the_archive_by_its_name_and_sum() -> None:
    [locked] = read_lock(INFRA, "opensearch").jars

    assert locked.module == MODULE
    assert str(locked.module) == f"{MODULE.group}:opensearch:2.19.6:zip"
    assert locked.module.file_name.endswith("__opensearch__2.19.6.zip")
    assert Module.parse(str(locked.module)) == MODULE


def test_the_program_is_unpacked_once_and_the_server_cannot_change_it(settings: Settings) -> None:
    prepare(settings)
    program = settings.opensearch / "program" / TOP
    (program / "own").touch()
    prepare(settings)

    assert (program / "own").exists()
    modes = {name: stat.S_IMODE((program / name).stat().st_mode) for name in ("bin/opensearch", "lib/one.jar")}
    assert modes == {"bin/opensearch": 0o755, "lib/one.jar": 0o644}
    assert stat.S_IMODE(settings.opensearch.stat().st_mode) == 0o700
    for name in ("config", "data", "tmp"):
        assert stat.S_IMODE((settings.opensearch / name).stat().st_mode) == 0o700
    assert settings.opensearch in settings.parts, "down --delete-data knows it"


@pytest.mark.parametrize(
    ("name", "mode"), [("../outside", 0o100644), ("/outside", 0o100644), (f"{TOP}/link", stat.S_IFLNK | 0o777)]
)
def test_an_archive_with_links_or_ways_out_is_refused_before_anything_is_unpacked(
    settings: Settings, tmp_path: Path, name: str, mode: int
) -> None:
    serve(settings, archive(tmp_path / "evil", (name, mode)))

    with pytest.raises(StackError, match=f"'{name}' is a link, a device or leads out of the folder"):
        prepare(settings)

    assert list((settings.opensearch / "program").iterdir()) == []
    assert list(tmp_path.rglob("outside")) == []


def test_an_archive_that_is_not_what_the_lock_says_is_refused(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = settings.cache / "jars" / MODULE.file_name
    cached.write_bytes(b"evil")
    monkeypatch.setattr(jars, "find_java", lambda *_: Java(home=Path("/java"), version=17))
    monkeypatch.setattr(jars, "download", lambda *_, into, **__: (into / MODULE.file_name).write_bytes(b"evil"))

    with pytest.raises(ConfigurationError, match=r"opensearch:2.19.6:zip does not match the lock: SHA-256"):
        prepare(settings)


def test_it_listens_on_this_machine_only_and_makes_no_index_by_itself(settings: Settings) -> None:
    own = replace(settings, home=settings.home.with_name("it's: home"))
    prepare(own)
    found = yaml.safe_load((own.opensearch / "config" / "opensearch.yml").read_text())

    assert found["network.host"] == "127.0.0.1"
    assert (found["http.port"], found["transport.port"]) == opensearch.ports(own)
    assert found["path.data"] == str(own.opensearch / "data")
    assert found["action.auto_create_index"] is False


def test_it_takes_the_next_port_for_itself(settings: Settings) -> None:
    host = NativeHost.of(settings)
    component = read_components(settings.infra).by_name["opensearch"]

    assert host.ports(component) == (settings.opensearch_port, settings.opensearch_port + 1)
    with pytest.raises(ConfigurationError, match=r"is 65535; OpenSearch takes the next port as well"):
        prepare(replace(settings, opensearch_port=65_535))


def test_it_gets_no_variable_of_the_user_and_has_a_folder_for_temporary_files(settings: Settings) -> None:
    launch = NativeHost.of(settings).launch(read_components(settings.infra).by_name["opensearch"])

    assert set(launch.environment) == {"PATH", "HOME", "LC_ALL", "TMPDIR"}
    assert launch.command[0] == "/java/bin/java"
    assert f"-Djava.io.tmpdir={settings.opensearch}/tmp" in launch.command
    assert not [word for word in launch.command if word.startswith("#") or not word]
