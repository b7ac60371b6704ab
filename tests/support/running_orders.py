"""The pipeline of the orders in another process, which commits batches while somebody reads, for tests of readers.

`python -m tests.support.running_orders PROJECT` runs it. After each batch, when no commit is under way, it notes what
queries find then: a reader of a cut has to find the same, whatever is committed meanwhile.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import msgspec
from deltalake import DeltaTable

from deltaworks.control.topics import all_topics
from deltaworks.files import replace_file
from deltaworks.lakehouse import cuts
from deltaworks.lakehouse.cuts import Cut
from deltaworks.lakehouse.reading import dataset
from deltaworks.lakehouse.schema import Role
from deltaworks.settings import Settings
from deltaworks.testing.sample_data import SampleRecord
from deltaworks.testing.topics import RawRecord
from jobs.orders import pipeline
from jobs.sample_data.kafka import PARTITIONS
from jobs.sample_data.orders import records
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.support.processes import running

HOME = ".deltaworks"
_QUERIES, _FOUND, _UNTIL = "queries.json", "found", "until"
_AHEAD = 10
"""So many batches are committed at most while nobody asks; snapshots are some batches behind."""
_ROOT = Path(__file__).parents[2]
_EVERYTHING = 1_000_000
"""More records than any test reads."""
_USERS = """
    SELECT * EXCLUDE (op) FROM users_changelog
    QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY source_partition, source_offset DESC) = 1 AND op = 'upsert'
"""
"""The snapshot of the users as it has to be: it may be behind the changelog."""

Rows = list[list[str]]
"""What a query has found, as text."""
Answers = dict[str, Rows]
"""What each query has found."""


@dataclass(frozen=True)
class RunningOrders:
    """The stream, as tests see it from outside."""

    project: Path
    """Its home is in it."""

    @property
    def tables(self) -> Path:
        return self.project / HOME / "tables"

    @property
    def cut(self) -> Cut | None:
        """The newest cut; None: there is none yet."""
        return cuts.latest(self.tables, pipeline.name)

    def agree(self, ask: Callable[[], Answers], *, times: int = 3) -> None:
        """Asks again and again while batches are committed: what is found has to be that of one batch.

        Args:
            ask: asks queries that are noted, and gives what it has found.
            times: in the end, so many times the tables have gone on while somebody asked.
        """
        while times > 0:
            before = self._going_on()
            found = ask()
            after = self._newest()
            right = [self._noted(batch) for batch in range(before.batch_id, after.batch_id + 1)]
            assert any(found.items() <= noted.items() for noted in right), (before, after, found)
            times -= after.batch_id > before.batch_id

    def found_at(self, cut: Cut, query: str) -> Rows:
        """What a query has to find as of a cut."""
        return self._noted(cut.batch_id)[query]

    def _going_on(self) -> Cut:
        """Lets the stream commit some batches more than the newest cut has; gives that cut."""
        cut = self._newest()
        replace_file(self.project / _UNTIL, str(cut.batch_id + _AHEAD).encode())
        return cut

    def _newest(self) -> Cut:
        cut = self.cut
        assert cut is not None
        return cut

    def _noted(self, batch_id: int) -> Answers:
        return msgspec.json.decode((self.project / _FOUND / f"{batch_id}.json").read_bytes(), type=Answers)


@contextmanager
def running_orders(project: Path, queries: Sequence[str]) -> Iterator[RunningOrders]:
    """Starts the stream, waits for its first cut, and stops it in the end.

    Args:
        project: an empty folder.
        queries: what is to be noted after each batch, in DuckDB's SQL.
    """
    (project / _FOUND).mkdir(parents=True)
    (project / _QUERIES).write_bytes(msgspec.json.encode(queries))
    (project / _UNTIL).write_text(str(_AHEAD))
    stream, log = RunningOrders(project), project / "stream.log"
    command = [sys.executable, "-m", __name__, str(project)]
    with running(command, environment=dict(os.environ), log=log, cwd=_ROOT) as process:
        while stream.cut is None:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield stream
        assert process.poll() is None, log.read_text()


def as_rows(rows: Sequence[Sequence[Any]]) -> Rows:
    """Rows in which values are equal if they mean the same, whatever read them."""
    return [[_text(value) for value in row] for row in rows]


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat() + "+00:00"
    return str(value)


def _run(project: Path) -> None:
    kafka = MemoryKafka(dict.fromkeys(all_topics(pipeline, pipeline.plan()), PARTITIONS))
    settings = replace(Settings.from_environment({}), home=project / HOME)
    stream = InProcessStream(pipeline, settings, kafka=kafka)
    queries = msgspec.json.decode((project / _QUERIES).read_bytes(), type=list[str])
    choose, delivered = random.Random(1), records(_EVERYTHING)
    while True:
        while stream.batch_id > int((project / _UNTIL).read_text()):
            _show(stream, eager=True)
            time.sleep(0.005)
        for _ in range(choose.randrange(20, 80)):
            _send(kafka, next(delivered))
        stream.run(stream.end())
        note = msgspec.json.encode(_find(stream, queries))
        replace_file(project / _FOUND / f"{stream.batch_id - 1}.json", note)
        _show(stream, eager=choose.random() < 0.5)


def _show(stream: InProcessStream, *, eager: bool) -> None:
    """What a driver does after a batch, and while it has nothing to do."""
    stream.committer.refresh_snapshots(eager=eager)
    stream.committer.publish_cut()


def _send(kafka: MemoryKafka, record: SampleRecord) -> None:
    kafka.write(record.topic, RawRecord(record.key, record.value, record.timestamp_ms), record.partition)


def _find(stream: InProcessStream, queries: Sequence[str]) -> Answers:
    """What queries find in the tables at their latest versions, which belong together as nothing is committed now."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, table in stream.committer.tables.items():
        if table.schema.role is not Role.SNAPSHOT:
            connection.register(name, dataset(table.log.path, DeltaTable(table.log.path)))
    connection.execute(f"CREATE VIEW users AS {_USERS}")
    return {query: as_rows(connection.execute(query).fetchall()) for query in queries}


if __name__ == "__main__":
    _run(Path(sys.argv[1]))
