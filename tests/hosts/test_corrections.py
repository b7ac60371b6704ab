"""A published replay and its rollback, as a consumer of the topic of corrections is told."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaworks import Corrections
from deltaworks.control import corrections
from deltaworks.errors import KafkaWriteError
from deltaworks.replay import runs
from deltaworks.replay.model import PHASES
from tests.hosts.beside import stand_beside
from tests.hosts.memory_kafka import MemoryKafka, MemorySink
from tests.hosts.test_reprocess import day, streamed, topology

TOPIC = "payments-corrections"


def shown(row: dict[str, Any]) -> str:
    return json.dumps({name: str(cell) for name, cell in row.items() if name in ("key", "value")}, sort_keys=True)


def told(kafka: MemoryKafka, action: str, side: str) -> Counter[str]:
    records = [json.loads(record.value or b"") for _, _, record in kafka.read(TOPIC)]
    rows = [each for each in records if each["kind"] == "row" and each["action"] == action]
    return Counter(shown(row[side]) for row in rows if row[side] is not None)


def test_consumers_are_told_of_a_publication_and_of_its_rollback_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = stand_beside(streamed(tmp_path), monkeypatch)
    kafka = MemoryKafka({TOPIC: 2})
    wanted = Corrections(TOPIC, tables=("amounts", "sums"))
    beside.pipeline = replace(beside.pipeline, topology=topology(odd=778), corrections=wanted)
    before = beside.rows()
    run = beside.start(from_ms=day(0), to_ms=day(5), only_different=True)

    def silent(*_: object) -> None:
        raise KafkaWriteError("no answer")

    monkeypatch.setattr(corrections, "prepare", lambda *_: None)
    monkeypatch.setattr(corrections, "_sink", silent)
    with pytest.raises(KafkaWriteError, match="The tables show the publish"):
        beside.advance(run)
    assert beside.rows() != before, "the tables do not wait for Kafka"

    monkeypatch.setattr(corrections, "_sink", lambda _, name, kept: MemorySink(kafka, (f"{name}/{kept}", 0, 0)))
    again = runs.resume(beside.settings, run.plan.run_id)
    assert beside.advance(again) == list(PHASES)
    published = beside.rows()
    gone, new = told(kafka, "publish", "before"), told(kafka, "publish", "after")
    rows_of = {
        name: Counter(shown(row) for table in wanted.tables for row in tables[table])
        for name, tables in (("before", before), ("published", published))
    }
    assert gone - new == rows_of["before"] - rows_of["published"]
    assert new - gone == rows_of["published"] - rows_of["before"]
    assert gone.total() == new.total() > 20

    done, sent = runs.rollback(beside.settings, run.plan.run_id, requested_by="a test")
    assert beside.rows() == before
    assert corrections.told(sent) == f", {gone.total():,} corrections of the rollback sent to {TOPIC}"
    assert (told(kafka, "rollback", "before"), told(kafka, "rollback", "after")) == (new, gone)
    assert runs.rollback(beside.settings, run.plan.run_id, requested_by="a test") == (done, [])
