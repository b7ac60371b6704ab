"""The tables of a stream that runs agree whenever somebody reads them, also after its driver was killed."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pytest

from deltaworks import tables
from deltaworks.errors import ConfigurationError
from deltaworks.kafka import admin
from deltaworks.lakehouse import catalog
from deltaworks.lakehouse.sandbox import Limits
from deltaworks.settings import Settings
from tests.spark.pipelines import twice
from tests.spark.test_streaming import run, send
from tests.support.live_stack import LiveStack

SQL = "SELECT (SELECT count(*) FROM told), (SELECT sum(value) FROM told_counts)"
PORTIONS, RECORDS = 60, 200


@pytest.fixture
def settings(kafka: LiveStack, tmp_path: Path) -> Settings:
    return replace(kafka.settings, home=tmp_path)


def seen(settings: Settings) -> tuple[int, int, int]:
    """The batch that the tables show, and how many records each of them has counted."""
    try:
        found = tables.open("twice", settings=settings)
    except ConfigurationError:
        return -1, 0, 0  # no batch yet
    told, counts = (found[name].rows.to_table() for name in ("told", "told_counts"))
    return found.batch_id, told.num_rows, pc.sum(counts["value"]).as_py() or 0


def seen_by_sql(settings: Settings) -> tuple[int, ...]:
    with catalog.sandbox(settings.tables, Limits.of(settings), SQL) as sandbox:
        return tuple(int(number or 0) for number in sandbox.answer(SQL, None).rows[0])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_readers_of_a_running_stream_see_one_batch_in_all_tables(kafka: LiveStack, settings: Settings) -> None:
    admin.create_topics(kafka.bootstrap, admin.topic_specs(twice.topics))
    words = [(str(number), "abcdefg"[number % 7], 1_000_000 + 10 * number) for number in range(RECORDS)]
    batches: set[int] = set()
    sent = told = 0
    for part in (1, 2):
        with run(kafka, settings, "twice") as process:
            while told < PORTIONS * RECORDS * part // 2:
                assert process.poll() is None
                if sent - told < 3 * RECORDS:  # some are always on their way
                    send(kafka.bootstrap, "told", words)
                    sent += RECORDS
                batch, told, counted = seen(settings)
                assert told == counted, batch
                batches.add(batch)
                if batch >= 0:
                    also_told, also_counted = seen_by_sql(settings)
                    assert also_told == also_counted
            os.kill(process.pid, signal.SIGKILL)
            process.wait()

    assert len(batches) > 10, batches
