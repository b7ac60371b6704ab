"""Days of a time zone on the streaming host: rows of a Delta table, final rows, replays of some days."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

from deltaworks import EmitStrategy, Pipeline, StreamsBuilder
from deltaworks.lakehouse.publish.comparison import Comparison
from deltaworks.replay.model import PHASES
from deltaworks.replay.plan import DAY_MS
from deltaworks.settings import Settings
from deltaworks.testing.topics import RawRecord
from tests.hosts.beside import stand_beside
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.support.calendar_days import Days

HOUR, HOUR_MS = timedelta(hours=1), 3_600_000
BERLIN = ZoneInfo("Europe/Berlin")
FIRST_MS = int(datetime(2026, 3, 26, tzinfo=UTC).timestamp()) * 1000
"""The clocks change on the fourth day."""


def topology(builder: StreamsBuilder) -> None:
    days = builder.stream("payments", key=str, value=str).group_by_key().windowed_by(Days(zone=BERLIN.key, grace=HOUR))
    days.count(store="days").to_delta("days")
    days.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="closed", retention=timedelta(days=4)).to_delta(
        "closed"
    )


def streamed(home: Path, seed: int) -> tuple[InProcessStream, Counter[tuple[str, str]]]:
    """Seven days in random batches; each record is at most half an hour late. Also the count per key and local day."""
    rng = random.Random(seed)
    kafka, expected = MemoryKafka({"payments": 2}), Counter[tuple[str, str]]()
    now_ms = FIRST_MS
    while now_ms < FIRST_MS + 7 * DAY_MS:
        now_ms += rng.randrange(HOUR_MS)
        key, time_ms = rng.choice("abcdef"), now_ms - rng.randrange(HOUR_MS // 2)
        kafka.write("payments", RawRecord(key.encode(), b"1", time_ms))
        expected[key, str(datetime.fromtimestamp(time_ms / 1000, BERLIN).date())] += 1
    pipeline = Pipeline(name="payments", topology=topology)
    stream = InProcessStream(pipeline, replace(Settings.from_environment({}), home=home), kafka=kafka)
    stream.run_to_the_end(rng, 40, elsewhere=None)
    return stream, expected


@pytest.mark.parametrize("seed", range(2))
def test_days_are_counted_kept_and_replayed_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    stream, expected = streamed(tmp_path, seed)
    beside = stand_beside(stream, monkeypatch)
    rows = beside.rows()

    found = {(row["key"], str(row["window_start"].astimezone(BERLIN).date())): row["value"] for row in rows["days"]}
    assert found == expected
    hours = {(row["window_end"] - row["window_start"]) // HOUR for row in rows["days"]}
    assert hours == {23, 24}
    final = [row for row in rows["days"] if row["is_final"]]
    assert [row | {"timestamp": None} for row in rows["closed"]] == [row | {"timestamp": None} for row in final]
    assert len(final) > 20

    for number in range(1, 5):
        run = beside.start(from_ms=FIRST_MS + number * DAY_MS, to_ms=FIRST_MS + (number + 1) * DAY_MS)
        assert run.plan.begin is not None and run.plan.begin.since_ms == FIRST_MS + number * DAY_MS - 25 * HOUR_MS
        beside.advance(run, "compare")
        comparison = msgspec.json.decode(run.paths.comparison.read_bytes(), type=Comparison)
        assert comparison.equal
        assert all(table.rows.production for table in comparison.tables)
        assert beside.advance(run) == list(PHASES)
    assert beside.rows() == rows
