"""Corrections are sent exactly once, in order, wherever the sender was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltaworks import faults
from deltaworks.control import corrections as sending
from deltaworks.control.paths import PipelinePaths
from deltaworks.erase import erasing
from deltaworks.errors import ConfigurationError, ConflictError, IntentError, KafkaTopicError, KafkaWriteError
from deltaworks.kafka.control_topic import markers_place, markers_topic
from deltaworks.lakehouse.publish import corrections, sink_changes
from deltaworks.lakehouse.publish.corrections import KeptCorrections, TableCorrections
from deltaworks.lakehouse.publish.kept import Action
from deltaworks.lakehouse.publish.sink_changes import KeptSinks, TableRows
from deltaworks.settings import Settings
from tests.hosts.memory_kafka import MemoryKafka, MemorySink
from tests.support.kills import Killed, kill_at

TOPIC = "shop-corrections"


class Home:
    """Released corrections of pipeline `shop`, and a Kafka."""

    def __init__(self, root: Path, topic: str = TOPIC, pipeline: str = "shop") -> None:
        self.topic = topic
        self.settings = replace(Settings.from_environment({}), home=root)
        self.publications = PipelinePaths.of(self.settings, pipeline).publications
        self.kafka = MemoryKafka({TOPIC: 2})

    def sink(self, cluster: object, name: str, kept: str) -> MemorySink:
        return MemorySink(self.kafka, (f"{name}/{kept}", 0, 0))

    def release(self, run: str, rows: int, *, action: Action = "publish", at_ms: int = 1_000, text: str = "") -> None:
        """Row `n` of table `counts` had the value n and has n + 1; the first is new, the second is gone."""
        kept = KeptCorrections(
            run_id=run,
            action=action,
            round=1,
            topic=self.topic,
            tables={"counts": TableCorrections(rows=rows, columns=("key", "value"), identity=("key",))},
            per_transaction=10,
            made_ms=at_ms,
            released_ms=at_ms,
        )
        folder = corrections.KEEPING.folder_of(self.publications, run, action, 1)
        folder.mkdir(parents=True)
        numbers = list(range(rows))
        keys = [f"k{number}{text}" for number in numbers]
        table = pa.table(
            {
                "b0": keys,
                "a0": keys,
                "b1": numbers,
                "a1": [number + 1 for number in numbers],
                "in_before": [number != 0 for number in numbers],
                "in_after": [number != 1 for number in numbers],
            }
        )
        pq.write_table(table, folder / "counts.parquet", row_group_size=7)
        corrections.KEEPING.save(folder, kept)

    def send(self) -> list[str]:
        return [kept.name for kept in sending.send(self.settings, "shop")]

    def rows(self) -> list[Any]:
        """The rows that a consumer of committed records has, by their number."""
        found = [json.loads(record.value or b"") for _, _, record in self.kafka.read(TOPIC)]
        return sorted((row for row in found if row["kind"] == "row"), key=lambda row: (row["run"], row["sequence"]))

    def ends(self) -> list[tuple[str, int]]:
        """Run and partition of each end."""
        read = self.kafka.read(TOPIC)
        return [
            (json.loads(each.value or b"")["run"], at) for at, _, each in read if dict(each.headers)["kind"] == b"end"
        ]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    made = Home(tmp_path)
    monkeypatch.setattr(sending, "_sink", made.sink)
    yield made
    faults.arm(None)


def test_a_row_has_its_key_both_sides_and_where_it_belongs(home: Home) -> None:
    home.release("run-1", 3)
    assert home.send() == ["run-1/publish-1"]

    assert home.rows() == [
        {
            "version": 1,
            "kind": "row",
            "run": "run-1",
            "action": "publish",
            "round": 1,
            "table": "counts",
            "sequence": number + 1,
            "before": None if number == 0 else {"key": f"k{number}", "value": number},
            "after": None if number == 1 else {"key": f"k{number}", "value": number + 1},
        }
        for number in range(3)
    ]
    row = next(record for _, _, record in home.kafka.read(TOPIC) if b'"k0"' in (record.key or b""))
    assert row.key == b'{"key":{"key":"k0"},"table":"counts"}'
    assert dict(row.headers) == {"kind": b"row", "run": b"run-1", "action": b"publish", "count": b"3"}
    assert row.timestamp_ms == 1_000


def test_each_partition_ends_with_a_record_that_says_that_all_are_there(home: Home) -> None:
    home.release("run-1", 3)
    home.release("run-2", 0, at_ms=2_000)
    home.send()

    assert sorted(home.ends()) == [("run-1", 0), ("run-1", 1), ("run-2", 0), ("run-2", 1)]
    last = home.kafka.read(TOPIC)[-1][2]
    told = {"version": 1, "kind": "end", "run": "run-2", "action": "publish", "round": 1}
    assert json.loads(last.value or b"") == told | {"count": 0, "tables": {"counts": 0}}
    assert last.key == b'{"end":"run-2/publish-1","partition":1}'


POINTS = [
    ("corrections.before_transaction", 1),
    ("corrections.before_transaction", 2),
    ("corrections.before_commit", 1),
    ("corrections.before_commit", 3),
    ("corrections.after_commit", 1),
    ("corrections.after_commit", 3),
    ("corrections.before_note", 1),
]


@pytest.mark.parametrize(("point", "times"), POINTS)
def test_killed_anywhere_nothing_is_sent_twice_or_left_out(home: Home, point: str, times: int) -> None:
    home.release("run-1", 25)
    kill_at(point, times)
    with pytest.raises(Killed):
        home.send()
    home.release("run-1", 25, action="rollback", at_ms=2_000)

    assert home.send() == ["run-1/publish-1", "run-1/rollback-1"]
    assert home.send() == []

    assert [row["sequence"] for row in home.rows() if row["action"] == "publish"] == list(range(1, 26))
    assert [row["sequence"] for row in home.rows() if row["action"] == "rollback"] == list(range(1, 26))
    assert len(home.ends()) == 4
    actions = [json.loads(record.value or b"")["action"] for record in home.kafka.sent[TOPIC]]
    assert actions == sorted(actions), "what was published comes before what was rolled back"


def test_the_last_transaction_has_the_ends(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.release("run-1", 20)
    kill_at("corrections.after_commit", 1)
    with pytest.raises(Killed):
        home.send()
    assert (len(home.rows()), home.ends()) == (10, [])


def test_they_are_sent_in_the_order_in_which_the_tables_have_shown_them(home: Home) -> None:
    home.release("run-b", 1, at_ms=1_000)
    home.release("run-a", 1, at_ms=2_000)
    assert home.send() == ["run-b/publish-1", "run-a/publish-1"]


def test_a_row_that_the_topic_does_not_take_stops_them_until_it_does(home: Home) -> None:
    home.release("run-1", 12, text="x" * 300)
    home.kafka.limits[TOPIC] = 500
    with pytest.raises(ConfigurationError, match="does not fit into a record of topic 'shop-corrections'") as refused:
        home.send()
    assert "The tables show the publish of run run-1" in refused.value.message
    assert home.rows() == []

    home.kafka.limits[TOPIC] = 5_000
    home.send()
    assert len(home.rows()) == 12


def test_a_topic_that_is_gone_is_said(home: Home) -> None:
    home.release("run-1", 1)
    home.kafka.missing.add(TOPIC)
    with pytest.raises(KafkaTopicError, match="There is no topic 'shop-corrections'"):
        home.send()


def test_other_corrections_of_the_same_name_are_not_mixed(home: Home) -> None:
    """The home was copied when it had not sent all, and both copies go on."""
    home.release("run-1", 25)
    kill_at("corrections.after_commit", 1)
    with suppress(Killed):
        home.send()
    folder = corrections.KEEPING.folder_of(home.publications, "run-1", "publish", 1)
    (kept,) = corrections.unsent(home.publications)
    corrections.KEEPING.save(folder, msgspec.structs.replace(kept, made_ms=5))

    with pytest.raises(IntentError, match="Other corrections of run-1/publish-1"):
        home.send()
    assert len(home.rows()) == 10


def test_a_kafka_that_does_not_answer_leaves_them_to_the_next_call(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise KafkaWriteError("no answer")

    home.release("run-1", 3)
    with monkeypatch.context() as down, pytest.raises(KafkaWriteError, match="not all corrections are sent: no answer"):
        down.setattr(sending, "_sink", silent)
        home.send()

    assert home.send() == ["run-1/publish-1"]
    assert len(home.rows()) == 3


def test_rows_that_wait_forbid_an_erasure(home: Home) -> None:
    home.release("run-1", 1)
    paths = PipelinePaths.of(home.settings, "shop")
    with pytest.raises(ConflictError, match="Corrections of run-1 are not sent to shop-corrections yet, and hold rows"):
        erasing._require_quiet(home.settings, paths, "shop")

    home.send()
    erasing._require_quiet(home.settings, paths, "shop")


def test_sinks_that_wait_forbid_an_erasure(home: Home) -> None:
    paths = PipelinePaths.of(home.settings, "shop")
    told = TableRows(rows=1, columns=("key",), identity=("key",), as_of_batch=3)
    waiting = KeptSinks(
        run_id="run-1",
        action="publish",
        round=1,
        tables={"counts": told},
        corrected={"search-counts": "counts"},
        stale={},
        made_ms=1,
        released_ms=2,
    )
    sink_changes.KEEPING.save(sink_changes.KEEPING.folder_of(home.publications, "run-1", "publish", 1), waiting)
    with pytest.raises(ConflictError, match="Corrections of run-1 wait for the sinks search-counts, and hold rows"):
        erasing._require_quiet(home.settings, paths, "shop")

    sink_changes.note_done(home.publications, waiting, "search-counts")
    erasing._require_quiet(home.settings, paths, "shop")


def test_the_markers_have_a_topic_of_their_own() -> None:
    place = markers_place("shop", "corrections", "run-1/publish-1")
    assert (place.topic, place.partition, place.key) == (markers_topic("shop", "corrections"), 0, b"run-1/publish-1")
    assert markers_topic("shop", "corrections") == "__deltaworks-shop-corrections"
