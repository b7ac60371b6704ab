"""Which archive of classes a JVM gets."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from deltaworks.settings import Settings
from deltaworks.spark import class_data, session


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    library = tmp_path / "java" / "lib" / "server" / "libjvm.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return library


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.from_environment({"DELTAWORKS_CACHE": str(tmp_path / "cache"), "DELTAWORKS_PROJECT": str(tmp_path)})


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_data, "_record", lambda work: (work / "classes.jsa").write_bytes(b"classes"))


@pytest.mark.usefixtures("recorded")
def test_another_java_or_other_options_have_another_archive(
    java: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert class_data.make(settings) and not class_data.make(settings)
    first = class_data.found(settings)
    assert first is not None and first.parent.parent == settings.cache

    java.write_bytes(b"a newer java")
    assert class_data.found(settings) is None
    monkeypatch.setattr(session, "JVM", "-XX:+UseZGC")
    assert class_data.make(settings) and class_data.found(settings) != first


@pytest.mark.usefixtures("java", "recorded")
def test_without_java_or_a_whole_archive_there_is_no_option(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert class_data.option(settings) == ""
    assert class_data.make(settings)
    path = class_data.found(settings)
    assert path is not None and class_data.option(settings) == f"-XX:SharedArchiveFile={path}"

    path.write_bytes(b"class")
    assert class_data.option(settings) == "", "it is cut off"
    assert class_data.make(settings) and class_data.found(settings) == path

    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(settings.cache))
    assert class_data.option(settings) == ""
    assert not class_data.make(settings)


def test_who_comes_while_another_process_makes_it_goes_on_without(
    java: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_data, "_record", lambda work: pytest.fail("it is made twice"))
    folder = settings.cache / "classes"
    folder.mkdir(parents=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not class_data.make(settings)


def test_what_was_interrupted_leaves_nothing_and_old_archives_go(
    java: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    def stopped(work: Path) -> None:
        (work / "half").write_bytes(b"half")
        raise KeyboardInterrupt

    folder = settings.cache / "classes"
    monkeypatch.setattr(class_data, "_record", stopped)
    with pytest.raises(KeyboardInterrupt):
        class_data.make(settings)
    assert [each.name for each in folder.iterdir()] == [".lock"]
    (folder / ".killed").mkdir()

    request.getfixturevalue("recorded")
    for number in range(5):
        java.write_bytes(b"java" * (number + 2))
        assert class_data.make(settings)
    assert len(list(folder.glob("*.jsa"))) == 3 == len(list(folder.iterdir())) - 1
