"""A checkpoint that was taken back, to a copy or because its last batches are gone: the intents say what was done."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from deltaworks import Pipeline, StreamsBuilder
from deltaworks.kernel.stores.key_value import KeyValueStore
from deltaworks.lakehouse.catalog import duckdb_connection
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka


def topology(builder: StreamsBuilder) -> None:
    records = builder.stream("in", key=str, value=str)
    records.to("out")
    records.to_delta("rows")
    records.group_by_key().count(store="counts").to_delta("counts")


PIPELINE = Pipeline(name="taken-back", topology=topology)


def write(kafka: MemoryKafka, *numbers: int) -> None:
    for number in numbers:
        kafka.write("in", RawRecord(f"k{number}".encode(), b"v", 1_000 + number))


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_batches_after_a_checkpoint_that_was_taken_back_are_the_same_again(tmp_path: Path, batches: int) -> None:
    settings = replace(Settings.from_environment({}), home=tmp_path)
    kafka = MemoryKafka({"in": 2, "out": 1})
    stream = InProcessStream(PIPELINE, settings, kafka=kafka)
    write(kafka, *range(100))
    stream.run(stream.end())
    before = copy.deepcopy(stream.states), stream.offsets, stream.batch_id
    for batch in range(batches):
        write(kafka, *range(100 + 50 * batch, 150 + 50 * batch))
        stream.run(stream.end())

    stream.states, stream.offsets, stream.batch_id = before
    stream.restart()
    write(kafka, *range(500, 600))
    stream.run(stream.end())
    write(kafka, *range(600, 700))
    stream.run(stream.end())

    stream.committer.refresh_snapshots(force=True)
    wanted = {f"k{number}" for number in (*range(100 + 50 * batches), *range(500, 700))}
    tables = duckdb_connection(settings.tables)
    assert Counter(str(record.key, "utf-8") for _, _, record in kafka.read("out") if record.key) == Counter(wanted)
    assert Counter(key for (key,) in tables.execute("SELECT key FROM rows").fetchall()) == Counter(wanted)
    assert dict(tables.execute("SELECT key, value FROM counts").fetchall()) == dict.fromkeys(wanted, 1)
    stores = [task.stores["counts"] for task in stream.kernels().values()]
    assert {key for store in stores for key in wanted if cast(KeyValueStore, store).get(key) == 1} == wanted
    stream.close()
