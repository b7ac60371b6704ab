"""Writes the nulls of a sweep, but none for a row that somebody has written since it was planned.

Nulls are written in transactions. Before each, all that came since the plan is read, and whatever key is there gets no
null. A transaction is committed only if its nulls are the very next records of their partitions; otherwise somebody has
written at the same time, so it is taken back, and made again from what is there then.

What it does not do: readers of `read_uncommitted` see a null that is taken back. The connector is stopped, so nobody
should write at all.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from deltaworks import clock
from deltaworks.connectors.dead_letters import messages
from deltaworks.connectors.row_keys import Rows
from deltaworks.errors import ConfigurationError, KafkaWriteError
from deltaworks.kafka import admin
from deltaworks.kafka.admin import SILENT, Position
from deltaworks.kafka.clients import make
from deltaworks.kafka.control_topic import reader
from deltaworks.kafka.schemas_of_settings import registry_of
from deltaworks.settings import Settings

TRANSACTION_RECORDS = 10_000
_ATTEMPTS = 3
_TIMEOUT_S = 60.0
_TRANSACTION_MS = 240_000
"""How long readers wait for a transaction whose sender was killed. Its own steps take less than that."""
_SETTLED_S, _PAUSE_S = 30.0, 0.05
"""How long it is waited for a transaction of somebody else, and for the end of our own."""


def write(
    settings: Settings,
    connector: str,
    keys: Mapping[Position, Sequence[bytes]],
    ends: Mapping[Position, int],
    still_stopped: Callable[[], None],
) -> int:
    """Writes a null for each key, as long as nobody writes it.

    Args:
        settings: of the project and its Kafka.
        connector: its name begins the transactional id.
        keys: partition -> keys.
        ends: partition -> how far it was read when these were found.
        still_stopped: raises if the connector may write; asked before each commit.

    Returns:
        How many were written.

    Raises:
        KafkaReadError: the broker does not answer.
        KafkaWriteError: some were not written, or somebody else writes all the time.
        ConfigurationError: keys that came since cannot be compared.
        SchemasUnavailableError: they name several schemas, and the registry does not answer.
    """
    todo = ((at, key) for at, of_partition in keys.items() for key in of_partition)
    topics = sorted({topic for (topic, _), of_partition in keys.items() if of_partition})
    if not topics:
        return 0
    since, written = _Since(settings, topics, ends), 0
    producer = _Producer(settings, connector)
    total = sum(map(len, keys.values()))
    try:
        producer.init()
        while chunk := list(islice(todo, TRANSACTION_RECORDS)):
            for _ in range(_ATTEMPTS):
                tops = since.read()
                nulls = [(at, key) for at, key in chunk if not since.has(at[0], key)]
                if (reached := producer.transaction(nulls, tops, still_stopped)) is not None:
                    since.ours(reached)
                    written += len(nulls)
                    break
            else:
                raise KafkaWriteError(f"somebody else writes to {', '.join(topics)}")
    except (KafkaException, KafkaWriteError, BufferError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else str(error).partition("\n")[0]
        raise KafkaWriteError(
            f"{total - written:,} of {total:,} deletions were not written: {reason.rstrip('.')}.",
            hint=f"deltaworks connect sweep {connector} again: it finds those that are left",
        ) from error
    finally:
        producer.close()
    return written


class _Since:
    """What others have written since the plan."""

    def __init__(self, settings: Settings, topics: Sequence[str], ends: Mapping[Position, int]) -> None:
        self._settings, self._topics, self._ends = settings, topics, dict(ends)
        self._keys: defaultdict[str, set[bytes]] = defaultdict(set)
        self._rows: dict[str, Rows] = {}

    def read(self) -> dict[Position, int]:
        """Reads it up to the ends of all partitions, which it returns."""
        tops = self._settled()
        with closing(reader(self._settings.cluster)) as consumer:
            for at in sorted(tops):
                if (begin := self._ends.get(at, 0)) < tops[at]:
                    consumer.assign([TopicPartition(*at, begin)])
                    found = messages(consumer, tops[at], f"{at[0]}-{at[1]}")
                    came = {key for message in found if (key := message.key()) is not None}
                    if came - self._keys[at[0]]:
                        self._keys[at[0]] |= came
                        self._rows.pop(at[0], None)
        self._ends = dict(tops)
        return tops

    def has(self, topic: str, key: bytes) -> bool:
        """Whether the row of a key was written, or deleted."""
        if not (keys := self._keys[topic]):
            return False
        if topic not in self._rows:
            table = self._settings.values.table("schema_registry")
            self._rows[topic] = Rows(keys, (), lambda: registry_of(table))
        rows = self._rows[topic]
        if key in rows:
            return True
        if not rows.can_tell(key):
            raise ConfigurationError(
                f"Keys that were written to '{topic}' since the plan are {rows.forms}, which cannot be compared with "
                "the old ones.",
                hint="let nobody write there, and plan anew: deltaworks connect sweep",
            )
        return False

    def ours(self, reached: Mapping[Position, int]) -> None:
        """Takes it that what is before these offsets is ours."""
        self._ends |= reached

    def _settled(self) -> dict[Position, int]:
        """The ends, once no transaction is open: neither of somebody else, nor our last one, which is ended later than
        the broker says so."""
        until = clock.ticks_s() + _SETTLED_S
        while True:
            tops = admin.end_offsets(self._settings.cluster, self._topics, committed=False)
            if admin.end_offsets(self._settings.cluster, self._topics) == tops:
                return tops
            if clock.ticks_s() > until:
                raise KafkaWriteError(f"a transaction of somebody else is open in {', '.join(self._topics)}")
            time.sleep(_PAUSE_S)


class _Producer:
    """Writes nulls in transactions."""

    def __init__(self, settings: Settings, connector: str) -> None:
        ours: dict[str, Any] = {
            "transactional.id": f"connect.{connector}-sweep",
            "transaction.timeout.ms": min(_TRANSACTION_MS, admin.transaction_timeout_ms(settings.cluster)),
            "log_level": 0,
            "logger": SILENT,
            "on_delivery": self._delivered,
        }
        self._producer = make(Producer, settings.cluster, ours)
        self._offsets: defaultdict[Position, list[int]] = defaultdict(list)
        self._refused: list[str] = []
        self._open = False

    def init(self) -> None:
        """Takes over from an earlier sweep of the connector, which can write no more."""
        self._producer.init_transactions(_TIMEOUT_S)

    def transaction(
        self, nulls: Sequence[tuple[Position, bytes]], tops: Mapping[Position, int], still_stopped: Callable[[], None]
    ) -> dict[Position, int] | None:
        """Writes nulls behind the ends of partitions; returns the new ends, or None if somebody has come between."""
        if not nulls:
            return {}
        self._offsets.clear()
        self._producer.begin_transaction()
        self._open = True
        for (topic, partition), key in nulls:
            self._producer.produce(topic, key=key, value=None, partition=partition)
        if self._producer.flush(_TIMEOUT_S):
            raise KafkaWriteError(f"the broker has not answered within {_TIMEOUT_S:g} s")
        if self._refused:
            raise KafkaWriteError(self._refused[0])
        still_stopped()
        if any(found != list(range(tops[at], tops[at] + len(found))) for at, found in self._offsets.items()):
            self._abort()
            return None
        self._producer.commit_transaction(_TIMEOUT_S)
        self._open = False
        return {at: tops[at] + len(found) for at, found in self._offsets.items()}

    def close(self) -> None:
        """Takes back what is not committed."""
        with suppress(KafkaException):  # the broker does it after the timeout
            self._abort()

    def _abort(self) -> None:
        if self._open:
            self._open = False
            self._producer.abort_transaction(_TIMEOUT_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        at = str(message.topic()), int(message.partition() or 0)
        if error is not None:
            self._refused.append(f"{at[0]}-{at[1]}: {error.str()}")
        else:
            self._offsets[at].append(int(message.offset() or 0))
