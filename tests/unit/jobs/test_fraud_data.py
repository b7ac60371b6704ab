from __future__ import annotations

import json
from collections import Counter, defaultdict
from decimal import Decimal
from itertools import islice

import pytest

from deltaworks.testing.sample_data import SampleRecord, census
from jobs.sample_data.fraud import Kind, records
from jobs.sample_data.kafka import HOUR, MINUTE
from tests.unit.jobs.recomputing import murmur2


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_payments_hold_every_kind_of_trouble(seed: int) -> None:
    counted = census(records(1_000, seed))

    assert [kind for kind, count in counted.items() if count == 0] == []


def test_the_same_seed_gives_the_same_records() -> None:
    assert list(records(2_000, seed=1)) == list(records(2_000, seed=1))
    assert list(records(2_000, seed=1)) != list(records(2_000, seed=2))


def test_more_payments_continue_fewer() -> None:
    few, many = list(records(1_000)), records(3_000)

    assert list(islice(many, len(few))) == few


def test_the_number_of_payments_is_exact() -> None:
    assert sum(1 for _ in records(1_234)) == 1_234


def test_partitions_are_skewed_and_all_get_malformed_payments() -> None:
    shares: Counter[int] = Counter()
    malformed = set()
    for record in records(20_000):
        if record.key is not None:
            partition = (murmur2(record.key) & 0x7FFFFFFF) % 4
            shares[partition] += 1
            if record.kind is Kind.MALFORMED_JSON:
                malformed.add(partition)

    assert max(shares.values()) > 1.3 * min(shares.values())
    assert malformed == {0, 1, 2, 3}


def amount(record: SampleRecord) -> Decimal:
    return Decimal(json.loads(record.value or b"")["amount"])


def test_three_times_the_average_is_exact() -> None:
    paid: dict[bytes | None, list[Decimal]] = defaultdict(list)
    for record in records(2_000):
        match record.kind:
            case Kind.THREE_TIMES:
                assert amount(record) * len(paid[record.key]) == 3 * sum(paid[record.key])
            case Kind.BELOW_THREE_TIMES:
                assert amount(record) * len(paid[record.key]) < 3 * sum(paid[record.key])
            case Kind.REGULAR:
                paid[record.key].append(amount(record))


def test_bursts_are_five_payments_within_five_minutes_and_no_fewer() -> None:
    paid: dict[bytes | None, list[int]] = defaultdict(list)
    for record in records(2_000):
        times = paid[record.key]
        times.append(record.timestamp_ms)
        if record.kind is Kind.BURST:
            assert times[-1] - times[-5] < 5 * MINUTE
        if record.kind is Kind.BURST_TOO_SLOW:
            assert times[-1] - times[-5] == 5 * MINUTE


def test_who_comes_back_was_away_for_more_than_a_day() -> None:
    last: dict[bytes | None, int] = {}
    away = []
    for record in records(5_000):
        if record.kind is Kind.COMES_BACK:
            away.append(record.timestamp_ms - last[record.key])
        last[record.key] = record.timestamp_ms

    assert len(away) > 10
    assert min(away) > 24 * HOUR


def test_late_payments_come_hours_after_younger_ones() -> None:
    newest, behind = 0, defaultdict(list)
    for record in records(5_000):
        if record.kind is not Kind.MALFORMED_KEY:
            behind[record.kind].append(newest - record.timestamp_ms)
            newest = max(newest, record.timestamp_ms)

    assert min(behind[Kind.LATE]) > 2 * HOUR
    assert 0 < max(behind[Kind.OUT_OF_ORDER]) < HOUR
