from __future__ import annotations

import json
from collections import Counter
from itertools import islice

from deltaworks.testing.sample_data import census
from jobs.sample_data.enrichment import CUSTOMERS_TOPIC, MAIN_TOPIC, Kind, records
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


def test_an_order_and_its_customer_mostly_lie_in_partitions_of_different_numbers() -> None:
    orders = [r for r in records(2_000) if r.topic == MAIN_TOPIC and r.kind is Kind.REGULAR]
    customers = [json.loads(order.value or b"")["customer_id"].encode() for order in orders]

    together = sum(murmur2(o.key or b"") % 4 == murmur2(c) % 4 for o, c in zip(orders, customers, strict=True))

    assert together < 0.4 * len(orders)


def test_a_few_customers_order_most_of_the_time() -> None:
    named = Counter(json.loads(r.value or b"")["customer_id"] for r in records(5_000) if r.kind is Kind.REGULAR)

    assert sum(count for _, count in named.most_common(20)) > 0.4 * named.total()


def test_newcomers_order_before_they_are_known() -> None:
    sample = list(records(2_000))
    seen = {record.key: at for at, record in reversed(list(enumerate(sample))) if record.topic == CUSTOMERS_TOPIC}

    early = [
        (at, json.loads(r.value or b"")["customer_id"]) for at, r in enumerate(sample) if r.kind is Kind.BEFORE_CUSTOMER
    ]

    assert sum(at < seen[customer.encode()] for at, customer in early if customer.encode() in seen) > 5


def test_the_data_never_ends() -> None:
    assert all(sum(r.topic == MAIN_TOPIC for r in records(10_000, seed)) == 10_000 for seed in range(4))
