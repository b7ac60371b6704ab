"""Which Java is taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.errors import ConfigurationError
from deltaworks.settings import Settings
from deltaworks.stack import java
from deltaworks.stack.java import find_java


def a_java(folder: Path, says: str) -> Path:
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    launcher.chmod(0o755)
    return folder


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A machine without any Java."""
    monkeypatch.setattr(java, "_FOLDERS", (tmp_path / "jvm",))
    return Settings.from_environment({"HOME": str(tmp_path)}, cwd=tmp_path)


def test_java_home_comes_first(settings: Settings, tmp_path: Path) -> None:
    wanted = a_java(tmp_path / "wanted", 'openjdk version "17.0.15" 2025-04-15')
    other = a_java(tmp_path / "other", 'openjdk version "21" 2023-09-19')

    found = find_java(replace(settings, java_home=wanted, path=(other / "bin",)), [17, 21])

    assert (found.home, found.version, found.executable) == (wanted, 17, wanted / "bin" / "java")


def test_the_path_comes_next_and_links_are_followed(settings: Settings, tmp_path: Path) -> None:
    wrong = a_java(tmp_path / "wrong", 'java version "1.8.0_402"')
    right = a_java(tmp_path / "right", 'openjdk version "21.0.2" 2024-01-16')
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(right / "bin" / "java")

    found = find_java(replace(settings, java_home=wrong, path=(links,)), [17, 21])

    assert (found.home, found.version) == (right, 21)


def test_folders_of_the_system_come_last(settings: Settings, tmp_path: Path) -> None:
    installed = a_java(tmp_path / "jvm" / "java-17", 'openjdk version "17.0.1"')

    assert find_java(settings, [17, 21]).home == installed


def test_no_java_names_what_was_looked_at_and_what_to_do(settings: Settings, tmp_path: Path) -> None:
    old = a_java(tmp_path / "old", 'java version "1.8.0_402"')
    broken = tmp_path / "broken"

    with pytest.raises(ConfigurationError) as raised:
        find_java(replace(settings, java_home=broken, path=(old / "bin",)), [17, 21])

    assert f"{broken}: does not start" in str(raised.value)
    assert f"{old}: version 8" in str(raised.value)
    assert "Hint: install one" in str(raised.value)
