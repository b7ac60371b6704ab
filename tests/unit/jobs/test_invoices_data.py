from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import islice

import pytest

from deltaworks.testing.sample_data import SampleRecord, census
from jobs.sample_data.invoices import FORGOTTEN, Kind, records
from tests.unit.jobs.recomputing import murmur2


def partition(record: SampleRecord) -> int:
    return (murmur2(record.key or b"") & 0x7FFFFFFF) % 4


def invoice_number(record: SampleRecord) -> str:
    number: str = json.loads(record.value or b"")["InvoiceNumber"]
    return number


@pytest.mark.parametrize("seed", range(5))
def test_a_thousand_invoices_hold_every_kind_of_trouble(seed: int) -> None:
    counted = census(records(1_000, seed))

    assert [kind for kind in Kind if counted[kind] < 3] == []


def test_the_same_seed_gives_the_same_records() -> None:
    assert list(records(2_000, seed=1)) == list(records(2_000, seed=1))
    assert list(records(2_000, seed=1)) != list(records(2_000, seed=2))


def test_more_invoices_continue_fewer() -> None:
    few, many = list(records(1_000)), records(3_000)

    assert list(islice(many, len(few))) == few


def test_the_number_of_invoices_is_exact() -> None:
    assert sum(1 for _ in records(1_234)) == 1_234


def test_stores_and_customers_are_skewed() -> None:
    sample = [record for record in records(20_000) if record.kind is Kind.REGULAR]
    cards = Counter(json.loads(record.value or b"")["CustomerCardNo"] for record in sample)
    tasks = Counter(map(partition, sample))

    assert cards.most_common(1)[0][1] > 0.1 * len(sample)
    assert len(tasks) == 4
    assert max(tasks.values()) > 1.5 * min(tasks.values())


def test_a_customer_buys_in_stores_of_several_partitions() -> None:
    partitions: dict[str, set[int]] = defaultdict(set)
    for record in records(5_000):
        if record.kind is Kind.REGULAR:
            partitions[json.loads(record.value or b"")["CustomerCardNo"]].add(partition(record))

    assert sum(len(of_customer) == 4 for of_customer in partitions.values()) > 20


@pytest.mark.parametrize("kind", [Kind.MALFORMED_BYTES, Kind.WRONG_TYPE, Kind.WRONG_TOTAL, Kind.PRIME_WITHOUT_CARD])
def test_malformed_invoices_reach_every_partition(kind: Kind) -> None:
    assert {partition(record) for record in records(20_000) if record.kind is kind} == {0, 1, 2, 3}


def test_a_late_duplicate_comes_after_more_invoices_of_its_customer_than_an_account_knows() -> None:
    sample = list(records(5_000))
    best = [r for r in sample if r.kind in (Kind.REGULAR, Kind.DUPLICATE_LATE) and b'"20000000"' in (r.value or b"")]

    again = [at for at, record in enumerate(best) if record.kind is Kind.DUPLICATE_LATE]

    assert len(again) > 10
    for at in again:
        first = next(i for i, record in enumerate(best) if record.value == best[at].value)
        assert len({invoice_number(record) for record in best[first + 1 : at]}) >= FORGOTTEN - 1


def test_out_of_order_invoices_come_after_younger_ones_of_their_partition() -> None:
    newest: Counter[int] = Counter()
    behind = []
    for record in records(5_000):
        if record.kind is Kind.OUT_OF_ORDER:
            behind.append(newest[partition(record)] - record.timestamp_ms)
        newest[partition(record)] = max(newest[partition(record)], record.timestamp_ms)

    assert sum(ms > 0 for ms in behind) > 0.9 * len(behind)
