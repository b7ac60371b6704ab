from __future__ import annotations

import json
from itertools import islice

from deltaworks.testing.sample_data import census
from jobs.sample_data.customers import MAIN_TOPIC, Kind, records


def test_a_thousand_orders_hold_every_kind() -> None:
    assert [kind for kind, count in census(records(1_000)).items() if count == 0] == []


def test_the_same_seed_gives_the_same_records() -> None:
    assert list(records(500, seed=1)) == list(records(500, seed=1))
    assert list(records(500, seed=1)) != list(records(500, seed=2))


def test_more_orders_continue_fewer() -> None:
    few, many = list(records(500)), records(1_500)

    assert list(islice(many, len(few))) == few


def test_the_number_of_records_of_orders_is_exact() -> None:
    assert sum(record.topic == MAIN_TOPIC for record in records(1_234)) == 1_234


def test_a_deletion_is_followed_by_a_null_of_its_key() -> None:
    sample = list(records(2_000))
    last: dict[tuple[str, bytes | None], bytes | None] = {}
    nulls = 0
    for record in sample:
        if record.value is None and record.kind is not Kind.NULL_FOR_NOTHING:
            before = last[record.topic, record.key] or b""
            assert b'"op":"d"' in before or b'"__deleted":"true"' in before
            nulls += 1
        last[record.topic, record.key] = record.value

    assert nulls > 20


def test_positions_in_the_log_grow() -> None:
    found = [
        json.loads(record.value)
        for record in records(1_000)
        if record.value and record.kind in (Kind.SNAPSHOT, Kind.CHANGED, Kind.LINE_CHANGED)
    ]
    positions = [(each.get("payload") or each)["source"]["lsn"] for each in found]

    assert positions == sorted(positions)
