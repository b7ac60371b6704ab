"""What the registry is told of the batches of several lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks.control import batches
from deltaworks.control.batches import BatchRecord
from deltaworks.control.checkpoint import CheckpointPlan, write_plan
from deltaworks.control.heartbeat import Heartbeat
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.registry import Registry
from deltaworks.control.reporter import RegistryReporter
from deltaworks.settings import Settings


class Book:
    """A registry that knows no batch yet."""

    def __init__(self) -> None:
        self.sent: dict[str, list[int]] = {}

    def beat(self, beat: Heartbeat, *, host: str) -> None: ...

    def take_commands(self, name: str, generation: int) -> Sequence[None]:
        return ()

    def last_batch(self, name: str, query_id: str) -> int | None:
        return max(self.sent.get(query_id, ()), default=None)

    def append_batches(self, name: str, generation: int, query_id: str, records: Sequence[BatchRecord]) -> None:
        self.sent.setdefault(query_id, []).extend(record.batch for record in records)


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Book:
    book = Book()
    monkeypatch.setattr(Registry, "of", lambda settings: book)
    return book


def report(settings: Settings, query_id: str) -> None:
    beat = Heartbeat(pipeline="p", generation=1, query_id=query_id, state="running", pid=1, at=0.0)
    driver = RegistryReporter(settings, "p", 1)
    driver.beat(beat)
    driver.close()


def test_a_line_sends_its_own_batches_and_the_one_before_has_sent_those_before(tmp_path: Path, book: Book) -> None:
    settings = replace(Settings.from_environment({}), home=tmp_path)
    paths = PipelinePaths.of(settings, "p")
    for number in range(3):
        batches.append(paths.batches, BatchRecord(number, 0, {}))
    report(settings, "first")
    plan = CheckpointPlan(
        lineage="line", query_id="run", fingerprint={}, partitions={}, tasks=(), shards=1, first_batch=3
    )
    write_plan(paths.checkpoint_of("run").plan, plan)
    paths.pointer.write_text("run\n")
    batches.append(paths.batches, BatchRecord(3, 0, {}))
    report(settings, "run")
    batches.append(paths.batches, BatchRecord(4, 0, {}))
    report(settings, "run")

    assert book.sent == {"first": [0, 1, 2], "run": [3, 4]}
