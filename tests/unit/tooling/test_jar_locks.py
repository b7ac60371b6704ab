"""What `make lock` writes of jars; Ivy is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deltaworks.settings import Settings
from deltaworks.stack.ivy import Module
from deltaworks.stack.jars import read_lock
from deltaworks.stack.java import Java
from tooling import jar_locks


def test_a_lock_has_every_jar_that_was_resolved_and_reads_as_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Module("g.h", "b-c", "2.0-1"), Module("g", "a", "1")]

    def download(java: Java, settings: Settings, modules: Sequence[Module], *, into: Path, **_: Any) -> None:
        assert Module.parse("org.apache.kafka:kafka_2.13:4.3.1") in modules
        for module in found:
            (into / module.file_name).write_bytes(str(module).encode())

    monkeypatch.setattr(jar_locks, "download", download)
    monkeypatch.setattr(jar_locks, "find_java", lambda *_: Java(home=Path("/java"), version=17))
    (tmp_path / "jars").mkdir()

    made = jar_locks.make_lock(Settings.from_environment(), "kafka", report=print)
    jar_locks.write_lock(tmp_path, made)

    assert [jar.module for jar in made.jars] == sorted(found)
    assert [jar.size_bytes for jar in made.jars] == [len("g:a:1"), len("g.h:b-c:2.0-1")]
    assert read_lock(tmp_path, "kafka") == made


def test_a_file_that_is_no_jar_keeps_its_coordinates(tmp_path: Path) -> None:
    module = Module.parse("g.h:b-c:2.0-1:tar.gz:plugin")
    file = tmp_path / module.file_name
    file.write_bytes(b"archive")

    assert jar_locks.locked(file, module).module == module
