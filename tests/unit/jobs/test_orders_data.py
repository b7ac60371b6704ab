from __future__ import annotations

import json
from collections import Counter
from enum import Enum
from itertools import islice

import pytest

from deltaworks.testing.sample_data import census
from jobs.sample_data.kafka import DAY, MINUTE
from jobs.sample_data.orders import MAIN_TOPIC, START_MS, USERS_TOPIC, Kind, records
from tests.unit.jobs.recomputing import murmur2


def test_a_thousand_orders_hold_every_kind_of_trouble() -> None:
    counted = census(records(1_000))

    assert [kind for kind, count in counted.items() if count == 0] == []


def test_the_same_seed_gives_the_same_records() -> None:
    assert list(records(2_000, seed=1)) == list(records(2_000, seed=1))
    assert list(records(2_000, seed=1)) != list(records(2_000, seed=2))


def test_more_orders_continue_fewer() -> None:
    few, many = list(records(1_000)), records(3_000)

    assert list(islice(many, len(few))) == few


def test_the_number_of_orders_is_exact() -> None:
    assert sum(record.topic == MAIN_TOPIC for record in records(1_234)) == 1_234


def test_partitions_are_skewed() -> None:
    orders = [r for r in records(20_000) if r.topic == MAIN_TOPIC and r.key is not None]

    shares = Counter((murmur2(r.key or b"") & 0x7FFFFFFF) % 4 for r in orders)

    assert len(shares) == 4
    assert max(shares.values()) > 1.5 * min(shares.values())


@pytest.mark.parametrize("kind", [Kind.MALFORMED_BYTES, Kind.MALFORMED_JSON, Kind.WRONG_TYPE, Kind.MISSING_FIELD])
def test_malformed_orders_reach_every_partition(kind: Kind) -> None:
    partitions = {(murmur2(r.key or b"") & 0x7FFFFFFF) % 4 for r in records(20_000) if r.kind is kind}

    assert partitions == {0, 1, 2, 3}


def test_late_orders_come_after_younger_ones_of_their_partition() -> None:
    newest: Counter[int] = Counter()
    behind: dict[Enum, list[int]] = {}
    for record in records(20_000):
        if record.topic == MAIN_TOPIC and record.key is not None:
            partition = (murmur2(record.key) & 0x7FFFFFFF) % 4
            behind.setdefault(record.kind, []).append(newest[partition] - record.timestamp_ms)
            newest[partition] = max(newest[partition], record.timestamp_ms)

    within, beyond = behind[Kind.WITHIN_GRACE], behind[Kind.BEYOND_GRACE]
    assert sum(0 < ms < 5 * MINUTE for ms in within) > 0.9 * len(within)
    assert all(ms > 65 * MINUTE for ms in beyond)


def test_sessions_cross_midnight() -> None:
    times = [r.timestamp_ms for r in records(1_000) if r.kind is Kind.SESSION_MIDNIGHT]

    assert times[0] // DAY < times[-1] // DAY
    assert times[-1] - times[0] < 30 * MINUTE


def test_users_change_and_go_while_orders_flow() -> None:
    sample = [r for r in records(5_000) if r.timestamp_ms > START_MS]
    kinds = {r.kind for r in sample if r.topic == USERS_TOPIC}

    assert {Kind.USER_CREATED, Kind.USER_CHANGED, Kind.USER_DELETED, Kind.USER_OUT_OF_ORDER} <= kinds
    first, last = (next(i for i, r in s if r.topic == MAIN_TOPIC) for s in (enumerate(sample), enumerate(sample[::-1])))
    assert any(r.topic == USERS_TOPIC for r in sample[first : len(sample) - last])


def test_regular_orders_carry_their_time_as_timestamp() -> None:
    record = next(r for r in records(1_000) if r.kind is Kind.REGULAR and r.topic == MAIN_TOPIC)

    order = json.loads(record.value or b"")

    assert record.key == order["user_id"].encode()
    assert order["event_time"].startswith("2026-03-01T22:3")
