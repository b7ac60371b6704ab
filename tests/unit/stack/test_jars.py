"""Jars against their locks, without a network: Ivy is replaced."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks.errors import ConfigurationError, StackError
from deltaworks.settings import Settings
from deltaworks.stack import ivy, jars
from deltaworks.stack.ivy import Module
from deltaworks.stack.jars import Jar, JarSet, ensure_jars, read_lock
from deltaworks.stack.java import Java

CONTENT = {"g:a:1": b"first jar", "g.h:b-c:2.0-1": b"second jar"}


class Repository:
    """Serves `content` and counts."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.asked: list[str] = []

    def download(self, java: Java, settings: Settings, modules: Sequence[Module], *, into: Path, **_: Any) -> None:
        for module in modules:
            self.asked.append(str(module))
            (into / module.file_name).write_bytes(self.content[str(module)])


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    repository = Repository(dict(CONTENT))
    monkeypatch.setattr(jars, "download", repository.download)
    monkeypatch.setattr(jars, "find_java", lambda *_: Java(home=Path("/java"), version=17))
    return repository


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    infra = tmp_path / "infra"
    (infra / "jars").mkdir(parents=True)
    (infra / "components.toml").write_bytes((Path(__file__).parents[3] / "infra" / "components.toml").read_bytes())
    lock = [Jar(Module.parse(m), hashlib.sha256(c).hexdigest(), len(c)) for m, c in CONTENT.items()]
    (infra / "jars" / "x.lock").write_text("# two\n" + "\n".join(map(str, lock)) + "\n")
    return replace(
        Settings.from_environment({"HOME": str(tmp_path)}, cwd=tmp_path), infra=infra, cache=tmp_path / "cache"
    )


def test_jars_are_downloaded_once_and_linked_into_the_home(repository: Repository, settings: Settings) -> None:
    paths = ensure_jars(settings, "x")

    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert {path.parent for path in paths} == {settings.jars / "x"}
    assert ensure_jars(settings, "x") == paths
    assert repository.asked == list(CONTENT)


def test_another_clone_of_the_same_user_downloads_nothing(repository: Repository, settings: Settings) -> None:
    ensure_jars(settings, "x")

    paths = ensure_jars(replace(settings, home=settings.home.with_name("other")), "x")

    assert all(path.is_file() for path in paths)
    assert repository.asked == list(CONTENT)


def test_a_jar_that_was_altered_in_the_cache_is_loaded_again(repository: Repository, settings: Settings) -> None:
    ensure_jars(settings, "x")
    victim = settings.cache / "jars" / "g__a__1.jar"
    victim.unlink()
    victim.write_bytes(b"worse jar")

    ensure_jars(replace(settings, home=settings.home.with_name("other")), "x")

    assert repository.asked == [*CONTENT, "g:a:1"]


def test_a_jar_that_is_not_what_the_lock_says_is_refused_and_not_kept(
    repository: Repository, settings: Settings
) -> None:
    repository.content["g:a:1"] = b"other jar"

    with pytest.raises(ConfigurationError, match=r"g:a:1 does not match the lock: SHA-256 [0-9a-f]{64}, expected"):
        ensure_jars(settings, "x")

    assert not list((settings.cache / "jars").glob("g__*"))
    assert not (settings.jars / "x").exists()


def test_a_changed_lock_replaces_the_folder(repository: Repository, settings: Settings) -> None:
    ensure_jars(settings, "x")
    lock = settings.infra / "jars" / "x.lock"
    lock.write_text("".join(lock.read_text().splitlines(keepends=True)[:2]))

    paths = ensure_jars(settings, "x")

    assert [path.name for path in (settings.jars / "x").glob("*.jar")] == [path.name for path in paths]
    assert len(paths) == 1


def test_an_unknown_set_names_the_known_ones(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match=r"no set of jars named 'y'.\n  Hint: known sets: x"):
        ensure_jars(settings, "y")


def test_a_lock_reads_as_it_was_written(settings: Settings) -> None:
    found = read_lock(settings.infra, "x")

    assert [str(jar.module) for jar in found.jars] == list(CONTENT)
    assert [jar.size_bytes for jar in found.jars] == [len(content) for content in CONTENT.values()]
    assert found.digest != JarSet("x", found.jars[:1]).digest


@pytest.mark.parametrize(
    ("text", "file", "asked"),
    [
        ("g.h:b-c:2.0-1", "g.h__b-c__2.0-1.jar", ""),
        (
            "g:a:1:tar.gz:plugin",
            "g__a__1__plugin.tar.gz",
            '<artifact name="a" type="other" ext="tar.gz" m:classifier="plugin"/>',
        ),
    ],
)
def test_a_module_names_its_jar_or_another_of_its_files(text: str, file: str, asked: str) -> None:
    module = Module.parse(text)

    assert (str(module), module.file_name) == (text, file)
    assert f'transitive="false">{asked}</dependency>' in ivy._ivy_xml([module], transitive=False)


def test_a_failed_download_shows_the_log_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\necho '  module not found: g#a;1'\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    settings = Settings.from_environment({"HOME": str(tmp_path), "HTTPS_PROXY": "http://p:81"}, cwd=tmp_path)

    with pytest.raises(StackError, match="module not found: g#a;1") as raised:
        ivy.download(
            Java(home=home, version=17),
            settings,
            [Module("g", "a", "1")],
            into=tmp_path,
            transitive=False,
            report=lambda _: None,
        )

    assert "HTTPS_PROXY" in str(raised.value)
    assert ivy._proxy_options(settings) == ["-Dhttps.proxyHost=p", "-Dhttps.proxyPort=81"]
