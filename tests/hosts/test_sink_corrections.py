"""A published replay and its rollback, as a search index shows them: each document is what the tables say."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks import Pipeline, StreamsBuilder, TimeWindows, faults
from deltaworks.control import fence, sink_corrections
from deltaworks.errors import SinkError
from deltaworks.lakehouse.publish import sink_changes
from deltaworks.replay import handover
from deltaworks.replay.model import PHASES
from deltaworks.replay.plan import DAY_MS
from deltaworks.settings import Settings
from deltaworks.sinks.documents import iso
from deltaworks.testing.topics import RawRecord
from tests.hosts.beside import Beside, Engines, stand_beside
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka
from tests.support.fake_search import FakeSearch, fake_search
from tests.support.kills import Killed, kill_at

FIRST_DAY, DAYS = 20_513, 2
HOUR = timedelta(hours=1)
TABLES = ("totals", "hours")
WORDS = [f"w{number}" for number in range(9)]


class Total(msgspec.Struct, frozen=True):
    """A row with several types of columns."""

    words: int
    label: str
    share: float | None
    parts: dict[str, int]


def total(word: str, count: int, *, fixed: bool) -> Total:
    wrong = word == "w1" and not fixed
    return Total(-count if wrong else count, word.upper(), None if count % 2 else count / 7, {word: count})


def topology(folder: Path, url: str, *, fixed: bool) -> Callable[[StreamsBuilder], None]:
    """The first code takes `w2` for a word, counts `w1` below zero, and has not heard of `w3`."""

    def build(builder: StreamsBuilder) -> None:
        words = builder.stream("words", key=str, value=str)
        known = words.filter(lambda _, word: word != ("w2" if fixed else "w3"), name="known")
        by_word = known.group_by(lambda _, word: word, key=str, name="by-word")
        totals = by_word.count(store="counts").map_values_with_key(
            lambda word, count: total(word, count, fixed=fixed), value=Total, name="totals"
        )
        totals.to_delta("totals", key="word")
        totals.to_search("totals", url=url, timestamp_field="at", batch_documents=2)
        hours = by_word.windowed_by(TimeWindows(size=HOUR, grace=HOUR)).count(store="hours-store")
        hours.to_delta("hours")
        hours.to_search("hours-{date}", url=url)
        hours.to_search("left", url=url, on_publish="stale")
        known.to_files(str(folder), name="as-files")

    return build


@pytest.fixture
def server() -> Iterator[FakeSearch]:
    with fake_search() as server:
        server.types["totals", "share"] = float  # as a mapping says
        yield server


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("deltaworks.sinks.search._FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(sink_corrections, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(sink_corrections, "_PAUSE_S", 0.001)
    yield
    faults.arm(None)


@pytest.fixture
def beside(tmp_path: Path, server: FakeSearch, monkeypatch: pytest.MonkeyPatch) -> Beside:
    rng = random.Random(3)
    kafka = MemoryKafka({"words": 2})
    for time_ms in range(FIRST_DAY * DAY_MS, (FIRST_DAY + DAYS) * DAY_MS, 3_600_000):
        kafka.write("words", RawRecord(b"k%d" % rng.randrange(5), rng.choice(WORDS).encode(), time_ms))
    settings = replace(Settings.from_environment({}), home=tmp_path / "home")
    pipeline = Pipeline(
        name="words", topology=topology(tmp_path / "files", server.url, fixed=False), record_cache=False
    )
    stream = InProcessStream(pipeline, settings, kafka=kafka)
    stream.run_to_the_end(rng, 20, elsewhere=None)
    commits = stream.paths.current.spark / "commits"
    commits.mkdir(parents=True)
    for number in range(stream.batch_id):
        (commits / str(number)).touch()
    found = stand_beside(stream, monkeypatch)
    fixed = topology(tmp_path / "files", server.url, fixed=True)
    found.pipeline = replace(found.pipeline, topology=fixed)
    return found


def expected(beside: Beside) -> dict[str, dict[str, Any]]:
    """The documents that the tables say."""
    rows = beside.rows()
    found: dict[str, dict[str, Any]] = {
        "totals": {
            row["word"]: {
                "words": row["words"],
                "label": row["label"],
                "share": row["share"],
                "parts": dict(row["parts"]),
                "at": iso(round(row["timestamp"].timestamp() * 1000)),
            }
            for row in rows["totals"]
        }
    }
    for row in rows["hours"]:
        start, end = (round(row[name].timestamp() * 1000) for name in ("window_start", "window_end"))
        index = found.setdefault(f"hours-{row['window_start']:%Y.%m.%d}", {})
        times = {"window_start": iso(start), "window_end": iso(end)}
        index[f"{row['key']}@{start}-{end}"] = {**times, "value": row["value"]}
    return found


def documents(server: FakeSearch) -> dict[str, dict[str, Any]]:
    return {index: {**found} for index, found in server.documents.items() if index != "left"}


def marks(beside: Beside) -> list[tuple[str, str, str]]:
    found = sink_corrections.stale(beside.settings, "words")
    return sorted((each.sink, each.action, each.run_id) for each in found)


def publish(beside: Beside) -> str:
    run = beside.start(tables=TABLES)
    assert beside.advance(run) == list(PHASES)
    return run.plan.run_id


def test_documents_follow_a_publication_and_its_rollback(beside: Beside, server: FakeSearch) -> None:
    before, files = documents(server), sorted(str(path) for path in beside.stream.settings.home.parent.glob("files/*"))
    assert before == expected(beside), "as the stream has left them"
    assert before["totals"]["w1"]["words"] < 0 and "w2" in before["totals"] and "w3" not in before["totals"]

    run = publish(beside)

    after = documents(server)
    assert after == expected(beside) != before
    assert after["totals"]["w1"]["words"] > 0 and "w3" in after["totals"] and "w2" not in after["totals"]
    assert marks(beside) == [("as-files", "publish", run), ("search-left", "publish", run)]
    assert sink_corrections.correct(beside.settings, "words") == [], "once"
    assert files == sorted(str(path) for path in beside.stream.settings.home.parent.glob("files/*"))

    told = handover.take_back(beside.settings, run, requested_by="a test")
    assert documents(server) == before == expected(beside)
    assert "rows corrected in sink 'search-totals'" in told and "stale" not in told
    assert marks(beside) == [], "they hold what they held before"


POINTS = [
    ("after_record", 1),
    ("after_commits", 1),
    ("sinks.before_transaction", 2),
    ("sinks.after_transaction", 1),
    ("sinks.before_note", 1),
]
MORE = [
    ("before_record", 1),
    ("after_commit:totals", 1),
    ("sinks.marked", 1),
    ("sinks.before_transaction", 1),
    ("sinks.after_transaction", 3),
    ("sinks.before_note", 2),
]


@pytest.mark.parametrize(
    ("point", "times"), [*POINTS, *(pytest.param(*point, marks=pytest.mark.slow) for point in MORE)]
)
def test_killed_anywhere_the_end_is_the_same(
    beside: Beside, server: FakeSearch, monkeypatch: pytest.MonkeyPatch, point: str, times: int
) -> None:
    monkeypatch.setattr(sink_changes, "TRANSACTION_ROWS", 3)
    before = documents(server)
    run = beside.start(tables=TABLES)
    beside.advance(run, "gate")
    kill_at(point if point.startswith("sinks.") else f"publish.{point}", times)
    with pytest.raises(Killed):
        beside.advance(run)

    assert beside.advance(run) == list(PHASES)
    assert documents(server) == expected(beside) != before
    assert [sink for sink, *_ in marks(beside)] == ["as-files", "search-left"]

    if point == "sinks.marked":
        point = "sinks.before_note"  # a rollback marks nothing
    kill_at(point if point.startswith("sinks.") else f"rollback.{point}", times)
    with pytest.raises(Killed):
        handover.take_back(beside.settings, run.plan.run_id, requested_by="a test")
    handover.take_back(beside.settings, run.plan.run_id, requested_by="a test")
    assert documents(server) == before == expected(beside)
    assert marks(beside) == []


def going_on(beside: Beside) -> InProcessStream:
    """The driver starts again, with the code that is published; new records have come."""
    stream = beside.stream
    assert stream.kafka is not None
    for number in range(6):
        word = WORDS[number % 4].encode()
        stream.kafka.write("words", RawRecord(b"k1", word, (FIRST_DAY + DAYS) * DAY_MS + number))
    stream._generation = fence.read(stream.paths.fence) + 1
    fence.advance(stream.paths.fence, stream._generation, "words")
    stream.restart()
    return stream


def test_what_the_stream_sends_meanwhile_stays(beside: Beside, server: FakeSearch) -> None:
    """The index is down when the tables are published; the stream goes on before the corrections are tried again."""
    run = beside.start(tables=TABLES)
    beside.advance(run, "gate")
    server.error = {"status": 403, "error": {"type": "cluster_block_exception", "reason": "read only"}}
    with pytest.raises(SinkError, match=r"The tables show the publish of run .*, but sink 'search-") as raised:
        beside.advance(run)
    assert "status 403: cluster_block_exception" in raised.value.message
    server.error = None
    stale = documents(server)

    stream = going_on(beside)
    stream.run(stream.end())
    stream.committer.refresh_snapshots(force=True)
    stream.committer.close()
    sent = {
        word: document
        for word, document in documents(server)["totals"].items()
        if stale["totals"].get(word) != document
    }
    assert set(sent) <= {"w0", "w1", "w2"}, "the words that have come, as the code of before counts them"

    server.versions.clear()  # an index forgets those of deleted documents: later batches are left out all the same
    done = sink_corrections.correct(beside.settings, "words")

    assert {each.sink for each in done} == {"search-totals", "search-hours-{date}"}
    assert documents(server) == expected(beside)
    for word, document in sent.items():
        assert documents(server)["totals"][word] == document


def test_an_older_correction_never_wins_over_the_stream(
    beside: Beside, server: FakeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions guard what no table shows yet: here nothing is left out because of later batches."""
    run = beside.start(tables=TABLES)
    beside.advance(run, "gate")
    server.error = {"status": 403, "error": {"type": "cluster_block_exception", "reason": "read only"}}
    with pytest.raises(SinkError):
        beside.advance(run)
    server.error = None
    stream = going_on(beside)
    before_it = stream.batch_id
    stream.run(stream.end())
    stream.committer.close()
    sent = {word: server.documents["totals"][word] for word in ("w0", "w1")}

    monkeypatch.setattr(sink_corrections._Correcting, "_updated_since", lambda self: set())
    monkeypatch.setattr("deltaworks.control.batches.last_number", lambda folder: before_it - 1)
    monkeypatch.setattr(sink_corrections._Correcting, "_is_settled", lambda self, plan: True)
    sink_corrections.correct(beside.settings, "words")

    assert {word: server.documents["totals"][word] for word in sent} == sent


def test_a_batch_that_would_run_again_is_waited_for(beside: Beside, server: FakeSearch) -> None:
    """It would bring back old documents, in a newer generation."""
    stream = going_on(beside)
    stream.run(stream.end())
    stream.committer.close()
    run = beside.start(tables=TABLES)
    before = documents(server)

    with pytest.raises(SinkError, match="would run again after a crash"):
        beside.advance(run)
    assert documents(server) == before

    (stream.paths.current.spark / "commits" / str(stream.batch_id - 1)).touch()
    assert beside.advance(run) == list(PHASES)
    assert documents(server) == expected(beside)


def test_what_an_index_refuses_makes_it_stale_and_holds_up_nothing(beside: Beside, server: FakeSearch) -> None:
    server.types["totals", "words"] = str
    run = publish(beside)

    assert ("search-totals", "publish", run) in marks(beside)
    (mark,) = [each for each in sink_corrections.stale(beside.settings, "words") if each.sink == "search-totals"]
    assert "refuses 3 of 3 rows" in mark.why or "rows: index 'totals' refuses a document" in mark.why
    assert sink_changes.waiting(beside.stream.paths.publications) == []


def test_a_sink_that_is_gone_for_good_is_given_up(beside: Beside, server: FakeSearch) -> None:
    run = beside.start(tables=TABLES)
    server.error = {"status": 403, "error": {"type": "cluster_block_exception", "reason": "read only"}}
    with pytest.raises(SinkError):
        beside.advance(run)
    while waiting := [sink for kept in sink_changes.waiting(beside.stream.paths.publications) for sink in kept.waiting]:
        assert sink_corrections.give_up(beside.settings, "words", waiting[0]) == 1

    assert beside.advance(run) == list(PHASES)
    assert {"search-totals", "search-hours-{date}"} <= {sink for sink, *_ in marks(beside)}


def test_a_sink_that_was_written_anew_is_made_stale_by_the_rollback(beside: Beside) -> None:
    run = publish(beside)
    assert sink_corrections.clear(beside.settings, "words", "as-files") == 1
    assert [sink for sink, *_ in marks(beside)] == ["search-left"]

    handover.take_back(beside.settings, run, requested_by="a test")

    assert marks(beside) == [("as-files", "rollback", run)]


def test_the_report_names_what_was_corrected_and_what_is_stale(beside: Beside) -> None:
    run = beside.start(tables=TABLES)
    lines: list[str] = []
    beside.advance(run, "gate")
    with run.held():
        run.advance("publish", lambda phase: lines.append, Engines(beside.stream))

    assert "rows corrected in sink 'search-totals'" in lines[-1]
    assert "; stale: 'as-files', 'search-left' (deltaworks sinks words)" in lines[-1]
