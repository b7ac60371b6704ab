from __future__ import annotations

from collections import Counter

from deltaworks.kafka.admin import TopicSpec, create_topics, delete_topics, end_offsets
from deltaworks.kernel.partitioning import partition_of
from deltaworks.testing.sample_data import produce
from jobs.recomputed.orders import recomputation
from jobs.recomputed.results import read_topics
from jobs.sample_data.kafka import PARTITIONS
from jobs.sample_data.orders import records
from tests.support.live_stack import LiveStack

TOPICS = recomputation.inputs


def test_producing_goes_on_where_it_stopped_and_writes_nothing_twice(kafka: LiveStack) -> None:
    create_topics(kafka.bootstrap, [TopicSpec(name=topic, partitions=PARTITIONS) for topic in TOPICS])
    try:
        first = produce(kafka.bootstrap, records(1_000))
        again = produce(kafka.bootstrap, records(1_000), present=end_offsets(kafka.bootstrap, TOPICS))
        more = produce(kafka.bootstrap, records(1_500), present=end_offsets(kafka.bootstrap, TOPICS))
        found, partitions = read_topics(kafka.bootstrap, TOPICS)
    finally:
        delete_topics(kafka.bootstrap, TOPICS)

    sample = list(records(1_500))
    assert (again, first + more, partitions) == (0, len(sample), PARTITIONS)
    rows = list(zip(*(found.column(name).to_pylist() for name in found.column_names), strict=True))
    assert Counter((topic, key, value, at) for topic, _, _, at, key, value, _ in rows) == Counter(
        (r.topic, r.key, r.value, r.timestamp_ms) for r in sample
    )
    assert all(partition == partition_of(key, PARTITIONS) for _, partition, _, _, key, _, _ in rows if key is not None)


def test_records_keep_their_order_within_a_partition(kafka: LiveStack) -> None:
    create_topics(kafka.bootstrap, [TopicSpec(name=topic, partitions=PARTITIONS) for topic in TOPICS])
    try:
        produce(kafka.bootstrap, records(1_000), records_per_second=50_000)
        found, _ = read_topics(kafka.bootstrap, TOPICS)
    finally:
        delete_topics(kafka.bootstrap, TOPICS)

    rows = zip(*(found.column(name).to_pylist() for name in ("topic", "partition", "offset", "value")), strict=True)
    in_order = [(topic, partition, value) for topic, partition, _, value in sorted(rows, key=lambda row: row[:3])]
    sent = [
        (r.topic, r.partition if r.key is None else partition_of(r.key, PARTITIONS), r.value) for r in records(1_000)
    ]
    assert in_order == sorted(sent, key=lambda record: record[:2])
