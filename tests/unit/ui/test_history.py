"""What is kept of heartbeats, and how much of it a chart gets."""

from __future__ import annotations

import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from deltaworks.control import batches
from deltaworks.control.incident_book import IncidentBook, Sample
from deltaworks.settings import Settings
from deltaworks.ui.history import EVERY_S, HOURS, Beats, Watch, history, recorded
from tests.support.homes import Stream, settings_of


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path / "home", tmp_path)


def test_a_heartbeat_is_kept_once_and_not_of_a_driver_that_has_ended(settings: Settings) -> None:
    stream, watch = Stream(settings, "counts"), Watch(settings)
    beat = stream.beats()

    for _ in range(3):
        watch.look()
    watch.take("counts", msgspec.structs.replace(beat, state="stopped", at=beat.at + 1))

    assert list(watch.kept("counts").at) == [beat.at]
    assert watch.kept("other") == Beats()


def test_what_cannot_be_read_holds_up_nobody(settings: Settings) -> None:
    Stream(settings, "broken").paths.heartbeat.write_text("{")
    Stream(settings, "counts").beats()
    watch = Watch(settings)

    watch.look()

    assert len(watch.kept("counts").at) == 1


def test_rates_are_of_the_last_minute_and_gone_with_the_stream(settings: Settings) -> None:
    stream, watch, now_s = Stream(settings, "counts", rate=50.0), Watch(settings), time.time()
    for ago in (600, 50, 20, 5):
        watch.take("counts", stream.beat_at(now_s - ago))
    assert watch.topic_rates("counts") == {"lines": pytest.approx(50, rel=0.05)}

    late = Watch(settings)
    for ago in (200, 150):
        late.take("counts", stream.beat_at(now_s - ago))
    assert late.topic_rates("counts") == {} == late.topic_rates("nobody")


def test_a_chart_gets_few_points_and_keeps_the_peak(settings: Settings) -> None:
    stream, watch, now_s = Stream(settings, "counts", lag_s=1.0), Watch(settings), time.time()
    for step in range(4_000):
        watch.take("counts", stream.beat_at(now_s - 20_000 + step * 5, factor=77.0 if step == 1_234 else 1.0))

    found = history(recorded(settings, "counts", now_s=now_s), watch.kept("counts"), now_s=now_s)

    assert len(found.lag_seconds.at) <= 360 and max(v or 0 for v in found.lag_seconds.values) == 77.0
    assert found.records_per_second.at == []


def test_what_is_not_known_is_a_gap(settings: Settings) -> None:
    stream, watch, now_s = Stream(settings, "counts"), Watch(settings), time.time()
    watch.take("counts", msgspec.structs.replace(stream.beat_at(now_s - 20), lag_seconds=None, batch_id=None))
    watch.take("counts", stream.beat_at(now_s - 10))

    found = history(recorded(settings, "counts", now_s=now_s), watch.kept("counts"), now_s=now_s)

    assert found.lag_seconds.values == [None, 0.4] and found.batch_seconds.values == [None, 0.31]
    assert msgspec.json.decode(msgspec.json.encode(found))["lag_seconds"]["values"] == [None, 0.4]


def test_six_hours_of_a_stream_need_little_memory(settings: Settings) -> None:
    stream, watch, now_s = Stream(settings, "counts"), Watch(settings), time.time()
    count = int(HOURS * 3_600 / EVERY_S)

    tracemalloc.start()
    for step in range(count + 600, 0, -1):
        watch.take("counts", stream.beat_at(now_s - EVERY_S * step))
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert size_bytes < 250_000, "four doubles for each heartbeat"
    kept = watch.kept("counts")
    assert count <= len(kept.at) < count + 300 and kept.at[-1] == now_s - EVERY_S


def test_state_from_before_the_server_is_that_of_the_registry(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Book:
        def samples(self, name: str) -> list[Sample]:
            moments = [now_s - 90_000, now_s - 3_600, now_s - 1_200, now_s + 5]
            return [Sample(datetime.fromtimestamp(at, UTC), 10 * at_number, 0) for at_number, at in enumerate(moments)]

    now_s = time.time()
    monkeypatch.setattr(IncidentBook, "of", lambda settings: Book())
    stream, watch = Stream(settings, "counts", entries=99), Watch(settings)
    watch.take("counts", stream.beat_at(now_s - 60))

    found = history(recorded(settings, "counts", now_s=now_s), watch.kept("counts"), now_s=now_s)

    assert found.state_entries.values == [10, 20, 99]


def test_batches_since_a_time_are_read_from_the_last_files_only(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "batches"
    for number in (0, 1, 9_999, 10_000, 10_001):
        batches.append(folder, batches.BatchRecord(number, number * 1_000, {"t": {"0": (number, number + 1)}}))

    assert [record.batch for record in batches.since(folder, 9_999_000)] == [9_999, 10_000, 10_001]
    assert [record.batch for record in batches.since(folder, 10_001_000)] == [10_001]
    assert [record.batch for record in batches.since(folder, 0)] == [0, 1, 9_999, 10_000, 10_001]
    assert batches.since(tmp_path / "none", 0) == []
    (folder / f"{0:012d}.jsonl").unlink()
    assert [record.batch for record in batches.since(folder, 10_000_000)] == [10_000, 10_001]
