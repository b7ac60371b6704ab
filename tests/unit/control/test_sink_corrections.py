"""What is asked of a publication for sinks, and which of them are marked. `tests/hosts` corrects them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deltaworks import Pipeline, StreamsBuilder, TimeWindows
from deltaworks.control import sink_corrections
from deltaworks.control.checkpoint import CheckpointPlan, write_plan
from deltaworks.control.paths import PipelinePaths
from deltaworks.control.sink_corrections import CorrectedSink
from deltaworks.errors import ConfigurationError, ConflictError, DeltaworksError, SinkError
from deltaworks.lakehouse.publish import publication, sink_changes, stale_sinks
from deltaworks.lakehouse.publish.sink_changes import KeptSinks, OtherSink, SinksRequest, TableRows
from deltaworks.settings import Settings
from deltaworks.topology.published_sinks import at_publish

SEARCH: dict[str, Any] = {"url": "http://search.example.com:9200"}


def topology(builder: StreamsBuilder) -> None:
    words = builder.stream("words", key=str, value=str)
    words.to_delta("words")
    words.to_files("/data", name="files")
    counts = words.group_by_key().windowed_by(TimeWindows(size=timedelta(hours=1), grace=timedelta(0))).count(store="c")
    counts.to_delta("counts")
    counts.to_search("counts", **SEARCH)
    counts.to_search("other", on_publish="stale", **SEARCH)


PIPELINE = Pipeline(name="shop", topology=topology)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(Settings.from_environment({}), home=tmp_path)


def test_a_publication_is_asked_for_the_sinks_of_the_topology() -> None:
    assert sink_corrections.request_of(PIPELINE, same_batches=False) == SinksRequest(
        corrected={"search-counts": "counts"},
        stale={
            "files": OtherSink(table="words", why="files are never changed"),
            "search-other": OtherSink(table="counts", why="its author says on_publish='stale'"),
        },
        same_batches=False,
    )


def test_without_such_sinks_nothing_is_asked() -> None:
    plain = Pipeline(name="p", topology=lambda builder: builder.stream("in", key=str, value=int).to_delta("t"))
    assert sink_corrections.request_of(plain, same_batches=True) is None


def test_a_hand_over_marks_all_sinks_and_the_report_names_them(settings: Settings) -> None:
    for action in ("hand-over", "hand-over", "undone hand-over"):
        assert sink_corrections.mark_all(settings, PIPELINE, "run-1", action) == [
            "files",
            "search-counts",
            "search-other",
        ]

    marks = sink_corrections.stale(settings, "shop")
    assert {(each.sink, each.action) for each in marks} == {
        (sink, "undone hand-over") for sink in ("files", "search-counts", "search-other")
    }
    done = [CorrectedSink(name="run-0/publish-1", sink="search-counts", rows=1_200, refused=0)]
    assert sink_corrections.told(settings, "shop", done) == (
        ", 1,200 rows corrected in sink 'search-counts'"
        "; stale: 'files', 'search-counts', 'search-other' (deltaworks sinks shop)"
    )
    assert sink_corrections.clear(settings, "shop", "files") == 1
    assert "'files'" not in sink_corrections.told(settings, "shop", [])


def test_marks_are_not_taken_away_in_the_middle_of_a_publication(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    publications = PipelinePaths.of(settings, "shop").publications
    stale_sinks.mark(publications, "files", "run-1", "publish", "of the test")
    with monkeypatch.context() as begun, pytest.raises(ConflictError, match="A publication was interrupted: run-2"):
        begun.setattr(publication, "unfinished", lambda folder: ["run-2"])
        sink_corrections.clear(settings, "shop", "files")

    with pytest.raises(ConfigurationError, match="Sink 'flies' of 'shop' is not stale") as raised:
        sink_corrections.clear(settings, "shop", "flies")
    assert raised.value.hint == "stale sinks: files"


def test_what_a_database_has_refused_stays_told_when_a_later_attempt_only_finds_the_rest(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database knows which transactions are done, and not what it has refused in them."""
    paths = PipelinePaths.of(settings, "shop")
    rows = TableRows(rows=3, columns=(), identity=(), as_of_batch=0)
    kept = KeptSinks(
        run_id="run-1",
        action="rollback",
        round=1,
        tables={"counts": rows},
        corrected={"search-counts": "counts"},
        stale={},
        made_ms=0,
        released_ms=1,
    )
    (found,) = [each for each in at_publish(PIPELINE.plan().nodes) if each.node.name == "search-counts"]
    sink_corrections._mark_refused(paths, kept, "search-counts", ["too long"])

    monkeypatch.setattr(sink_corrections._Correcting, "run", lambda self: [])
    sink_corrections._corrected(settings, paths, "shop", kept, "search-counts", found)

    (mark,) = stale_sinks.all_of(paths.publications)
    assert (mark.action, mark.why) == ("rollback", "its system refuses 1 of 3 rows: too long")


def test_all_tasks_that_may_write_are_locked_whatever_stages_the_code_of_now_has(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay with other code is published while the stream goes on with its own."""

    def build(builder: StreamsBuilder) -> None:
        counts = builder.stream("in", key=str, value=str).group_by(lambda _, v: v, key=str).count(store="c")
        counts.to_delta("totals")
        counts.to_jdbc("totals", url="postgresql://db.example.com/shop")

    asked: list[int] = []

    class Corrections:
        def __init__(self, *_: Any, tasks: int, **others: Any) -> None:
            asked.append(tasks)

        def close(self) -> None:
            pass

    monkeypatch.setattr("deltaworks.sinks.jdbc_corrections.JdbcCorrections", Corrections)
    (found,) = at_publish(Pipeline(name="shop", topology=build).plan().nodes)
    paths, rows = PipelinePaths.of(settings, "shop"), TableRows(rows=0, columns=(), identity=(), as_of_batch=0)
    kept = KeptSinks(
        run_id="run-1",
        action="publish",
        round=1,
        tables={"totals": rows},
        corrected={"jdbc-totals": "totals"},
        stale={},
        made_ms=0,
    )
    plan = CheckpointPlan(lineage="l", query_id="q", fingerprint={}, partitions={}, tasks=(3,), shards=1)
    write_plan(paths.current.plan, plan)

    assert sink_corrections._Correcting(settings, paths, "shop", kept, found).run() == []
    assert asked == [3]


def test_the_log_of_the_changelog_is_loaded_once_and_before_rows_are_locked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(builder: StreamsBuilder) -> None:
        totals = builder.stream("in", key=str, value=str).group_by_key().count(store="c")
        totals.to_delta("totals")
        totals.to_jdbc("totals", url="postgresql://db.example.com/shop")

    done: list[str] = []

    class Log:
        def __init__(self, path: Path) -> None:
            self.path, self.files = path, dict[str, Any]()

        def load(self) -> None:
            done.append("load")

        def catch_up(self) -> None:
            done.append("catch up")

    class Corrections:
        def __init__(self, *_: Any, **others: Any) -> None:
            pass

        def correct(self, number: int, digest: str, parts: Any, *_: Any) -> list[str]:
            done.append("lock")
            list(parts())
            return []

        def close(self) -> None:
            pass

    monkeypatch.setattr("deltaworks.sinks.jdbc_corrections.JdbcCorrections", Corrections)
    monkeypatch.setattr(sink_corrections, "DeltaLog", Log)
    monkeypatch.setattr(sink_changes, "rows", lambda *_: iter(()))
    (found,) = at_publish(Pipeline(name="shop", topology=build).plan().nodes)
    kept = KeptSinks(
        run_id="run-1",
        action="publish",
        round=1,
        tables={"totals": TableRows(rows=3, columns=(), identity=(), as_of_batch=0)},
        corrected={"jdbc-totals": "totals"},
        stale={},
        per_transaction=1,
        made_ms=0,
    )
    paths = PipelinePaths.of(settings, "shop")
    plan = CheckpointPlan(lineage="l", query_id="q", fingerprint={}, partitions={}, tasks=(1,), shards=1)
    write_plan(paths.current.plan, plan)

    assert sink_corrections._Correcting(settings, paths, "shop", kept, found).run() == []

    assert done == ["load", *["lock", "catch up"] * 3]


@pytest.fixture
def several(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Two publications wait for three sinks."""

    def build(builder: StreamsBuilder) -> None:
        counts = builder.stream("in", key=str, value=str).group_by_key().count(store="c")
        counts.to_delta("totals")
        for name in ("a", "b", "c"):
            counts.to_search(name, name=name, **SEARCH)

    monkeypatch.setattr("deltaworks.control.jobs.load", lambda settings, name: Pipeline(name=name, topology=build))
    paths = PipelinePaths.of(settings, "shop")
    for number in (1, 2):
        kept = KeptSinks(
            run_id=f"run-{number}",
            action="publish",
            round=1,
            tables={"totals": TableRows(rows=1, columns=(), identity=(), as_of_batch=0)},
            corrected=dict.fromkeys("abc", "totals"),
            stale={},
            made_ms=number,
            released_ms=number,
        )
        sink_changes.KEEPING.save(sink_changes.KEEPING.place_of(paths.publications, kept), kept)
    return settings


def test_a_sink_that_is_down_holds_up_its_own_corrections_only(
    several: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    down: dict[str, DeltaworksError] = {
        "a": ConfigurationError("No password."),
        "b": SinkError("No answer.", hint="start it"),
    }
    tried: list[tuple[str, str]] = []

    def corrected(settings: object, paths: object, name: str, kept: KeptSinks, sink: str, found: Any) -> CorrectedSink:
        tried.append((kept.run_id, sink))
        if sink in down:
            raise down[sink]
        return CorrectedSink(name=kept.name, sink=sink, rows=1, refused=0)

    monkeypatch.setattr(sink_corrections, "_corrected", corrected)
    publications = PipelinePaths.of(several, "shop").publications

    with pytest.raises(SinkError) as raised:  # it passes, so the next call may find more done
        sink_corrections.correct(several, "shop")

    assert tried == [("run-1", "a"), ("run-1", "b"), ("run-1", "c"), ("run-2", "c")], "each keeps its order"
    assert "sink 'b' is not corrected yet: No answer." in raised.value.message
    assert "sink 'a' is not corrected yet: No password." in raised.value.message
    assert raised.value.hint == "start it"
    assert [kept.waiting for kept in sink_changes.waiting(publications)] == [("a", "b"), ("a", "b")]

    del down["b"]
    with pytest.raises(ConfigurationError, match="publish of run run-1, but sink 'a' is not corrected yet"):
        sink_corrections.correct(several, "shop")
    down.clear()
    assert [each.name for each in sink_corrections.correct(several, "shop")] == ["run-1/publish-1", "run-2/publish-1"]
    assert sink_changes.waiting(publications) == []
