"""What must come out of the soak's pipelines, from the records in their topics alone, without any of our operators.

A model takes the records of the source topics in the order of each partition, and says at any time which rows a result
has once everything is processed. A row is a tuple; `Result.lost` and `twice` count rows.
"""

from __future__ import annotations

import bisect
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Row = tuple[Any, ...]
Kind = Literal["table", "topic"]

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
_GRACE_MS, _GAP_MS = 10 * MINUTE_MS, 10 * MINUTE_MS
_NEAR_MS, _NEAR_GRACE_MS = 30 * MINUTE_MS, 2 * HOUR_MS
_UNCERTAIN_MS = _NEAR_MS + _NEAR_GRACE_MS + 10 * MINUTE_MS
"""Asks that became final so shortly before the end may still wait: after a look, Kafka Streams does not look again
before the newest ask that waited then is final."""


@dataclass(frozen=True)
class Message:
    """A record of a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int

    @property
    def name(self) -> str:
        return (self.key or b"").decode()


@dataclass(frozen=True)
class Expected:
    """The rows of one result."""

    kind: Kind
    name: str
    rows: Counter[Row]
    optional: frozenset[Row] = frozenset()
    """Rows that may be there."""


@dataclass(frozen=True)
class Result:
    """One comparison."""

    kind: Kind
    name: str
    expected: int
    lost: int
    """Rows that are expected and not there."""
    twice: int
    """Rows that are there and not expected, or more often."""
    examples: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return not self.lost and not self.twice


def compared(expected: Expected, found: Counter[Row]) -> Result:
    """Row by row."""
    missing = expected.rows - found
    more = found - expected.rows
    for row in expected.optional:
        if more.get(row) == 1 and row not in expected.rows:
            del more[row]
    examples = [f"lost {row}" for row in list(missing)[:3]] + [f"too often {row}" for row in list(more)[:3]]
    return Result(expected.kind, expected.name, expected.rows.total(), missing.total(), more.total(), tuple(examples))


@dataclass
class Ledger:
    """`soak_ledger`."""

    sources = ("soak-entries",)
    _rows: Counter[Row] = field(default_factory=Counter)
    _entries: Counter[Row] = field(default_factory=Counter)
    _letters: Counter[Row] = field(default_factory=Counter)
    _raw_letters: Counter[Row] = field(default_factory=Counter)
    _totals: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _changes: Counter[Row] = field(default_factory=Counter)
    _groups: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _group_changes: Counter[str] = field(default_factory=Counter)
    _hours: Counter[tuple[str, int]] = field(default_factory=Counter)
    _partitions: dict[str, int] = field(default_factory=dict)
    _times: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Stream time of the windows, per partition."""
    _visits: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def take(self, message: Message) -> None:
        try:
            entry = json.loads(message.value or b"")
        except ValueError:
            self._letters[message.topic, message.partition, message.offset] += 1
            self._raw_letters[message.value,] += 1
            return
        account, at, seq, amount = message.name, message.timestamp_ms, entry["seq"], entry["amount"]
        self._partitions[account] = message.partition
        self._rows[message.partition, message.offset, account, seq, amount, at] += 1
        self._entries[account, seq] += 1
        self._totals[account] += amount
        self._changes[account, self._totals[account], message.partition, message.offset] += 1
        self._groups[entry["group"]] += amount
        self._group_changes[entry["group"]] += 1
        time = self._times[message.partition] = max(self._times[message.partition], at)
        start = at - at % HOUR_MS
        if start + HOUR_MS > time - _GRACE_MS:
            self._hours[account, start] += 1
        if not entry["late"]:
            bisect.insort(self._visits[account], at)

    def expected(self) -> Iterator[Expected]:
        yield Expected("table", "soak_rows", self._rows)
        yield Expected("topic", "soak-echo", self._entries)
        yield Expected("topic", "soak-priced", self._entries)
        yield Expected("topic", "soak-told", self._entries)
        yield Expected("table", "soak_told", self._entries)
        yield Expected("table", "soak_ledger_letters", self._letters)
        yield Expected("topic", "soak-ledger-letters", self._raw_letters)
        yield Expected("table", "soak_totals", Counter(self._totals.items()))
        yield Expected("table", "soak_totals_changelog", self._changes)
        yield Expected("table", "soak_groups", Counter(self._groups.items()))
        yield Expected("table", "soak_groups_changelog", Counter({(g,): n for g, n in self._group_changes.items()}))
        closed = {window: count for window, count in self._hours.items() if self._is_closed(*window)}
        rows = Counter((key, start, count, (key, start) in closed) for (key, start), count in self._hours.items())
        yield Expected("table", "soak_hours", rows)
        told = Counter((f"{key}@{start}", count) for (key, start), count in closed.items())
        yield Expected("topic", "soak-hours-held", told)
        yield Expected("topic", "soak-hours-closed", told)
        yield Expected("table", "soak_visits", Counter(_sessions(self._visits)))

    def _is_closed(self, account: str, start: int) -> bool:
        return start + HOUR_MS <= self._times[self._partitions[account]] - _GRACE_MS


@dataclass
class Matches:
    """`soak_matches`."""

    sources = ("soak-asks", "soak-bids", "soak-parcels", "soak-depots")
    _asks: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """By article: time and number."""
    _bids: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    _partitions: dict[str, int] = field(default_factory=dict)
    _times: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _parcels: dict[str, tuple[int, str]] = field(default_factory=dict)
    _depots: dict[str, int] = field(default_factory=dict)
    _depot_changes: Counter[Row] = field(default_factory=Counter)

    def take(self, message: Message) -> None:
        name = message.name
        content: Any = json.loads(message.value) if message.value is not None else None
        match message.topic:
            case "soak-asks" | "soak-bids":
                side = self._asks if message.topic == "soak-asks" else self._bids
                bisect.insort(side[name], (message.timestamp_ms, content["seq"]))
                self._partitions[name] = message.partition
                self._times[message.partition] = max(self._times[message.partition], message.timestamp_ms)
            case "soak-parcels" if content is None:
                self._parcels.pop(name, None)
            case "soak-parcels":
                self._parcels[name] = content["seq"], content["depot"]
            case "soak-depots" if content is None:
                self._depots.pop(name, None)
                self._depot_changes[name, message.offset] += 1
            case _:
                self._depots[name] = content["seq"]
                self._depot_changes[name, message.offset] += 1

    def expected(self) -> Iterator[Expected]:
        pairs, optional = self._pairs()
        yield Expected("table", "soak_matches", pairs, optional)
        yield Expected("topic", "soak-matched", pairs, optional)
        yield Expected("table", "soak_depots", Counter(self._depots.items()))
        yield Expected("table", "soak_depots_changelog", self._depot_changes)
        placed = ((key, seq, depot, self._depots.get(depot)) for key, (seq, depot) in self._parcels.items())
        yield Expected("table", "soak_placed", Counter(placed))

    def _pairs(self) -> tuple[Counter[Row], frozenset[Row]]:
        pairs: Counter[Row] = Counter()
        optional: set[Row] = set()
        for article, asks in self._asks.items():
            bids, time = self._bids.get(article, []), self._times[self._partitions[article]]
            for at, ask in asks:
                low, high = bisect.bisect(bids, (at - _NEAR_MS,)), bisect.bisect(bids, (at + _NEAR_MS + 1,))
                for _, bid in bids[low:high]:
                    pairs[ask, bid] += 1
                if low == high:
                    final_for = time - (at + _NEAR_MS + _NEAR_GRACE_MS)
                    if final_for > _UNCERTAIN_MS:
                        pairs[ask, None] += 1
                    else:  # one that comes behind the other side is a result at once
                        optional.add((ask, None))
        return pairs, frozenset(optional)


@dataclass
class Notes:
    """`soak_recreated`; a topic that was recreated begins at offset 0 again, and its notes are others."""

    sources = ("soak-notes",)
    _notes: Counter[Row] = field(default_factory=Counter)
    _writers: Counter[str] = field(default_factory=Counter)

    def take(self, message: Message) -> None:
        self._notes[message.name, json.loads(message.value or b"")["seq"]] += 1
        self._writers[message.name] += 1

    def expected(self) -> Iterator[Expected]:
        yield Expected("table", "soak_notes", self._notes)
        yield Expected("table", "soak_note_counts", Counter(self._writers.items()))


Model = Ledger | Matches | Notes


def _sessions(visits: dict[str, list[int]]) -> Iterator[Row]:
    """Account, begin, end and number of its entries without a longer pause."""
    for account, times in visits.items():
        first = last = times[0]
        count = 0
        for at in times:
            if at - last > _GAP_MS:
                yield account, first, last, count
                first, count = at, 0
            last, count = at, count + 1
        yield account, first, last, count


def rows_of_topic(topic: str, messages: Sequence[Message]) -> Counter[Row]:
    """What was found in an output topic, in the form of the models."""
    match topic:
        case "soak-echo" | "soak-priced":
            return Counter((m.name, json.loads(m.value or b"")["seq"]) for m in messages)
        case "soak-told" | "soak-hours-held" | "soak-hours-closed":
            return Counter((m.name, int.from_bytes(m.value or b"", "big")) for m in messages)
        case "soak-matched":
            return Counter((row["ask"], row["bid"]) for row in (json.loads(m.value or b"") for m in messages))
        case _:
            return Counter((m.value,) for m in messages)


COLUMNS: dict[str, str] = {
    "soak_rows": "source_partition, source_offset, key, seq, amount, epoch_ms(timestamp)",
    "soak_told": "key, value",
    "soak_ledger_letters": 'topic, partition, "offset"',
    "soak_totals": "key, value",
    "soak_totals_changelog": "key, value, source_partition, source_offset",
    "soak_groups": "key, value",
    "soak_groups_changelog": "key",
    "soak_hours": "key, epoch_ms(window_start), value, is_final",
    "soak_visits": "key, epoch_ms(window_start), epoch_ms(window_end), value",
    "soak_matches": "ask, bid",
    "soak_depots": "key, seq",
    "soak_depots_changelog": "key, source_offset",
    "soak_placed": "key, seq, depot, depot_seq",
    "soak_notes": "key, seq",
    "soak_note_counts": "key, value",
}
"""Table -> the columns that are a row of its model, in DuckDB's words."""
