"""The list of records that are set aside: what may be on it, when it changes, who reads it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from deltaworks import Pipeline, StreamsBuilder, exits
from deltaworks.cli import app as cli
from deltaworks.control import batches, set_aside
from deltaworks.control.batches import record_of
from deltaworks.control.intents import Intent, Intents
from deltaworks.control.lease import Lease
from deltaworks.control.paths import PipelinePaths
from deltaworks.errors import ConfigurationError, ConflictError, IncompatibleCheckpointError, LeaseError
from deltaworks.files import LocalFiles
from deltaworks.kafka.ranges import Range
from deltaworks.topology.records import Coordinates

FIRST, SECOND = Coordinates("in", 0, 10), Coordinates("in", 1, 20)


def topology(builder: StreamsBuilder) -> None:
    words = builder.stream("in", key=str, value=str)
    words.select_key(lambda _, word: word, key=str).repartition(name="by-word").to("out")


PIPELINE = Pipeline(name="p", topology=topology)


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    return PipelinePaths.at(tmp_path / "p")


def add(paths: PipelinePaths, *records: Coordinates) -> list[Coordinates]:
    return set_aside.add(paths, PIPELINE, records, by="me", reason="it is bad")


def processed(paths: PipelinePaths, batch: int, *ranges: Range) -> None:
    batches.append(paths.batches, record_of(batch, 0, ranges, tick=False))


def planned(paths: PipelinePaths, batch: int, *ranges: Range) -> None:
    Intents(LocalFiles(paths.current.intents)).put(
        Intent(batch=batch, lineage="l", query="q", generation=1, code="c", clock_ms=0, tick=False,
               ranges=list(ranges), end={}, previous="")
    )  # fmt: skip


def test_records_are_added_once_and_reach_every_host_with_the_pipeline(paths: PipelinePaths) -> None:
    assert set_aside.applied(paths, PIPELINE) == PIPELINE
    assert add(paths, FIRST) == [FIRST]
    assert add(paths, FIRST, SECOND, SECOND) == [SECOND]

    assert [(entry.record, entry.by, entry.reason) for entry in set_aside.entries(paths)] == [
        (FIRST, "me", "it is bad"),
        (SECOND, "me", "it is bad"),
    ]
    mine = replace(PIPELINE, set_aside=frozenset({Coordinates("in", 5, 5)}))
    assert set_aside.applied(paths, mine).errors.set_aside == {FIRST, SECOND, Coordinates("in", 5, 5)}


def test_what_the_pipeline_does_not_read_cannot_be_set_aside(paths: PipelinePaths) -> None:
    with pytest.raises(ConfigurationError, match=r"does not read 'out'.*\n.*it reads .*in"):
        add(paths, Coordinates("out", 0, 1))
    (exchange,) = (exchange for stage in PIPELINE.plan().stages for exchange in stage.exchanges_in)
    with pytest.raises(ConfigurationError, match=f"does not read '{exchange}'.*\n.*{exchange}/TASK"):
        add(paths, Coordinates(exchange, 0, 1))
    assert set_aside.entries(paths) == ()


def test_a_record_that_was_processed_cannot_be_set_aside(paths: PipelinePaths) -> None:
    processed(paths, 4, Range("in", 0, 5, 11))
    add(paths, SECOND)

    with pytest.raises(ConflictError, match="in-0@10 was processed in batch 4: it can no longer be set aside"):
        add(paths, FIRST)
    (exchange,) = (exchange for stage in PIPELINE.plan().stages for exchange in stage.exchanges_in)
    with pytest.raises(ConflictError, match="was processed in batch 4"):
        add(paths, Coordinates(f"{exchange}/1", 0, 4 << 32))
    assert add(paths, Coordinates(f"{exchange}/1", 0, 5 << 32), Coordinates("in", 0, 11))


def test_a_record_of_a_recreated_topic_was_not_processed_with_the_one_before_it(paths: PipelinePaths) -> None:
    for batch, stop, id in [(4, 11, "before"), (5, 3, "now")]:
        ranges = [Range("in", 0, 0, stop)]
        batches.append(paths.batches, record_of(batch, 0, ranges, tick=False, topics={"in": id, "another": "x"}))

    assert add(paths, FIRST) == [FIRST]


def test_a_record_of_the_open_batch_can_be_set_aside_but_not_brought_back(paths: PipelinePaths) -> None:
    processed(paths, 4, Range("in", 0, 5, 10))
    planned(paths, 5, Range("in", 0, 10, 12))

    add(paths, FIRST, SECOND)
    with pytest.raises(ConflictError, match="in-0@10 belongs to batch 5, which has started: it stays set aside"):
        set_aside.remove(paths, PIPELINE, [FIRST])
    set_aside.remove(paths, PIPELINE, [SECOND])
    assert [entry.record for entry in set_aside.entries(paths)] == [FIRST]

    processed(paths, 5, Range("in", 0, 10, 12))
    with pytest.raises(ConflictError, match="was processed in batch 5: it stays set aside"):
        set_aside.remove(paths, PIPELINE, [FIRST])


def test_the_list_does_not_change_while_a_driver_runs(paths: PipelinePaths) -> None:
    with Lease(paths.lease, "p", 3):
        for change in (lambda: add(paths, FIRST), lambda: set_aside.remove(paths, PIPELINE, [FIRST])):
            with pytest.raises(LeaseError, match="already running"):
                change()
    assert set_aside.entries(paths) == ()


@pytest.mark.parametrize("content", [b"", b'{"format": 1, "entries": [{', b'{"format": 9, "entries": []}', b"[]"])
def test_a_list_that_cannot_be_read_is_refused_and_never_taken_for_an_empty_one(
    paths: PipelinePaths, content: bytes
) -> None:
    paths.records_set_aside.mkdir(parents=True)
    (paths.records_set_aside / "records.json").write_bytes(content)

    with pytest.raises(IncompatibleCheckpointError, match=r"cannot be read|has format 9"):
        set_aside.applied(paths, PIPELINE)


JOB = """
from deltaworks import Pipeline, StreamsBuilder
def topology(builder: StreamsBuilder) -> None:
    builder.stream("in", key=str, value=str).to("out")
pipeline = Pipeline(name="q_aside", topology=topology)
"""


def test_the_command_adds_shows_and_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "q_aside.py").write_text(JOB)
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path))
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [*sys.path])

    def call(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["deltaworks", "set-aside", "q_aside", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out + said.err

    assert call("in-0@10", "in-1@20", "--reason", "no amount") == (
        0,
        "Records set aside: 2 new, 0 before. Now: deltaworks deploy q_aside\n",
    )
    code, listed = call("--list")
    assert code == 0 and "in-0@10" in listed and "in-1@20" in listed and "no amount" in listed
    assert call("in-0@10", "--remove") == (0, "Records that will be processed: 1.\n")
    assert "in-0@10" not in call("--list")[1]
    assert call("in-0") == (exits.CONFIG, call("in-0")[1]) and "expected TOPIC-PARTITION@OFFSET" in call("in-0")[1]
    assert call()[0] == exits.CONFIG
