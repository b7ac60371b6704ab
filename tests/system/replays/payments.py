"""A pipeline with a table of every kind, its records, and what has to be in its tables, row by row.

Ten payments an hour, five per account. The last one of an hour says that it was made two hours before: too late for its
window, and in its day for the tables without windows. Every amount occurs once. The bug doubles all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime

from confluent_kafka import Producer
from deltalake import DeltaTable

from deltaworks.control import heartbeat
from deltaworks.kafka.admin import TopicSpec, create_topics
from deltaworks.replay.model import ReplayPlan, ReplayState
from tests.support.repeated import repeated
from tests.system.replays.project import Project, until

BUG, POISON = " * 2", " * 100000"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
START_MS = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)
_PER_HOUR, _MINUTE_MS, _FIRST = 10, 60_000, 1_000
_JOB = '''"""Amounts: every payment, the latest one of each account, and the sum per account and hour."""

from datetime import timedelta

from deltaworks import Pipeline, StreamsBuilder, TimeWindows, Topic


def topology(builder: StreamsBuilder) -> None:
    amounts = builder.stream("{name}", key=str, value=int).map_values(lambda amount: amount{bug}, value=int)
    amounts.to_delta("{name}_rows")
    amounts.to_table(store="latest").to_delta("{name}_latest")
    (
        amounts.group_by(lambda key, _: key.upper(), key=str, name="by-account")
        .windowed_by(TimeWindows(size=timedelta(hours=1), grace=timedelta(0)))
        .reduce(lambda total, amount: total + amount, store="totals")
        .to_delta("{name}_totals")
    )


pipeline = Pipeline(
    name="{name}",
    topology=topology,
    topics=(Topic("{name}", partitions=2),),
    record_cache=False,  # every update is in the changelog
    archive={archive},
)
'''
_SUITE = '''"""What the tables of payments are like."""

import great_expectations.expectations as gxe

suites = {{"{name}_totals": [gxe.ExpectColumnValuesToBeBetween(column="value", min_value=0, max_value=10_000_000)]}}
'''


@dataclass(frozen=True)
class Published:
    """What of production a replay has put right."""

    from_ms: int = 0
    to_ms: int = 0
    """Days of the tables that have days."""
    end_offsets: Mapping[str, int] = field(default_factory=dict)
    """Per partition: the next one after the last payment that was replayed."""
    last_batch: int = -1
    """Of the tables without days; -1: they were not published."""

    @classmethod
    def days(cls, plan: ReplayPlan, state: ReplayState) -> Published:
        """By a run without the tables of the KTable."""
        ends = plan.end_offsets[plan.request.pipeline]
        return cls(state.from_ms or 0, state.to_ms or 0, ends)

    def has(self, time_ms: int) -> bool:
        """A window of this time."""
        return self.from_ms <= time_ms < self.to_ms

    def has_row(self, time_ms: int, partition: int, offset: int) -> bool:
        """A row of this record."""
        return self.has(time_ms) and offset < self.end_offsets.get(str(partition), 0)


NOTHING = Published()


@dataclass
class Payments:
    """The pipeline of one part of the check: its own name, topic and tables."""

    project: Project
    name: str
    archive: bool = False
    hours: int = 0
    """That were paid in so far."""

    def __post_init__(self) -> None:
        create_topics(self.project.settings.bootstrap, [TopicSpec(name=self.name, partitions=2)])
        self._producer = Producer({"bootstrap.servers": self.project.settings.bootstrap, "log_level": 0})

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(f"{self.name}_{table}" for table in ("rows", "latest_changelog", "latest", "totals"))

    def write(self, bug: str = "") -> None:
        """The code, with a bug or without."""
        jobs = self.project.settings.project / "jobs"
        text = _JOB.format(name=self.name, bug=bug, archive=self.archive)
        (jobs / f"{self.name}.py").write_text(text)
        (jobs / "quality" / f"{self.name}.py").write_text(_SUITE.format(name=self.name))

    def pay(self, hours: int) -> None:
        """The payments of so many more hours."""
        for number in range(self.hours * _PER_HOUR, (self.hours + hours) * _PER_HOUR):
            amount = (_FIRST + number).to_bytes(8, "big")
            self._producer.produce(
                self.name, amount, b"ba"[number % 2 :][:1], timestamp=_time_ms(number), partition=number % 2
            )
        assert self._producer.flush(60) == 0
        self.hours += hours

    @contextmanager
    def arriving(self, hours_per_second: float = 2.0) -> Iterator[None]:
        """Payments keep coming until the block ends."""
        with repeated(nullcontext(lambda: self.pay(1)), 1 / hours_per_second):
            yield

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """The stream runs with the code that is there now, has processed what there was, and payments keep coming."""
        with self.project.streaming(self.name):
            self.settle()
            with self.arriving():
                yield

    def processed(self) -> int:
        """Payments that are in the tables."""
        beat = heartbeat.read(self.project.settings.pipeline(self.name) / "heartbeat.json")
        return sum(sum(parts.values()) for parts in beat.next_offsets.values()) if beat is not None else 0

    def settle(self) -> None:
        """Waits until all payments so far are in the tables, and the snapshot is there."""
        wanted = self.hours * _PER_HOUR
        until(lambda: self.processed() >= wanted, f"{self.name} has processed {wanted:,} payments")
        until(self._has_snapshot, f"{self.name} has its snapshot")

    def differences(
        self, published: Published, factor: int = 2, *, tables: Collection[str] = ()
    ) -> dict[str, tuple[int, int]]:
        """Per table: how many rows were compared, and how many of them are missing or other.

        Args:
            published: what was put right; everything else is as the stream has written it.
            factor: what the code of the stream makes of an amount.
            tables: which; none: all.
        """
        rows, changelog, latest, totals = self.tables
        checks: dict[str, Callable[[str, Published, int], tuple[int, int]]] = {
            rows: self._records,
            changelog: self._records,
            latest: self._latest,
            totals: self._totals,
        }
        return {
            table: check(table, published, factor) for table, check in checks.items() if not tables or table in tables
        }

    def _has_snapshot(self) -> bool:
        """It follows the stream, when that has time."""
        folder = self.project.settings.tables / f"{self.name}_latest"
        return DeltaTable.is_deltatable(str(folder)) and len(self.project.table(folder.name)) == 2

    def _records(self, table: str, published: Published, factor: int) -> tuple[int, int]:
        """A row for every record, up to the last one that is there."""
        rows = self.project.table(table)
        found = {(row["source_partition"], row["source_offset"]): row for row in rows}
        ends = [max((at for part, at in found if part == partition), default=-1) + 1 for partition in range(2)]
        wrong = sum(ends) - len(found) + len(rows) - len(found)
        for (partition, offset), row in found.items():
            number = 2 * offset + partition
            if "batch_id" in row:
                right = row["batch_id"] <= published.last_batch
            else:
                right = published.has_row(_time_ms(number), partition, offset)
            wrong += row["value"] != (_FIRST + number) * (1 if right else factor)
        return len(found), wrong

    def _latest(self, table: str, published: Published, factor: int) -> tuple[int, int]:
        """Each account once, with an amount that was its latest one."""
        found = self.project.table(table)
        wrong = abs(2 - len(found)) + abs(2 - len({row["key"] for row in found}))
        for row in found:
            number = 2 * row["source_offset"] + row["source_partition"]
            right = row["batch_id"] <= published.last_batch
            wrong += row["value"] != (_FIRST + number) * (1 if right else factor)
        return len(found), wrong

    def _totals(self, table: str, published: Published, factor: int) -> tuple[int, int]:
        """Each account and hour once, up to the last one that is final."""
        rows = [row for row in self.project.table(table) if row["is_final"]]
        found = {(row["key"], round(row["window_start"].timestamp() * 1000)): row["value"] for row in rows}
        wrong = len(rows) - len(found)
        for key in "AB":
            last = max((start for account, start in found if account == key), default=START_MS - HOUR_MS)
            for start in range(START_MS, last + 1, HOUR_MS):
                right = published.has(start)
                wrong += found.get((key, start)) != _total(key, start) * (1 if right else factor)
        return len(found), wrong


def _time_ms(number: int) -> int:
    """When a payment says that it was made."""
    hour, within = divmod(number, _PER_HOUR)
    late = within == _PER_HOUR - 1 and hour > 2
    return START_MS + (hour - 2 * late) * HOUR_MS + within * _MINUTE_MS


def _total(key: str, start_ms: int) -> int:
    """The sum of an account's payments in an hour, without those that came too late."""
    hour = (start_ms - START_MS) // HOUR_MS
    numbers = range(hour * _PER_HOUR + (key == "A"), (hour + 1) * _PER_HOUR, 2)
    return sum(_FIRST + number for number in numbers if _time_ms(number) >= start_ms)
