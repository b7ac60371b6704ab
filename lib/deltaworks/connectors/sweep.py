"""Deletes what a new snapshot of a source does not have: rows that went while nobody read the log of the database.

A source of Debezium whose offsets are reset takes a snapshot, which has every row that there is, and no word of those
that were deleted before. So whoever has kept the old rows keeps these, too. The reset notes where the topics end
(`begin_again`). After the snapshot, the last record of each row that there is comes behind that place; a key whose last
record comes before it has no row. It gets a null, which tables, sinks and other readers take for the deletion that they
have missed.

Keys are compared by what they say (`row_keys`): another converter, another id of the same schema or another order of
columns write the same row with other bytes. What cannot be compared is refused, and nothing is deleted.

The connector is stopped meanwhile: somebody who writes could insert such a row anew, and the null would delete it. What
was written after the plan all the same gets no null (`deletions`). A sweep that is killed is given again; what has its
null is not found a second time.

What it does not do: it brings back none of the changes in between, and it does not know whether the snapshot was right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from confluent_kafka import Message, TopicPartition

from deltaworks import clock, formats
from deltaworks.config import Kafka
from deltaworks.connect import states
from deltaworks.connect.answers import Offset
from deltaworks.connect.api import ConnectApi
from deltaworks.connect.connector import CLASS
from deltaworks.connectors import deletions, row_keys
from deltaworks.connectors.dead_letters import messages, require_cluster
from deltaworks.connectors.row_keys import Rows
from deltaworks.errors import ConfigurationError, KafkaReadError
from deltaworks.files import replace_file
from deltaworks.kafka import admin
from deltaworks.kafka.admin import Position
from deltaworks.kafka.control_topic import reader
from deltaworks.kafka.schemas_of_settings import registry_of
from deltaworks.names import hint_of
from deltaworks.settings import Settings

FORMAT = 1
_DEBEZIUM = "io.debezium."
_OF_SINKS = ("topics", "topics.regex")
_MODE = "snapshot.mode"
_WHOLE = ("initial", "initial_only", "always", "when_needed")
"""Modes whose snapshot has all rows of all tables."""
_PARTIAL = ("snapshot.include.collection.list", "snapshot.select.statement.overrides")
"""Settings with which it has not."""
_TOLERANCE = "errors.tolerance"
"""Likewise, if it is `all`: a row of the snapshot that fails is left out."""
_TRIED = tuple(f"{_DEBEZIUM}connector.{each}." for each in ("postgresql", "mariadb", "mysql"))
"""Classes of which it is known what their offsets say of a snapshot."""
_RENAMING = (".ByLogicalTableRouter", ".ToLogicalTopicRouter")
"""Transforms that write several tables into one topic, and give their keys one schema."""
_ROUTING = (*_RENAMING, ".RegexRouter")
"""All that may write several tables into one topic."""
_SOON_S = 10.0
_MANY = 10
"""So many rows of a topic, and more than stay there, are not deleted before somebody says that it is right."""


class _Topic(msgspec.Struct, frozen=True):
    """A topic when the offsets were reset."""

    id: str
    ends: list[int]
    """The offset after the last record, by partition."""


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """Where the topics of a source ended when its offsets were reset."""

    format: int = FORMAT
    at_ms: int
    topics: dict[str, _Topic]


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What would be deleted from a topic."""

    topic: str
    rows: int
    """How many keys have a row."""
    gone: int
    """How many have none, although the topic says so."""
    whole: bool
    """Whether the topic has the last record of each key; otherwise some are not found."""
    written: bool = True
    """Whether the new snapshot, or the source after it, has written a row there."""
    mixed: bool = False
    """Whether it may have several tables, and the keys do not say which one they are of."""

    @property
    def doubt(self) -> str | None:
        """Why it may be wrong to delete them; None: nothing speaks against it."""
        if self.gone and not self.written:
            return (
                f"the new snapshot has written no row to '{self.topic}': its table is empty, or the connector captures "
                "it no more (table.include.list, transforms)"
            )
        if self.gone and self.mixed:
            return (
                f"'{self.topic}' may have rows of several tables, by a transform of the connector, and its keys do not "
                "say which: those of a table that is captured no more would be deleted, too"
            )
        if self.gone >= _MANY and self.gone > self.rows:
            return f"{self.gone:,} of {self.gone + self.rows:,} rows of '{self.topic}' would be deleted"
        return None


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What would be deleted."""

    connector: str
    topics: tuple[Swept, ...]
    keys: Mapping[Position, Sequence[bytes]] = field(repr=False)
    """Partition -> the keys without a row."""
    ends: Mapping[Position, int] = field(default_factory=dict, repr=False)
    """How far the topics were read."""

    @property
    def count(self) -> int:
        """How many rows."""
        return sum(each.gone for each in self.topics)

    def require_likely(self) -> None:
        """Raises `ConfigurationError` if what would be deleted may be there."""
        if doubts := [each.doubt for each in self.topics if each.doubt is not None]:
            raise ConfigurationError(
                f"Nothing was deleted: {'; '.join(doubts)}.",
                hint="compare with the tables of the database; if their rows are gone indeed, --force deletes them",
            )


def begin_again(settings: Settings, api: ConnectApi, name: str) -> tuple[str, ...]:
    """Notes where the topics of a stopped source of Debezium end, and resets its offsets; of others, only the latter.

    Args:
        settings: of the project and its Kafka.
        api: of a worker.
        name: the connector.

    Returns:
        The topics that were noted.

    Raises:
        ConfigurationError: there is no such connector, or it is not stopped; its topics are in another cluster than
            `[kafka]` has, or the workers do not say which they are.
        ConnectUnavailableError: the worker does not answer.
        KafkaReadError: the broker does not answer; nothing was reset.
    """
    states.require_stopped(api, name)
    config = api.config(name) or {}
    topics: Sequence[str] = ()
    note: _Note | None = None
    if _captures(config):
        require_cluster(settings.cluster, api, timeout_s=_SOON_S)
        found = admin.topic_states(admin.admin(settings.cluster), api.topics(name))
        topics = sorted(found)
        ends = admin.end_offsets(settings.cluster, topics, committed=False) if topics else {}
        noted = {
            topic: _Topic(found[topic].id, [ends[at] for at in sorted(ends) if at[0] == topic]) for topic in topics
        }
        note = _Note(at_ms=clock.wall_ms(), topics=noted)
    _reset(settings, api, name)
    if note is not None:  # only now: without a reset no snapshot follows, and rows that have not changed would be gone
        replace_file(settings.begun_again(name), msgspec.json.encode(note), durable=True)
    return tuple(topics)


def reset(settings: Settings, api: ConnectApi, name: str) -> str | None:
    """Resets the offsets of a stopped connector, also if nothing says where its topics end.

    Args:
        settings: of the project and its Kafka.
        api: of a worker.
        name: the connector.

    Returns:
        What it means for a sweep, for people; None: nothing, as of a sink.

    Raises:
        ConfigurationError: there is no such connector, or it is not stopped.
        ConnectUnavailableError: the worker does not answer.
    """
    states.require_stopped(api, name)
    try:
        noted = begin_again(settings, api, name)
    except (KafkaReadError, ConfigurationError) as error:
        _reset(settings, api, name)
        return f"where its topics end is not known, so `sweep` cannot find rows that are gone: {error.message}"
    return f"`deltaworks connect sweep {name}` finds rows that its new snapshot does not have" if noted else None


def _reset(settings: Settings, api: ConnectApi, name: str) -> None:
    """Resets offsets. The note of an earlier reset is wrong from now on, whatever comes of it."""
    settings.begun_again(name).unlink(missing_ok=True)
    api.reset_offsets(name)


def plan(settings: Settings, api: ConnectApi, name: str, topics: Sequence[str]) -> Sweep:
    """Finds the rows in topics that the new snapshot of a source does not have; changes nothing.

    Args:
        settings: of the project and its Kafka.
        api: of a worker.
        name: the connector, which is stopped.
        topics: which topics of tables.

    Raises:
        ConfigurationError: there is no such connector, it is not stopped, nobody has reset its offsets here, its
            snapshot is not complete or never has all rows, or a topic is none of those that it had, or another source
            writes to it, or its old keys are written so that they cannot be compared with the new ones.
        ConnectUnavailableError: the worker does not answer.
        KafkaReadError: the broker does not answer.
        SchemasUnavailableError: keys name several schemas, and the registry does not answer.
        IncompatibleCheckpointError: another version of deltaworks has reset the offsets.
    """
    states.require_stopped(api, name)
    config = api.config(name) or {}
    _require_whole(name, config)
    require_cluster(settings.cluster, api)
    note = _noted(settings.begun_again(name), name)
    _require_topics(settings, name, note, topics)
    _require_alone(api, name, topics)
    _require_complete(name, api.offsets(name))
    routers = _routers(config)
    chosen = sorted(set(topics))
    begins, ends = admin.begin_offsets(settings.cluster, chosen), admin.end_offsets(settings.cluster, chosen)
    kept = admin.compacted(settings.cluster, chosen)
    keys: dict[Position, Sequence[bytes]] = {}
    found = []
    for topic in chosen:
        was = note.topics[topic].ends
        at = sorted(each for each in ends if each[0] == topic)
        boundaries = {each: was[each[1]] if each[1] < len(was) else 0 for each in at}
        seen = {
            each: _keys(settings.cluster, each, begins.get(each, 0), ends[each], _Seen(boundary, tables=bool(routers)))
            for each, boundary in boundaries.items()
        }
        # Partitions that a topic got later have taken keys from others, where the records before stay the last ones.
        there = set[bytes]().union(*(each.new for each in seen.values()))
        deleted = set[bytes]().union(*(each.deleted for each in seen.values()))
        rows = Rows(there, deleted, lambda: registry_of(settings.values.table("schema_registry")))
        gone = {each: [key for key in keys_of.old if key not in rows] for each, keys_of in seen.items()}
        if written := bool(there or deleted):
            _require_comparable(name, topic, rows, [key for of_one in gone.values() for key in of_one])
        keys |= gone
        whole = topic in kept or not any(begins.get(each, 0) for each in at)
        count = sum(map(len, gone.values()))
        tables = set[_Table]().union(*(each.written for each in seen.values()))
        old = {key: seen[each].old[key] for each, of_one in gone.items() for key in of_one}
        mixed = _is_mixed(routers, old, tables)
        found.append(Swept(topic=topic, rows=len(there), gone=count, whole=whole, written=written, mixed=mixed))
    return Sweep(connector=name, topics=tuple(found), keys=keys, ends=ends)


def send(settings: Settings, api: ConnectApi, planned: Sweep, *, force: bool = False) -> int:
    """Writes a null for each row of a plan that nobody has written since; the connector is stopped, still.

    Args:
        settings: of the project and its Kafka.
        api: of a worker.
        planned: from `plan`.
        force: also if most rows of a topic would go, or the new snapshot has written none there.

    Returns:
        How many were written.

    Raises:
        ConfigurationError: the connector is not stopped any more, or rows may be there (`Sweep.require_likely`).
        ConnectUnavailableError: the worker does not answer.
        KafkaReadError: the broker does not answer.
        KafkaWriteError: some were not written, or somebody else writes to the topic; a new plan has these.
    """
    if not force:
        planned.require_likely()

    def still_stopped() -> None:
        states.require_stopped(api, planned.connector)

    still_stopped()
    return deletions.write(settings, planned.connector, planned.keys, planned.ends, still_stopped)


def _captures(config: Mapping[str, str]) -> bool:
    """Whether it is a source of Debezium."""
    return config.get(CLASS, "").startswith(_DEBEZIUM) and not any(config.get(each) for each in _OF_SINKS)


def _require_whole(name: str, config: Mapping[str, str]) -> None:
    """Raises `ConfigurationError` unless a snapshot of the connector has every row."""
    if not _captures(config):
        raise ConfigurationError(
            f"Connector '{name}' is no source of Debezium: nothing says which rows it has read anew."
        )
    if not config[CLASS].startswith(_TRIED):
        raise ConfigurationError(
            f"Connector '{name}' is a {config[CLASS]}: what its offsets say of a snapshot was never tried, so nobody "
            "knows whether it is complete."
        )
    mode = config.get(_MODE, "initial")
    partial = [each for each in config if each.startswith(_PARTIAL)]
    if config.get(_TOLERANCE, "").strip().lower() == "all":
        partial.append(f"{_TOLERANCE}=all")
    if mode not in _WHOLE or partial:
        what = f"{_MODE}={mode}" if mode not in _WHOLE else partial[0]
        raise ConfigurationError(
            f"The snapshot of connector '{name}' does not have all rows, by {what}: rows that it has not would be "
            "deleted.",
            hint="take a snapshot of everything first",
        )


def _routers(config: Mapping[str, str]) -> list[str]:
    """The transforms of a connector that may write several tables into one topic."""
    return [each for name, each in config.items() if name.startswith("transforms.") and each.endswith(_ROUTING)]


def _is_mixed(routers: Sequence[str], gone: Mapping[bytes, _Table | None], written: Collection[_Table]) -> bool:
    """Whether rows that are gone may be of another table than those that were written: neither key nor change says so.

    Args:
        routers: of the connector.
        gone: key -> the table of its last change, if that is an envelope.
        written: the tables of the changes since.
    """
    renamed = any(each.endswith(_RENAMING) for each in routers)
    return bool(routers) and not all(
        table in written or row_keys.form_of(key).tells_tables(renamed=renamed) for key, table in gone.items()
    )


def _noted(file: Path, name: str) -> _Note:
    note = formats.read(file, _Note, FORMAT, f"{file}, which says where the topics of {name} ended,")
    if note is None:
        raise ConfigurationError(
            f"Nobody has reset the offsets of connector '{name}' from this home, so nothing says where its new "
            "snapshot begins.",
            hint=f"deltaworks connect offsets {name} --reset, resume it, and stop it when the snapshot is complete",
        )
    return note


def _require_topics(settings: Settings, name: str, note: _Note, topics: Sequence[str]) -> None:
    ids = admin.topic_ids(admin.admin(settings.cluster), topics)
    for topic in topics:
        if topic not in note.topics:
            raise ConfigurationError(
                f"'{topic}' was no topic of connector '{name}' when its offsets were reset.",
                hint=hint_of(topic, note.topics, "its topics"),
            )
        if ids.get(topic) != note.topics[topic].id:
            raise ConfigurationError(
                f"Topic '{topic}' was deleted, or made anew, after the offsets of '{name}' were reset.",
                hint="a new topic has nothing old in it, so there is nothing to sweep",
            )


def _require_alone(api: ConnectApi, name: str, topics: Sequence[str]) -> None:
    """Raises `ConfigurationError` if another source has written to the topics: no snapshot of ours has its rows."""
    for other, listed in sorted(api.all().items()):
        if other == name or listed.info is None or any(map(listed.info.texts.get, _OF_SINKS)):
            continue
        try:
            shared = sorted(set(api.topics(other)) & set(topics))
        except ConfigurationError:  # deleted just now, or the workers are told not to say so
            continue
        if shared:
            raise ConfigurationError(
                f"Topic '{shared[0]}' has rows of the source '{other}', too. The snapshot of '{name}' does not have "
                "them, so they would be deleted.",
                hint=f"if '{other}' writes there no more: deltaworks connect delete {other}",
            )


def _require_complete(name: str, offsets: Sequence[Offset]) -> None:
    """Raises `ConfigurationError` unless the new snapshot is complete, by what Debezium says in its offsets."""
    said = [each.offset for each in offsets if each.offset]
    if not said or any(map(_is_open, said)):
        raise ConfigurationError(
            f"The new snapshot of connector '{name}' is not complete: rows that are still to come would be deleted.",
            hint=f"deltaworks connect resume {name}; `deltaworks connect offsets {name}` says when it is",
        )


def _is_open(offset: Mapping[str, object]) -> bool:
    if offset.get("last_snapshot_record") is True or offset.get("snapshot_completed") is True:
        return False
    return offset.get("snapshot") not in (None, False, "false") or offset.get("last_snapshot_record") is False


def _require_comparable(name: str, topic: str, rows: Rows, gone: Sequence[bytes]) -> None:
    """Raises `ConfigurationError` if nobody can say whether rows are gone. It shows no key: these may be of persons."""
    unclear = [key for key in gone if not rows.can_tell(key)]
    if unclear:
        why = "".join(f" ({reason})" for reason in rows.reasons)
        raise ConfigurationError(
            f"{len(unclear):,} old keys of topic '{topic}' are written as {row_keys.form_of(unclear[0])}, and the new "
            f"snapshot of '{name}' writes {rows.forms}: nothing says whether their rows are gone{why}.",
            hint="have the converter, the columns or a transform of the keys changed? Take that back and reset the "
            "offsets again, or let the source write into new topics (topic_prefix=)",
        )


class _Table(msgspec.Struct, frozen=True):
    """Where a change comes from."""

    db: str = ""
    schema: str | None = None
    table: str = ""


class _Change(msgspec.Struct):
    """An envelope of Debezium, as JSON without a schema or with one."""

    source: _Table | None = None
    payload: _Change | None = None


_changes = msgspec.json.Decoder(_Change)


def _table_of(value: bytes) -> _Table | None:
    try:
        change = _changes.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    found = (change.payload or change).source
    return found if found is not None and found.table else None


@dataclass
class _Seen:
    """The keys of a partition, before and after a boundary: of each key only the last record counts."""

    boundary: int
    tables: bool
    """Whether it matters which tables they are of."""
    old: dict[bytes, _Table | None] = field(default_factory=dict)
    """Those whose last record is before the boundary, and no null; and its table, as far as it says so."""
    new: set[bytes] = field(default_factory=set)
    """Those that have a row."""
    deleted: set[bytes] = field(default_factory=set)
    """Those that had one after the boundary."""
    written: set[_Table] = field(default_factory=set)
    """Whose changes are after the boundary, as far as they say so."""

    def take(self, message: Message) -> None:
        """Takes a record into account."""
        key, value = message.key(), message.value()
        if key is None:
            return
        self.old.pop(key, None)
        if value is None:
            if key in self.new:
                self.new.remove(key)
                self.deleted.add(key)
            return
        table = _table_of(value) if self.tables else None
        if int(message.offset() or 0) < self.boundary:
            self.old[key] = table
        else:
            self.new.add(key)
            self.deleted.discard(key)
            self.written.update(() if table is None else (table,))


def _keys(kafka: Kafka, at: Position, begin: int, end: int, seen: _Seen) -> _Seen:
    """Reads the keys of a partition."""
    if begin < end:
        with closing(reader(kafka)) as consumer:
            consumer.assign([TopicPartition(*at, begin)])
            for message in messages(consumer, end, f"{at[0]}-{at[1]}"):
                seen.take(message)
    return seen
