"""What `jobs/orders.py` means, said a third time: record by record in plain Python, one loop per rule.

It shares no code with the pipeline nor with `jobs/recomputed/orders.sql`; it is slow and obvious.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from tests.unit.jobs.recomputing import Row, murmur2

HOUR, MINUTE = 3_600_000, 60_000


def merge_heads(queues: Sequence[list[Any]], time: Any) -> Iterator[Any]:
    """The head with the lowest time first; of equal ones, that of the earlier queue."""
    heads = [0] * len(queues)
    while any(head < len(queue) for head, queue in zip(heads, queues, strict=True)):
        _, n = min((time(q[h]), n) for n, (q, h) in enumerate(zip(queues, heads, strict=True)) if h < len(q))
        yield queues[n][heads[n]]
        heads[n] += 1


@dataclass
class Model:
    """All tasks of both stages."""

    partitions: int
    users: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    stream_time: dict[int, int] = field(default_factory=lambda: defaultdict(lambda: -1))
    session_time: dict[int, int] = field(default_factory=lambda: defaultdict(lambda: -1))
    verdicts: dict[tuple[int, int], str] = field(default_factory=dict)
    user_dead_letters: set[tuple[int, int]] = field(default_factory=set)
    enriched: list[tuple[str, str, Decimal]] = field(default_factory=list)
    counts: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    revenue: dict[tuple[str, int], Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    sessions: dict[str, dict[tuple[int, int], int]] = field(default_factory=lambda: defaultdict(dict))

    def batch(self, rows: Sequence[Row]) -> None:
        """One micro-batch. Records that do not decode are set aside before the others are put in order."""
        good = [row for row in rows if not self._set_aside(row)]
        tasks = range(self.partitions)
        exchanges: dict[int, list[list[tuple[int, str]]]] = {target: [[] for _ in tasks] for target in tasks}
        for task in tasks:
            queues = [
                sorted((r for r in good if r.topic == topic and r.partition == task), key=lambda r: r.offset)
                for topic in ("raw-orders", "user-data")
            ]
            for row in merge_heads(queues, lambda r: r.timestamp_ms):
                if row.topic == "user-data":
                    self._user(task, row)
                    continue
                verdict, exchange = self._order(task, row)
                self.verdicts[row.partition, row.offset] = verdict
                if exchange is not None:
                    target = (murmur2(exchange.encode()) & 0x7FFFFFFF) % self.partitions
                    exchanges[target][task].append((row.timestamp_ms, exchange))
        for target, upstream in exchanges.items():
            for timestamp_ms, user in merge_heads(upstream, lambda record: record[0]):
                self._session(target, user, timestamp_ms)

    def _set_aside(self, row: Row) -> bool:
        at = row.partition, row.offset
        if row.topic == "user-data":
            if malformed := not _is_user(row):
                self.user_dead_letters.add(at)
            return malformed
        if (verdict := _malformed_order(row)) is None:
            return False
        self.verdicts[at] = verdict
        return True

    def _user(self, task: int, row: Row) -> None:
        key = None if row.key is None else row.key.decode()
        user = None if row.value is None else json.loads(row.value.decode())
        if key is not None:
            if user is None:
                self.users.pop((task, key), None)
            else:
                self.users[task, key] = user

    def _order(self, task: int, row: Row) -> tuple[str, str | None]:
        key = None if row.key is None else row.key.decode()
        if not row.value:
            return "empty", None
        order = json.loads(row.value.decode(), parse_float=Decimal)
        amount = Decimal(order["amount"])
        if amount <= 0:
            return "not positive", None
        if key is None:
            return "no key", None
        if (task, key) not in self.users:
            return "no user", None
        if "/" not in order["location"]:
            return "bad location", None
        self.enriched.append((order["order_id"], self.users[task, key]["name"], amount))
        self._windows(task, key, row.timestamp_ms, amount)
        return "enriched", order["user_id"]

    def _windows(self, task: int, key: str, at: int, amount: Decimal) -> None:
        now = self.stream_time[task] = max(self.stream_time[task], at)
        if (hour := at - at % HOUR) + HOUR > now - 5 * MINUTE:
            self.counts[key, hour] += 1
        for start in range(max(0, at - at % MINUTE - 4 * MINUTE), at + 1, MINUTE):
            if start + 5 * MINUTE > now - 5 * MINUTE:
                self.revenue[key, start] += amount

    def _session(self, task: int, user: str, at: int) -> None:
        gap, retention = 30 * MINUTE, 60 * MINUTE
        seen, now = self.session_time[task], max(self.session_time[task], at)
        self.session_time[task] = now
        stored = self.sessions[user]
        reach = [(s, e) for s, e in stored if e > seen - retention and e >= at - gap and s <= at + gap]
        start, end = min([at, *(s for s, _ in reach)]), max([at, *(e for _, e in reach)])
        if end < now - retention:
            return
        stored[start, end] = 1 + sum([stored.pop(window) for window in reach])


def _is_user(row: Row) -> bool:
    try:
        _ = row.key is None or row.key.decode()
        user = None if row.value is None else json.loads(row.value.decode())
        return user is None or all(isinstance(user[name], str) for name in ("user_id", "name", "country"))
    except (ValueError, KeyError, TypeError):
        return False


def _malformed_order(row: Row) -> str | None:
    """The verdict on an order that does not decode."""
    try:
        _ = row.key is None or row.key.decode()
    except ValueError:
        return "malformed key"
    if not row.value:
        return None
    try:
        order = json.loads(row.value.decode(), parse_float=Decimal)
        texts = [order[name] for name in ("order_id", "user_id", "item", "location", "event_time")]
        amount = order["amount"]
        if not all(isinstance(text, str) for text in texts) or isinstance(amount, bool) or "T" not in texts[4]:
            raise TypeError
        Decimal(amount)
        if order["type"] not in ("PREMIUM", "STANDARD"):
            raise ValueError
    except (ValueError, KeyError, TypeError, InvalidOperation):
        return "malformed"
    return None
