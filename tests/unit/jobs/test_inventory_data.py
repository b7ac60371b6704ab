from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import pytest

from deltaworks.kernel.partitioning import partition_of
from deltaworks.testing.sample_data import census
from jobs.sample_data.inventory import MAIN_TOPIC, MOVEMENTS_TOPIC, STORES, Kind, records
from jobs.sample_data.kafka import DAY, HOUR


def test_a_thousand_orders_hold_every_kind_of_trouble() -> None:
    counted = census(records(1_000))

    assert [kind for kind, count in counted.items() if count == 0] == []


def test_the_same_seed_gives_the_same_records() -> None:
    assert list(records(2_000, seed=1)) == list(records(2_000, seed=1))
    assert list(records(2_000, seed=1)) != list(records(2_000, seed=2))


def test_more_orders_continue_fewer() -> None:
    few, many = list(records(1_000)), records(3_000)

    assert list(islice(many, len(few))) == few


def test_the_number_of_orders_is_exact_and_the_data_never_ends() -> None:
    for seed in range(3):
        assert sum(record.topic == MAIN_TOPIC for record in records(8_000, seed)) == 8_000


def test_stores_lie_in_every_partition_and_one_holds_two() -> None:
    partitions = Counter(partition_of(store.encode(), 4) for store in STORES)

    assert len(partitions) == 4
    assert max(partitions.values()) == 2


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        (Kind.WITHIN_GRACE, 0, 2 * HOUR),
        (Kind.BEYOND_GRACE, 2 * HOUR, 6 * HOUR),
        (Kind.DAYS_LATE, DAY, 31 * HOUR),
    ],
)
def test_late_orders_come_after_younger_ones_of_their_partition(kind: Kind, least: int, most: int) -> None:
    newest: Counter[int] = Counter()
    behind = []
    for record in records(8_000):
        if record.topic == MAIN_TOPIC and record.key is not None:
            partition = partition_of(record.key, 4)
            if record.kind is kind:
                behind.append(newest[partition] - record.timestamp_ms)
            newest[partition] = max(newest[partition], record.timestamp_ms)

    assert sum(least < ms < most for ms in behind) > 0.9 * len(behind) > 9


def test_late_counts_are_older_than_a_count_of_the_same_shelf_that_came_before() -> None:
    counted: dict[str, int] = {}
    late = []
    for record in records(2_000):
        if record.topic == MOVEMENTS_TOPIC and record.kind in (Kind.COUNT, Kind.LOSS, Kind.COUNT_LATE):
            shelf = json.dumps(json.loads(record.value or b"")["shelf"])
            if record.kind is Kind.COUNT_LATE:
                late.append(counted[shelf] - record.timestamp_ms)
            counted[shelf] = max(counted.get(shelf, 0), record.timestamp_ms)

    assert len(late) > 5
    assert min(late) > 0


def test_a_few_customers_order_most_of_the_time() -> None:
    keys = Counter(r.key for r in records(5_000) if r.kind is Kind.REGULAR)

    assert sum(count for _, count in keys.most_common(20)) > 0.4 * keys.total()
