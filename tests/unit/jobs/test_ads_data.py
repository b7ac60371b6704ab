from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import pytest

from deltaworks.kernel.partitioning import partition_of
from deltaworks.testing.sample_data import SampleRecord, census
from jobs.sample_data.ads import CAMPAIGNS_TOPIC, CLICKS_TOPIC, MAIN_TOPIC, Kind, records
from jobs.sample_data.kafka import DAY, HOUR, MINUTE


def test_a_thousand_impressions_hold_every_kind_of_trouble() -> None:
    for seed in range(3):
        counted = census(records(1_000, seed))

        assert [kind for kind in Kind if counted.get(kind, 0) == 0] == []


def test_the_same_seed_gives_the_same_records() -> None:
    assert list(records(2_000, seed=1)) == list(records(2_000, seed=1))
    assert list(records(2_000, seed=1)) != list(records(2_000, seed=2))


def test_more_impressions_continue_fewer() -> None:
    few, many = list(records(1_000)), records(3_000)

    assert list(islice(many, len(few))) == few


def test_the_number_of_impressions_is_exact_and_the_data_never_ends() -> None:
    for seed in range(3):
        assert sum(record.topic == MAIN_TOPIC for record in records(8_000, seed)) == 8_000


def test_records_of_all_topics_reach_every_partition_and_the_kinds_say_which_topic() -> None:
    topics: dict[str, set[int]] = {}
    for record in records(3_000):
        found = topics.setdefault(record.topic, set())
        found.add(partition_of(record.key, 4) if record.key is not None else record.partition or 0)
        assert record.kind.value.startswith(record.topic.removeprefix("ads-"))

    assert topics == {topic: {0, 1, 2, 3} for topic in (MAIN_TOPIC, CLICKS_TOPIC, CAMPAIGNS_TOPIC)}


def test_a_thousand_impressions_span_more_than_a_day() -> None:
    times = [record.timestamp_ms for record in records(1_000)]

    assert max(times) - min(times) > DAY


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        (Kind.WITHIN_GRACE, 0, HOUR),
        (Kind.BEYOND_GRACE, HOUR, 6 * HOUR),
        (Kind.CLICK_WITHIN_GRACE, 0, HOUR),
        (Kind.CLICK_LATE, HOUR, 5 * HOUR),
        (Kind.CLICK_FORGOTTEN, DAY + 30 * MINUTE, 29 * HOUR),
    ],
)
def test_late_records_come_after_younger_impressions(kind: Kind, least: int, most: int) -> None:
    newest, behind = 0, []
    for record in records(8_000):
        if record.kind is kind:
            behind.append(newest - record.timestamp_ms)
        if record.topic == MAIN_TOPIC:
            newest = max(newest, record.timestamp_ms)

    assert sum(least < ms < most for ms in behind) > 0.9 * len(behind) > 9


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        (Kind.CLICK_AT_THE_END, 30 * MINUTE),
        (Kind.CLICK_AFTER_THE_END, 30 * MINUTE + 1),
        (Kind.CLICK_AT_ONCE, 0),
        (Kind.CLICK_TOO_EARLY, -1),
    ],
)
def test_clicks_at_the_bounds_are_there_to_the_millisecond(kind: Kind, after: int) -> None:
    shown = {record.key: record for record in all_of(MAIN_TOPIC)}
    delays = [record.timestamp_ms - shown[record.key].timestamp_ms for record in all_of(CLICKS_TOPIC, kind)]

    assert len(delays) > 9
    assert set(delays) == {after}


@pytest.mark.parametrize("kind", [Kind.CLICK_FIRST, Kind.CLICK_LONG_BEFORE])
def test_clicks_are_delivered_before_their_impression(kind: Kind) -> None:
    sample = list(records(8_000))
    place = {record.key: nth for nth, record in enumerate(sample) if record.topic == MAIN_TOPIC}
    first = [nth < place.get(record.key, len(sample)) for nth, record in enumerate(sample) if record.kind is kind]

    assert len(first) > 9
    assert all(first)


def test_clicks_without_an_impression_have_none() -> None:
    shown = {record.key for record in all_of(MAIN_TOPIC)}

    assert [record for record in all_of(CLICKS_TOPIC, Kind.CLICK_ALONE) if record.key in shown] == []


def test_the_bot_clicks_six_times_a_minute_or_more() -> None:
    shown = {record.key: json.loads(record.value or b"")["user_id"] for record in all_of(MAIN_TOPIC, Kind.OF_BOT)}
    clicks = sorted(r.timestamp_ms for r in all_of(CLICKS_TOPIC, Kind.CLICK_OF_BOT) if shown[r.key] == "bot")

    assert sum(fifth - first <= MINUTE for first, fifth in zip(clicks, clicks[4:], strict=False)) > len(clicks) / 4 > 9


def test_campaigns_change_end_and_begin_again() -> None:
    kinds = Counter((record.key, record.kind) for record in all_of(CAMPAIGNS_TOPIC))

    assert kinds[b"spring-00", Kind.CAMPAIGN_ENDED] > 3 < kinds[b"spring-00", Kind.CAMPAIGN_BACK]
    assert len({key for key, kind in kinds if kind is Kind.CAMPAIGN_CHANGED}) > 6


def test_a_few_campaigns_have_most_impressions() -> None:
    campaigns = Counter(json.loads(r.value or b"")["campaign_id"] for r in all_of(MAIN_TOPIC, Kind.REGULAR))

    assert sum(count for _, count in campaigns.most_common(4)) > 0.5 * campaigns.total()


def all_of(topic: str, kind: Kind | None = None) -> list[SampleRecord]:
    return [r for r in records(8_000) if r.topic == topic and kind in (None, r.kind)]
