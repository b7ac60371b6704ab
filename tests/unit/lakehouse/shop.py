"""A stream into every kind of table over simulated days, and what its tables held after each batch."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from deltaworks.lakehouse import compaction, cuts, log
from deltaworks.lakehouse.committer import TableCommitter, TableOptions
from deltaworks.lakehouse.reading import dataset
from deltaworks.lakehouse.retention import Retention
from tests.unit.lakehouse.lake import DEAD, QUERY, SINKS, Expected, task_tables, write_batch

SHOP = "shop"
START = datetime(2026, 3, 1, 10, tzinfo=UTC)
KEEP = Retention(versions=timedelta(hours=2), hours=timedelta(hours=12), days=timedelta(days=3))


class Clock:
    """The wall clock of everything that looks after tables."""

    def __init__(self) -> None:
        self.now = START

    def ms(self) -> int:
        return round(self.now.timestamp() * 1000)


def simulate(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Gives all that looks after tables a clock of ours, and lets checkpoints and merges come early."""
    simulated = Clock()
    for module in ("committer", "log", "housekeeping", "snapshots", "retention", "old_versions"):
        for name in ("wall_ms", "cautious_ms"):
            monkeypatch.setattr(f"deltaworks.lakehouse.{module}.{name}", simulated.ms, raising=False)
    monkeypatch.setattr(log, "_CHECKPOINT_MAX_COMMITS", 7)
    monkeypatch.setattr(compaction, "_FAN_IN", (4, 4, 4))
    return simulated


@dataclass
class Shop:
    """A stream that makes a batch every few minutes, and what its tables held after each of them."""

    root: Path
    time: Clock
    keep: Retention = KEEP
    expected: Expected = field(default_factory=Expected)
    held: dict[int, Expected] = field(default_factory=dict)
    """By batch."""

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        options = TableOptions(retention=self.keep)
        self.committer = TableCommitter(self.root, SHOP, QUERY, SINKS, DEAD, options=options)
        self.committer.open(1)
        self.tables = task_tables(self.root)
        self.committer.settled(len(self.held) - 1)

    def run(self, until: datetime, every: timedelta) -> None:
        while self.time.now < until:
            self.batch()
            self.time.now += every

    def batch(self) -> None:
        batch_id = len(self.held)
        self.committer.commit(batch_id, write_batch(self.tables, batch_id, self.expected))
        self.committer.refresh_snapshots(force=True)
        self.committer.publish_cut()
        self.committer.settle()
        self.held[batch_id] = deepcopy(self.expected)

    def check(self, cut: cuts.Cut) -> None:
        """The tables as of a cut are what they were then, for a reader that knows Delta only."""
        held = self.held[cut.batch_id]
        rows = {name: DeltaTable(self.root / name, version=number) for name, number in cut.tables.items()}
        orders = dataset(self.root / "orders", rows["orders"]).to_table(columns=["key", "source_offset"]).to_pylist()
        assert sorted((row["key"], row["source_offset"]) for row in orders) == sorted(held.orders)
        users = dataset(self.root / "users", rows["users"]).to_table(columns=["key", "name"]).to_pylist()
        assert {row["key"]: row["name"] for row in users} == held.users
        assert dataset(self.root / "counts", rows["counts"]).count_rows() == len(held.counts)
        assert rows["users_changelog"].count() == held.changes

    def known(self) -> list[cuts.Cut]:
        """All cuts that can be found by their time."""
        files = sorted(cuts.folder(self.root, SHOP).glob("*.jsonl"))
        return [cut for file in files for cut in cuts._cuts_in(file)]
