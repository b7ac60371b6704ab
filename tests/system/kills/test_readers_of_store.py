"""Tools read tables in an object store while the orders pipeline commits to them, and while old versions are deleted.

What a tool is shown is the whole of one batch, which is compared with a recomputation in the end; and a version that
was read once has the same rows whenever it is read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pytest
from deltalake import DeltaTable

from deltaworks.control import batches, fence
from deltaworks.control.checkpoint import stored_plan
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConfigurationError
from deltaworks.lakehouse import cuts, reading, retention
from deltaworks.lakehouse.committer import TableCommitter, TableOptions
from deltaworks.lakehouse.cuts import Cut
from deltaworks.lakehouse.retention import Retention
from deltaworks.object_path import ObjectPath
from deltaworks.settings import Settings
from jobs.orders import pipeline
from tests.support.repeated import repeated
from tests.system.analysts import recomputed
from tests.system.analysts.readers import READERS, Place, Reader
from tests.system.analysts.recomputed import Recomputed
from tests.system.analysts.streaming import Digests, digested
from tests.system.kills.store_under_kills import stored
from tests.system.kills.stream_under_kills import StreamUnderKills, copied
from tests.system.replays.project import Project
from tests.system.sample_data import flowing
from tests.unit.lakehouse.lake import sweep

TOOLS = ("deltaworks sql", "DuckDB", "polars", "Spark SQL")
CUTS, ANSWERS, VERSIONS = 4, 12, 10
"""Each tool sees at least so many different cuts, and answers at most so often; a table is read at so many versions."""
CHANGING = "order_counts"
"""A table whose files are replaced by most batches."""
PIN = "audit"
_PATIENCE_S, _PAUSE_S = 480.0, 0.1


@dataclass
class Answers:
    """What the tools have found."""

    given: dict[str, list[tuple[range, Digests]]] = field(default_factory=lambda: {name: [] for name in TOOLS})
    """By tool, in order: the batch, or some if it does not say which, and what all tables had."""
    versions: list[tuple[int, Counter[Any]]] = field(default_factory=list)
    """Versions of one table as they were read at its end, and their rows."""

    def enough(self, tool: str) -> bool:
        return len({batches.start for batches, _ in self.given[tool]}) >= CUTS

    @property
    def half(self) -> bool:
        return all(self.given.values()) and len(self.versions) >= 1

    @property
    def all(self) -> bool:
        return all(map(self.enough, TOOLS)) and len({version for version, _ in self.versions}) >= VERSIONS


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tools_see_whole_batches_while_a_stream_commits_and_pins_outlive_the_rest(
    orders_settings: Settings, tmp_path: Path
) -> None:
    with stored(orders_settings, everything=True) as store, ExitStack() as stack:
        settings, wanted, answers = store.settings, recomputed.wanted(), Answers()
        place, orders = Place(settings, "orders"), StreamUnderKills(settings, tmp_path)
        tools = dict(_tools(settings, tmp_path, stack))

        def ask(tool: str) -> None:
            if len(answers.given[tool]) >= ANSWERS:
                return
            opened = tools[tool](place, wanted, None)
            answers.given[tool].append((opened.batches, digested(opened.read())))

        def note() -> None:
            answers.versions.append(_newest(settings.tables / CHANGING))

        with flowing(settings, rate=20.0), orders.running():
            orders.until(lambda: _cut(settings).batch_id > 0, _PATIENCE_S, "no batch was shown")
            _command(settings, "tables", "pin", PIN, "orders")
            pinned = _cut(settings, PIN)
            with ExitStack() as threads:
                for tool in TOOLS:
                    threads.enter_context(repeated(nullcontext(partial(ask, tool)), _PAUSE_S))
                threads.enter_context(repeated(nullcontext(note), _PAUSE_S))
                orders.until(lambda: answers.half, _PATIENCE_S, "not all tools have answered")
                between = _cut(settings)
                orders.until(lambda: answers.all, _PATIENCE_S, "some tools have seen little")
        orders.catch_up()

        folder = copied(PipelinePaths.of(settings, "orders").batches, tmp_path / "batches")
        right, known = Recomputed(settings, wanted, folder), dict[int, Digests]()

        def expected(batch: int) -> Digests:
            if batch not in known:
                known[batch] = digested(right.at(batch))
            return known[batch]

        for tool, given in answers.given.items():
            assert [batches.start for batches, _ in given] == sorted(batches.start for batches, _ in given), tool
            for batches, found in given:
                assert any(expected(batch) == found for batch in batches), f"{tool} at the cut of {batches}"
        read, path = [version for version, _ in answers.versions], settings.tables / CHANGING
        assert read == sorted(read)
        for version, rows in answers.versions:
            assert rows == _rows(path, reading.delta_table(path, version)), version

        gone = _files(settings, between) - _files(settings, pinned) - _files(settings, _cut(settings))
        assert gone and all(file.exists() for file in gone)
        _maintain(settings)
        assert not [file for file in gone if file.exists()]
        with pytest.raises(ConfigurationError, match="cannot be read any more"):
            cuts.readable(settings.tables, between, CHANGING)
        for tool in TOOLS:
            assert digested(tools[tool](place, wanted, PIN).read()) == expected(pinned.batch_id), tool
            assert digested(tools[tool](place, wanted, None).read()) == expected(_cut(settings).batch_id), tool

        kept = _files(settings, pinned) - _files(settings, _cut(settings))
        _command(settings, "tables", "unpin", PIN, "orders")
        _maintain(settings)
        assert kept and not [file for file in kept if file.exists()]


def _tools(settings: Settings, work: Path, stack: ExitStack) -> Iterator[tuple[str, Reader]]:
    for number, name in enumerate(TOOLS):
        scratch = work / f"tool-{number}"
        scratch.mkdir()
        yield name, stack.enter_context(READERS[name](settings, scratch))


def _command(settings: Settings, *arguments: str) -> None:
    answer = Project(settings).deltaworks(*arguments)
    assert answer.code == 0, answer.text


def _cut(settings: Settings, pin: str | None = None) -> Cut:
    """The newest cut, or that of a pin; before the first one, a cut of no batch."""
    if pin is not None:
        return retention.pinned(settings.tables, pin)["orders"]
    return cuts.latest(settings.tables, "orders") or Cut(pipeline="orders", query="", batch_id=-1, at_ms=0, tables={})


def _newest(path: Path) -> tuple[int, Counter[Any]]:
    """The table as it is at this moment, as whoever knows no cuts opens it."""
    table = reading.delta_table(path)
    return table.version(), _rows(path, table)


def _rows(path: Path, table: DeltaTable) -> Counter[Any]:
    with duckdb.connect() as connection:
        connection.register("opened", reading.dataset(path, table))
        return Counter(connection.execute("SELECT * FROM opened").fetchall())


def _files(settings: Settings, cut: Cut) -> frozenset[ObjectPath]:
    """All files of the tables as of a cut."""
    return frozenset(
        ObjectPath(unquote(uri))
        for table, version in cut.tables.items()
        for uri in reading.delta_table(settings.tables / table, version).file_uris()
    )


def _maintain(settings: Settings) -> None:
    """What a driver does in the course of hours, if old versions are kept no longer than pins want."""
    paths, plan = PipelinePaths.of(settings, "orders"), pipeline.plan()
    checkpoint = stored_plan(paths.current.plan)
    assert checkpoint is not None
    committer = TableCommitter(
        settings.tables, "orders", checkpoint.query_id, plan.tables, pipeline.dead_letters.table,
        archives=pipeline.archives(plan).tables, options=TableOptions(retention=Retention.only(timedelta(0))),
    )  # fmt: skip
    committer.open(fence.read(paths.fence) + 1)
    committer.settled(batches.last_number(paths.batches))
    sweep(committer)
    committer.publish_cut()  # versions before it are not kept
    committer.close()
