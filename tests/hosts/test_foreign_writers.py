"""Somebody optimizes the tables of a stream, which is stopped or runs, and takes it back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from deltaworks import Pipeline, StreamsBuilder, TimeWindows
from deltaworks.cli.app import main
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import TableError
from deltaworks.lakehouse.catalog import duckdb_connection
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka

HOUR_MS = 3_600_000
NOON_MS = 1_790_000_000_000 // HOUR_MS * HOUR_MS
KEYS = 20


def topology(builder: StreamsBuilder) -> None:
    grouped = builder.stream("in", key=str, value=str).group_by_key()
    windows = TimeWindows(size=timedelta(hours=1), grace=timedelta(0))
    grouped.windowed_by(windows).count(store="w").to_delta("per_hour")


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `deltaworks ...`."""
    monkeypatch.setattr(sys, "argv", ["deltaworks", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


class Hours:
    """A stream that counts per hour; each batch has a record of every key."""

    def __init__(self, home: Path) -> None:
        self.settings = replace(Settings.from_environment({}), home=home)
        self.kafka = MemoryKafka({"in": 2})
        self.stream = InProcessStream(Pipeline(name="hours", topology=topology), self.settings, kafka=self.kafka)
        self.batches = 0

    def batch(self, hour: int = 0) -> None:
        for number in range(KEYS):
            at_ms = NOON_MS + hour * HOUR_MS + self.batches * 1000 + number
            self.kafka.write("in", RawRecord(f"k{number}".encode(), b"v", at_ms))
        self.batches += 1
        self.stream.run(self.stream.end())

    @property
    def path(self) -> Path:
        return self.settings.tables / "per_hour"

    def rows(self) -> list[tuple[str, int, int, bool]]:
        with duckdb_connection(self.settings.tables) as connection:
            rows = connection.execute("select key, epoch_ms(window_start), value, is_final from per_hour").fetchall()
        return sorted(rows)


@pytest.fixture
def hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hours]:
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path))
    hours = Hours(tmp_path)
    yield hours
    hours.stream.close()


@pytest.mark.parametrize("is_running", [False, True], ids=["stopped", "running"])
def test_after_an_optimize_and_its_repair_every_window_is_there_once_and_becomes_final(
    hours: Hours, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_running: bool
) -> None:
    for _ in range(3):
        hours.batch()
    before = hours.rows()
    assert DeltaTable(hours.path).optimize.compact()["numFilesRemoved"] == 2

    with pytest.raises(TableError, match=r"OPTIMIZE.*open windows(?s:.*)deltaworks tables repair per_hour"):
        if is_running:
            hours.batch()
        else:
            hours.stream.restart()
    assert command(monkeypatch, "tables", "repair", "per_hour", "--yes") == 0

    assert "2 files to restore, 1 to remove" in capsys.readouterr().out
    assert hours.rows() == before
    hours.stream.restart()
    if is_running:
        hours.stream.run(hours.stream.end())  # the batch that was refused
    for _ in range(6 - hours.batches):
        hours.batch()
    hours.batch(hour=1)
    rows = hours.rows()
    assert rows == sorted(
        [(f"k{number}", NOON_MS, 6, True) for number in range(KEYS)]
        + [(f"k{number}", NOON_MS + HOUR_MS, 1, False) for number in range(KEYS)]
    )


def test_a_table_is_not_repaired_under_a_driver_nor_without_need(
    hours: Hours, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hours.batch()
    assert command(monkeypatch, "tables", "repair", "per_hour") == 0
    assert "nothing to repair" in capsys.readouterr().out
    DeltaTable(hours.path).delete()
    version = DeltaTable(hours.path).version()

    with Lease(PipelinePaths.of(hours.settings, "hours").lease, "hours", 1):
        assert command(monkeypatch, "tables", "repair", "per_hour", "--yes") != 0

    assert "stop it first: deltaworks stop hours" in capsys.readouterr().err
    assert DeltaTable(hours.path).version() == version


def test_the_tables_are_listed(
    hours: Hours, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hours.batch()

    assert command(monkeypatch, "tables") == 0

    assert "per_hour" in capsys.readouterr().out
