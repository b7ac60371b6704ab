"""The models of the soak say what the test driver does: a soak that is red shows a wrong stream, not a wrong model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.testing import TopologyTestDriver
from tests.system.soak.jobs import soak_ledger, soak_matches, soak_recreated
from tests.system.soak.models import Expected, Ledger, Matches, Message, Model, Notes, Row, compared
from tests.system.soak.sample import Sample

STEPS = 2_000
TYPES: dict[str, Any] = {
    "soak-entries": soak_ledger.Entry,
    "soak-rates": soak_ledger.Rate,
    "soak-asks": soak_matches.Offer,
    "soak-bids": soak_matches.Offer,
    "soak-parcels": soak_matches.Parcel,
    "soak-depots": soak_matches.Depot,
    "soak-notes": soak_recreated.Note,
}


def processed(pipeline: Pipeline, model: Model, seed: int) -> TopologyTestDriver:
    """The same records for the driver and the model; one partition."""
    driver, sample, offsets = TopologyTestDriver(pipeline), Sample(seed), Counter[str]()
    topics = {*pipeline.plan().source_topics, *pipeline.plan().global_topics}
    inputs = {topic: driver.create_input_topic(topic) for topic in topics}
    for _ in range(STEPS):
        for record in sample.step():
            if record.topic not in topics:
                continue
            if record.topic in model.sources:
                at = offsets[record.topic]
                offsets[record.topic] += 1
                message = Message(record.topic, 0, at, record.key, record.value, record.timestamp_ms)
                model.take(message)
            value = record.value
            if value is not None and not value.startswith(b"malformed"):
                value = msgspec.json.decode(value, type=TYPES[record.topic])
            if isinstance(value, bytes):
                continue
            inputs[record.topic].pipe_input(record.key.decode(), value, timestamp_ms=record.timestamp_ms)
    driver.advance_wall_clock_time(timedelta(seconds=10))
    return driver


def found(driver: TopologyTestDriver, expected: Expected) -> Counter[Row] | None:
    """The rows of a result in the form of the models; None where the test driver has other columns."""
    name = expected.name
    if expected.kind == "topic":
        return None if name == "soak-ledger-letters" else Counter(_topic(driver, name))
    match name:
        case "soak_totals" | "soak_groups" | "soak_note_counts":
            return Counter(driver.table(name).rows.items())
        case "soak_visits":
            return Counter((w.key, w.start_ms, w.end_ms, count) for w, count in driver.table(name).rows.items())
        case "soak_hours":
            rows = driver.table(name)
            return Counter((w.key, w.start_ms, count, rows.is_final(w)) for w, count in rows.rows.items())
        case "soak_matches":
            return Counter((row.value.ask, row.value.bid) for row in driver.table(name).rows)
        case "soak_depots":
            return Counter((key, row.seq) for key, row in driver.table(name).rows.items())
        case "soak_placed":
            rows = driver.table(name).rows
            return Counter((key, row.seq, row.depot, row.depot_seq) for key, row in rows.items())
        case "soak_told":
            return Counter((row.key, row.value) for row in driver.table(name).rows)
        case "soak_notes":
            return Counter((row.key, row.value.seq) for row in driver.table(name).rows)
        case _:
            return None


def _topic(driver: TopologyTestDriver, name: str) -> Iterator[Row]:
    for key, value in driver.create_output_topic(name).read_key_values_to_list():
        match value:
            case soak_matches.Match():
                yield value.ask, value.bid
            case soak_ledger.Entry() | soak_ledger.Priced():
                yield key, value.seq
            case _:
                yield key, value


@pytest.mark.parametrize(
    ("pipeline", "model"),
    [(soak_ledger.pipeline, Ledger()), (soak_matches.pipeline, Matches()), (soak_recreated.pipeline, Notes())],
    ids=lambda value: value.name if isinstance(value, Pipeline) else "",
)
def test_a_model_says_what_the_test_driver_does(pipeline: Pipeline, model: Model) -> None:
    driver = processed(pipeline, model, seed=3)
    results = [compared(each, rows) for each in model.expected() if (rows := found(driver, each)) is not None]
    assert [result for result in results if not result.equal] == []
    assert len(results) >= 2
    assert all(result.expected for result in results)


def test_rows_that_are_missing_or_there_again_are_counted() -> None:
    expected = Expected("table", "t", Counter({("a",): 2, ("b",): 1}), frozenset({("c",), ("d",)}))
    result = compared(expected, Counter({("a",): 1, ("b",): 3, ("c",): 1, ("d",): 2, ("e",): 1}))
    assert (result.expected, result.lost, result.twice) == (3, 1, 5)


def test_a_record_that_is_no_json_is_a_dead_letter() -> None:
    model = Ledger()
    model.take(Message("soak-entries", 1, 7, b"nobody", b"malformed 3", 0))
    letters = next(each for each in model.expected() if each.name == "soak_ledger_letters")
    assert letters.rows == Counter({("soak-entries", 1, 7): 1})
    assert not next(model.expected()).rows
