"""The record of batches: its end, and what is taken out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.control import batches
from deltaworks.control.batches import BatchRecord, Recreated, TopicsRead
from deltaworks.files import replace_file


def test_where_records_without_ids_go_back_a_topic_was_recreated() -> None:
    records = [
        BatchRecord(0, 10, {"t": {"0": (0, 5)}, "u": {"0": (0, 5)}}),
        BatchRecord(1, 20, {"t": {"0": (7, 9)}}),  # some were given up
        BatchRecord(2, 30, {"t": {"0": (0, 9)}, "u": {"0": (5, 6)}}, topics={"t": "id"}),
        BatchRecord(3, 40, {"t": {"0": (9, 10)}}, topics={"t": "id"}),
    ]
    assert batches.topics_read(records) == TopicsRead({"t": "id"}, {"t": Recreated(2, 20)})


def record(batch: int, wall_clock_ms: int = 0) -> BatchRecord:
    return BatchRecord(batch, wall_clock_ms, {"t": {"0": (batch, batch + 1)}})


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Batches 0 to 11, three to a file, two of which ran twice."""
    monkeypatch.setattr(batches, "_PER_FILE", 3)
    for number in range(12):
        batches.append(tmp_path / "batches", record(number))
        if number in (7, 11):
            batches.append(tmp_path / "batches", record(number, wall_clock_ms=1))
    return tmp_path / "batches"


def test_the_last_batch(directory: Path, tmp_path: Path) -> None:
    assert batches.last(directory) == record(11, wall_clock_ms=1)
    assert batches.last(tmp_path / "none") is None


@pytest.mark.parametrize("first", [0, 3, 7, 8, 12])
def test_what_is_set_aside_is_in_the_other_folder(directory: Path, tmp_path: Path, first: int) -> None:
    before = list(batches.read(directory))

    batches.set_aside(directory, first, tmp_path / "aside")

    assert list(batches.read(directory)) == before[:first]
    assert list(batches.read(tmp_path / "aside")) == before[first:]
    batches.append(directory, record(first, wall_clock_ms=2))
    assert batches.last(directory) == record(first, wall_clock_ms=2)


@pytest.mark.parametrize("writes", range(5))
def test_who_is_interrupted_does_it_again(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    before, left = list(batches.read(directory)), iter(range(writes))

    def interrupted(path: Path, content: bytes) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        replace_file(path, content)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(batches, "replace_file", interrupted)
        batches.set_aside(directory, 2, tmp_path / "aside")
        raise KeyboardInterrupt
    kept = list(batches.read(directory))
    assert kept == before[: len(kept)], "a gap"

    batches.set_aside(directory, 2, tmp_path / "aside")

    assert list(batches.read(directory)) == before[:2]
    assert list(batches.read(tmp_path / "aside")) == before[2:]
