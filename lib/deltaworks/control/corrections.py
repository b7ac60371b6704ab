"""Tells consumers of Kafka what a publication or a rollback has changed, exactly once.

The tables come first: what is sent was written down before their commits and released after them
(`lakehouse.publish.corrections`). Whoever publishes, rolls back or maintains a home sends what is released, in the
order in which the tables have shown it; so what one process has left is sent by the next.

Each transaction has its number and the digest of what is sent in a marker, as a batch of a task has. So after a kill
the last marker says which transaction is next. The last transaction ends with a record in each partition that says that
all are there. Only one process at a time sends those of a pipeline, and a newer producer fences an older one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing

import msgspec

from deltaworks.config import Kafka
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.pipeline import Pipeline, Topic
from deltaworks.errors import ConfigurationError, DeltaworksError, IntentError, KafkaTopicError
from deltaworks.faults import reach
from deltaworks.files import alone, make_folder
from deltaworks.kafka import admin
from deltaworks.kafka.control_topic import markers_place, markers_specification
from deltaworks.kafka.transactional import TransactionalSink
from deltaworks.kernel.records import Headers
from deltaworks.kernel.sizes import record_size
from deltaworks.lakehouse.publish import corrected_rows, corrections
from deltaworks.lakehouse.publish.corrected_rows import Change
from deltaworks.lakehouse.publish.corrections import CorrectionsRequest, KeptCorrections
from deltaworks.settings import Settings

_log = logging.getLogger(__name__)


def request_of(pipeline: Pipeline, *, same_batches: bool) -> CorrectionsRequest | None:
    """Who is told of the changes of a publication; None: nobody.

    Args:
        pipeline: whose tables are published.
        same_batches: the replay has run the recorded batches.
    """
    wanted = pipeline.corrections
    if wanted is None:
        return None
    return CorrectionsRequest(topic=wanted.topic, tables=wanted.tables_of(pipeline.plan()), same_batches=same_batches)


def prepare(cluster: Kafka, pipeline: Pipeline) -> None:
    """Creates the topics that corrections need; before a publication, so that a Kafka that does not answer stops it.

    Raises:
        KafkaReadError: the broker does not answer.
        KafkaTopicError: a topic cannot be created, or has another number of partitions than is declared.
    """
    if pipeline.corrections is None:
        return
    name = pipeline.corrections.topic
    declared = [topic for topic in pipeline.topics if topic.name == name]
    there = admin.partition_counts_of(admin.admin(cluster))
    wanted = admin.topic_specs(declared or ([] if name in there else [Topic(name)]))
    admin.create_topics(cluster, [*wanted, markers_specification(pipeline.name, "corrections")])


def send(settings: Settings, name: str) -> list[KeptCorrections]:
    """Sends what is released and not sent yet, by whichever publication or rollback of a pipeline.

    Args:
        settings: where the pipeline runs.
        name: the pipeline.

    Returns:
        What was sent.

    Raises:
        TransientError: Kafka does not answer or has another sender; the next call goes on where this one ended.
        ConfigurationError: a row does not fit into a record of the topic.
        KafkaTopicError: the topic is gone.
    """
    publications = PipelinePaths.of(settings, name).publications
    if not corrections.unsent(publications):
        return []
    make_folder(publications)
    sent = []
    with alone(publications):
        for kept in corrections.unsent(publications):
            try:
                _send(settings, name, kept)
            except DeltaworksError as error:
                raise _waiting(kept, error) from error
            reach("corrections.before_note")
            corrections.note_sent(publications, kept)
            _log.info("%s corrections of %s sent to %s", f"{kept.count:,}", kept.name, kept.topic)
            sent.append(kept)
    return sent


def told(sent: Sequence[KeptCorrections]) -> str:
    """What was sent, to follow what was done; empty: nothing."""
    return "".join(f", {kept.count:,} corrections of the {kept.action} sent to {kept.topic}" for kept in sent)


def _send(settings: Settings, name: str, kept: KeptCorrections) -> None:
    cluster, publications = settings.cluster_of(name), PipelinePaths.of(settings, name).publications
    with closing(_sink(cluster, name, kept.name)) as sink:
        limit = sink.limit(kept.topic)
        if limit is None:
            raise KafkaTopicError(
                f"There is no topic '{kept.topic}'.", hint="create it again, with the partitions that it had"
            )
        marker = sink.committed()
        if marker is not None and marker.intent != kept.digest:
            raise IntentError(
                f"Other corrections of {kept.name} are in topic '{kept.topic}' already.",
                hint="is this a copy of the home? Publish from the newest one",
            )
        ends = _ends(kept, sink.partitions(kept.topic))
        for number in range(0 if marker is None else marker.batch + 1, kept.transactions):
            reach("corrections.before_transaction")
            if not sink.begin(number, kept.digest, kept.transactions - 1):
                continue
            first = number * kept.per_transaction + 1
            for sequence, change in enumerate(corrected_rows.changes_of(publications, kept, number), first):
                key, value = _key(change), _value(kept, change, sequence)
                if record_size(key, value, _headers(kept, "row")) > limit:
                    raise _too_large(kept, change, limit)
                sink.send(kept.topic, key, value, kept.released_ms or 0, _headers(kept, "row"))
            if number == kept.transactions - 1:
                for partition, (key, value) in enumerate(ends):
                    sink.send(kept.topic, key, value, kept.released_ms or 0, _headers(kept, "end"), partition=partition)
            reach("corrections.before_commit")
            sink.commit()
            reach("corrections.after_commit")


def _sink(cluster: Kafka, name: str, kept: str) -> TransactionalSink:
    place, timeout_ms = markers_place(name, "corrections", kept), admin.transaction_timeout_ms(cluster)
    return TransactionalSink(cluster, f"{name}-corrections", 0, 0, place, transaction_timeout_ms=timeout_ms)


def _key(change: Change) -> bytes:
    return msgspec.json.encode({"table": change.table, "key": change.key}, order="sorted")


def _value(kept: KeptCorrections, change: Change, sequence: int) -> bytes:
    return msgspec.json.encode(
        {
            **_about(kept, "row"),
            "table": change.table,
            "sequence": sequence,
            "before": change.before,
            "after": change.after,
        }
    )


def _ends(kept: KeptCorrections, partitions: int) -> list[tuple[bytes, bytes]]:
    """Key and value of the record that ends each partition."""
    tables = {name: table.rows for name, table in kept.tables.items()}
    value = msgspec.json.encode({**_about(kept, "end"), "count": kept.count, "tables": tables})
    keys = ({"end": kept.name, "partition": partition} for partition in range(partitions))
    return [(msgspec.json.encode(key, order="sorted"), value) for key in keys]


def _about(kept: KeptCorrections, kind: str) -> dict[str, object]:
    return {
        "version": corrections.FORMAT,
        "kind": kind,
        "run": kept.run_id,
        "action": kept.action,
        "round": kept.round,
    }


def _headers(kept: KeptCorrections, kind: str) -> Headers:
    told = {"kind": kind, "run": kept.run_id, "action": kept.action, "count": str(kept.count)}
    return tuple((name, text.encode()) for name, text in told.items())


def _too_large(kept: KeptCorrections, change: Change, limit: int) -> ConfigurationError:
    return ConfigurationError(
        f"A corrected row of table '{change.table}' does not fit into a record of topic '{kept.topic}', which takes "
        f"{limit:,} bytes: {_key(change).decode()[:200]}.",
        hint=f"raise max.message.bytes of the topic; then ask again, which goes on with {kept.action} of {kept.run_id}",
    )


def _waiting(kept: KeptCorrections, error: DeltaworksError) -> DeltaworksError:
    """The same error; says that the tables are done."""
    told = f"The tables show the {kept.action} of run {kept.run_id}, but not all corrections are sent: {error.message}"
    return type(error)(told, hint=error.hint or "ask again: sending goes on where it ended")
