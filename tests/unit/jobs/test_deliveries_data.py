from __future__ import annotations

from enum import Enum
from itertools import islice, pairwise

import pytest

from deltaworks.serdes.compatibility import incompatibilities
from deltaworks.serdes.schemas import InMemory, WriterSchema
from deltaworks.testing.sample_data import census
from jobs.sample_data.deliveries import SUBJECT, UNKNOWN_ID, Kind, records
from jobs.sample_data.kafka import HOUR, MINUTE
from tests.unit.jobs.recomputing import murmur2

GENERATIONS = (Kind.OLD, Kind.CURRENT, Kind.NEWER)


def schema_of(value: bytes | None) -> int:
    assert value is not None and value[0] == 0
    return int.from_bytes(value[1:5], "big")


def test_a_thousand_scans_hold_every_kind_of_trouble() -> None:
    counted = census(records(1_000))

    assert [kind for kind, count in counted.items() if count == 0] == []


def test_the_same_seed_and_registry_give_the_same_records() -> None:
    assert list(records(2_000, seed=1)) == list(records(2_000, seed=1))
    assert list(records(2_000, seed=1)) != list(records(2_000, seed=2))


def test_more_scans_continue_fewer() -> None:
    few, many = list(records(1_000)), records(3_000)

    assert list(islice(many, len(few))) == few


def test_the_number_of_scans_is_exact() -> None:
    assert len(list(records(1_234))) == 1_234


def test_ids_come_from_the_registry_that_is_handed_over() -> None:
    registry = InMemory()
    for number in range(9):
        registry.id_of("other-value", WriterSchema(f'{{"type": "fixed", "name": "F", "size": {number + 1}}}', "AVRO"))

    scans = list(records(500, schemas=registry))

    assert {each.id for each in registry.versions(SUBJECT)} == {10, 11, 12}
    assert {schema_of(r.value) for r in scans if r.kind in GENERATIONS} == {10, 11, 12}


def test_a_registry_takes_the_versions_one_after_the_other() -> None:
    """By its rule `BACKWARD`: each reads what the one before has written. A subject has one format."""
    registry = InMemory()
    subjects: dict[str, list[WriterSchema]] = {}
    list(records(600, schemas=registry))
    for subject in registry.subjects():
        subjects[subject] = [registry.by_id(each.id) for each in registry.versions(subject)]

    assert [incompatibilities(old, new) for old, new in pairwise(subjects[SUBJECT])] == [[], []]
    assert all(len({each.kind for each in versions}) == 1 for versions in subjects.values())


def test_producers_use_three_versions_at_the_same_time() -> None:
    registry = InMemory()
    ids = {kind: {schema_of(r.value) for r in records(600, schemas=registry) if r.kind is kind} for kind in GENERATIONS}

    assert all(len(each) == 1 for each in ids.values())
    assert set.union(*ids.values()) == {each.id for each in registry.versions(SUBJECT)}


def test_what_does_not_fit_is_registered_elsewhere_and_what_nobody_has_nowhere() -> None:
    registry = InMemory()
    by_kind = {r.kind: r for r in records(600, schemas=registry)}

    assert registry.subjects() == ["deliveries-scans-protobuf", "deliveries-scans-untidy", SUBJECT]
    assert registry.by_id(schema_of(by_kind[Kind.OTHER_FORMAT].value)).kind == "PROTOBUF"
    assert schema_of(by_kind[Kind.UNKNOWN_ID].value) == UNKNOWN_ID


@pytest.mark.parametrize("kind", [Kind.CUT_SHORT, Kind.UNKNOWN_ID, Kind.INCOMPATIBLE, Kind.JSON, Kind.NEW_STATUS])
def test_troubles_reach_every_partition(kind: Kind) -> None:
    assert {(murmur2(r.key or b"") & 0x7FFFFFFF) % 4 for r in records(10_000) if r.kind is kind} == {0, 1, 2, 3}


def test_scans_come_after_newer_ones_of_their_parcel() -> None:
    newest: dict[bytes, int] = {}
    behind: dict[Enum, list[int]] = {Kind.OUT_OF_ORDER: [], Kind.MUCH_LATER: []}
    for record in records(10_000):
        if record.kind in behind and record.key is not None:
            behind[record.kind].append(newest.get(record.key, 0) - record.timestamp_ms)
        if record.key is not None:
            newest[record.key] = max(newest.get(record.key, 0), record.timestamp_ms)

    assert len(behind[Kind.OUT_OF_ORDER]) > 20 and len(behind[Kind.MUCH_LATER]) > 20
    assert all(ms >= MINUTE // 2 for each in behind.values() for ms in each)
    assert max(behind[Kind.MUCH_LATER]) > HOUR
