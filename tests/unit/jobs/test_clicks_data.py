from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise

import pytest

from deltaworks.testing.sample_data import census
from jobs.sample_data.clicks import Kind, records
from jobs.sample_data.kafka import DAY, HOUR, MINUTE
from tests.unit.jobs.recomputing import murmur2


def partition_of(key: bytes | None) -> int:
    return (murmur2(key or b"") & 0x7FFFFFFF) % 4


def test_a_thousand_clicks_hold_every_kind_of_trouble() -> None:
    counted = census(records(1_000))

    assert [kind for kind, count in counted.items() if count == 0] == []


def test_the_same_seed_gives_the_same_records() -> None:
    assert list(records(2_000, seed=1)) == list(records(2_000, seed=1))
    assert list(records(2_000, seed=1)) != list(records(2_000, seed=2))


def test_more_clicks_continue_fewer() -> None:
    few, many = list(records(1_000)), records(3_000)

    assert list(islice(many, len(few))) == few


def test_the_number_of_clicks_is_exact() -> None:
    assert len(list(records(1_234))) == 1_234


def test_the_bot_never_pauses_and_within_a_thousand_clicks_goes_on_for_more_than_a_day() -> None:
    times = [r.timestamp_ms for r in records(1_000) if r.kind in (Kind.BOT, Kind.BETWEEN_DAYS)]

    assert max(times) - min(times) > DAY + HOUR
    assert max(after - before for before, after in pairwise(sorted(times))) < 30 * MINUTE


def test_pages_get_very_different_numbers_of_clicks() -> None:
    clicks = sorted(Counter(r.key for r in records(5_000)).values())

    assert clicks[-1] > 20 * clicks[len(clicks) // 2]


@pytest.mark.parametrize("kind", [Kind.MALFORMED_BYTES, Kind.MALFORMED_JSON, Kind.WRONG_TYPE, Kind.MISSING_FIELD])
def test_malformed_clicks_reach_every_partition(kind: Kind) -> None:
    assert {partition_of(r.key) for r in records(20_000) if r.kind is kind} == {0, 1, 2, 3}


def test_late_clicks_come_hours_after_younger_ones() -> None:
    newest, behind = 0, []
    for record in records(5_000):
        newest = max(newest, record.timestamp_ms)
        if record.kind is Kind.LATE:
            behind.append(newest - record.timestamp_ms)

    assert len(behind) > 20
    assert all(ms > 100 * MINUTE for ms in behind)


def test_visits_cross_midnight() -> None:
    times = [r.timestamp_ms for r in records(1_000) if r.kind is Kind.MIDNIGHT]

    assert times[0] // DAY < times[2] // DAY
    assert times[2] - times[0] < 30 * MINUTE
