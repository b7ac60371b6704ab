"""Entries of accounts: rows, a table with its snapshot, windows in three ways, sessions, a global table, an exchange, a
processor with a wall-clock punctuator, dead letters.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from deltaworks import (
    BufferConfig,
    DeadLetters,
    EmitStrategy,
    KeyValueStore,
    Pipeline,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SessionWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topic,
    Windowed,
)

PARTITIONS = 3
HOURS = TimeWindows(size=timedelta(hours=1), grace=timedelta(minutes=10))
VISITS = SessionWindows(gap=timedelta(minutes=10), grace=timedelta(minutes=30))
WAITING = Stores.key_value("soak-waiting", key=str, value=int)


class Entry(msgspec.Struct, frozen=True):
    """One entry, keyed by account; `seq` counts those of the account."""

    seq: int
    amount: int
    group: str
    rate: str
    late: bool


class Priced(msgspec.Struct, frozen=True):
    """An entry with the version of its rate that was known."""

    seq: int
    rate: str
    version: int


class Rate(msgspec.Struct, frozen=True):
    """A row of the global table."""

    version: int


class Tell(Processor[str, Entry, str, int]):
    """Keeps every entry until the clock says so, and tells it then."""

    stores = (WAITING,)

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self.waiting: KeyValueStore[str, int] = context.state_store(WAITING.name)
        context.schedule(timedelta(seconds=3), PunctuationType.WALL_CLOCK_TIME, self.tell)

    def process(self, record: Record[str, Entry]) -> None:
        self.waiting.put(f"{record.key}@{record.value.seq:012d}", record.timestamp_ms)

    def tell(self, _: int) -> None:
        for name, timestamp_ms in list(self.waiting.all()):
            account, seq = name.split("@")
            self.context.forward(Record(account, int(seq), timestamp_ms))
            self.waiting.delete(name)


def priced(entry: Entry, rate: Rate | None) -> Priced:
    """With version 0 for a rate that nobody has named yet."""
    return Priced(entry.seq, entry.rate, rate.version if rate is not None else 0)


def account_at(window: Windowed[str], _: int) -> str:
    """The key of a window's result in a topic."""
    return f"{window.key}@{window.start_ms}"


def topology(builder: StreamsBuilder) -> None:
    """Every branch has a name, so that an edit of this file changes no store."""
    rates = builder.global_table("soak-rates", key=str, value=Rate, store="soak-rates", name="rates")
    entries = builder.stream("soak-entries", key=str, value=Entry, name="entries")
    entries.to_delta("soak_rows")
    entries.to("soak-echo")
    amounts = entries.map_values(lambda entry: entry.amount, value=int, name="amounts")
    amounts.group_by_key().reduce(lambda total, amount: total + amount, store="soak-totals").to_delta("soak_totals")
    (
        entries.group_by(lambda _, entry: entry.group, key=str, name="by-group")
        .aggregate(lambda: 0, lambda _, entry, total: total + entry.amount, value=int, store="soak-groups")
        .to_delta("soak_groups")
    )
    hours = entries.group_by_key().windowed_by(HOURS)
    counts = hours.count(store="soak-hours")
    counts.to_delta("soak_hours")
    (
        counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()), store="soak-held", name="held")
        .to_stream()
        .select_key(account_at, key=str, name="held-key")
        .to("soak-hours-held")
    )
    (
        hours.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        .count(store="soak-closed")
        .to_stream()
        .select_key(account_at, key=str, name="closed-key")
        .to("soak-hours-closed")
    )
    punctual = entries.filter(lambda _, entry: not entry.late, name="punctual")
    punctual.group_by_key().windowed_by(VISITS).count(store="soak-visits").to_delta("soak_visits")
    entries.left_join(rates, priced, selector=lambda _, entry: entry.rate, name="rate-of-entry").to("soak-priced")
    told = entries.process(Tell, name="tell")
    told.to("soak-told")
    told.to_delta("soak_told")


pipeline = Pipeline(
    name="soak_ledger",
    topology=topology,
    topics=(
        Topic("soak-entries", PARTITIONS),
        Topic("soak-rates", 1, compacted=True),
        *(Topic(name, PARTITIONS) for name in ("soak-echo", "soak-hours-held", "soak-hours-closed")),
        *(Topic(name, PARTITIONS) for name in ("soak-priced", "soak-told", "soak-ledger-letters")),
    ),
    on_error="continue",
    dead_letters=DeadLetters(topic="soak-ledger-letters", table="soak_ledger_letters", keep_bytes=True),
    record_cache=False,
    trigger_interval=timedelta(seconds=3),  # leaves room for the starts of others
)
