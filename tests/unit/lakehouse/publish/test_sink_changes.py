"""What a publication and its rollback change in sinks is kept, and released once all tables show it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from deltaworks.errors import TableError
from deltaworks.lakehouse.publish import corrections, publication, sink_changes, stale_sinks
from deltaworks.lakehouse.publish.corrections import CorrectionsRequest, KeptCorrections, TableCorrections
from deltaworks.lakehouse.publish.kept import Keeping, rows_of
from deltaworks.lakehouse.publish.publication import Publication, PublicationRecord, PublicationRequest
from deltaworks.lakehouse.publish.sink_changes import KeptSinks, OtherSink, SinksRequest, TableRows
from tests.unit.lakehouse.crashes import Crash, crash_at
from tests.unit.lakehouse.publication_lake import Stream, contents, request_for

WANTED = SinksRequest(
    corrected={"search-users": "users", "jdbc-counts": "counts"},
    stale={
        "files": OtherSink(table=None, why="files are never changed"),
        "own-users": OtherSink(table="users", why="its author says so"),
        "own-hopped": OtherSink(table="hopped", why="its author says so"),
    },
)
Marks = dict[str, str]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stream, Stream, Stream]:
    """A stream, a replay of it with other code, and one with the same."""
    live = Stream(tmp_path_factory.mktemp("live") / "tables")
    live.run(9)
    live.committer.settle()
    live.committer.refresh_snapshots()
    other = live.replay(tmp_path_factory.mktemp("staging") / "tables", "run-1", 1)
    return live, other, live.replay(tmp_path_factory.mktemp("same") / "tables", "run-same", 0)


@pytest.fixture
def live(tmp_path: Path, base: tuple[Stream, Stream, Stream]) -> Stream:
    return base[0].copy(tmp_path / "tables")


@pytest.fixture
def staging(base: tuple[Stream, Stream, Stream]) -> Stream:
    return base[1]


@pytest.fixture
def publications(tmp_path: Path) -> Path:
    return tmp_path / "publications"


def request(staging: Stream, **options: Any) -> PublicationRequest:
    return replace(request_for(staging, **options), sinks=WANTED)


def marks(publications: Path) -> Marks:
    return {mark.sink: mark.action for mark in stale_sinks.all_of(publications)}


def kept(publications: Path) -> KeptSinks:
    """The last that was released."""
    return sink_changes.KEEPING.of_run(publications, "run-1")[-1]


def applied(rows: dict[Any, Any], publications: Path, told: KeptSinks, sink: str) -> dict[Any, Any]:
    """What a sink holds then."""
    found = {**rows}
    for number in range(told.transactions(sink)):
        for now, gone in sink_changes.rows(publications, told, sink, number):
            for row in gone.to_pylist():
                del found[key_of(row)]
            found |= {key_of(row): row["value"] for row in now.to_pylist()}
    return found


def key_of(row: dict[str, Any]) -> Any:
    start = row.get("window_start")
    return row["key"] if start is None else (row["key"], round(start.timestamp() * 1000))


def seen(live: Stream) -> tuple[dict[Any, Any], dict[Any, Any]]:
    live.committer.refresh_snapshots(force=True)
    found = contents(live.root)
    return dict(found["users"]), {(key, at): value for key, at, value in found["counts"]}


def assert_led(before: Any, after: Any, publications: Path, told: KeptSinks) -> None:
    assert before != after
    for sink, rows, expected in zip(("search-users", "jdbc-counts"), before, after, strict=True):
        assert applied(rows, publications, told, sink) == expected, sink


def test_the_rows_lead_from_what_sinks_held_to_what_tables_show_and_back(
    publications: Path, live: Stream, staging: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_changes, "TRANSACTION_ROWS", 4)
    before = seen(live)
    publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)
    after = seen(live)

    told = kept(publications)
    assert (told.action, told.waiting) == ("publish", ("search-users", "jdbc-counts"))
    assert told.tables["users"].as_of_batch == 8 and told.transactions("search-users") > 1
    assert_led(before, after, publications, told)

    publication.rollback(live.committer, publications, "run-1")
    assert seen(live) == before
    assert kept(publications).action == "rollback"
    assert_led(after, before, publications, kept(publications))


def test_a_key_that_the_stream_has_updated_since_the_replay_stays(
    publications: Path, live: Stream, staging: Stream
) -> None:
    live.run(2)
    before = seen(live)
    publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)

    assert kept(publications).tables["users"].as_of_batch == 10
    assert_led(before, seen(live), publications, kept(publications))


def test_other_sinks_are_marked_and_a_rollback_takes_the_marks_away(
    publications: Path, live: Stream, staging: Stream
) -> None:
    publication.publish(
        live.committer, staging.root, request(staging, days=(0, 2), tables=("users", "counts")), publications
    )
    assert marks(publications) == {"files": "publish", "own-users": "publish"}, "hopped was not published"
    (mark,) = [mark for mark in stale_sinks.all_of(publications) if mark.sink == "files"]
    assert (mark.run_id, mark.why) == ("run-1", "files are never changed")

    publication.rollback(live.committer, publications, "run-1")
    assert marks(publications) == {}


def test_a_sink_that_was_written_anew_is_made_stale_by_the_rollback_and_by_nothing_else(
    publications: Path, live: Stream, staging: Stream
) -> None:
    publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)
    assert stale_sinks.clear(publications, "files") == 1
    publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)
    assert "files" not in marks(publications), "asked again, nothing is done"

    publication.rollback(live.committer, publications, "run-1")
    publication.rollback(live.committer, publications, "run-1")

    assert marks(publications) == {"files": "rollback"}


def test_a_rollback_that_is_interrupted_while_it_marks_sinks_marks_and_unmarks_the_same_ones(
    publications: Path, live: Stream, staging: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)
    stale_sinks.clear(publications, "files")
    crash_at("sinks.marked")
    with pytest.raises(Crash):
        publication.rollback(live.committer, publications, "run-1")
    assert marks(publications)["files"] == "rollback"
    live.restart()
    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr(Keeping, "save", crashing)
        publication.rollback(live.committer, publications, "run-1")
    live.restart()

    publication.rollback(live.committer, publications, "run-1")

    assert marks(publications) == {"files": "rollback"}


def crashing(*_: object) -> None:
    raise Crash


def test_a_replay_that_changes_nothing_changes_no_sink_whose_table_says_so(
    publications: Path, live: Stream, base: tuple[Stream, Stream, Stream]
) -> None:
    same = base[2]
    publication.publish(live.committer, same.root, request(same, days=(0, 2)), publications)

    assert marks(publications) == {"files": "publish"}, "no table knows what is in the files"
    (told,) = sink_changes.KEEPING.of_run(publications, "run-same")
    assert told.tables["users"].rows == told.tables["counts"].rows == 0


POINTS = ["before_record", "after_record", "after_commit:users", "after_commits"]


@pytest.mark.parametrize("point", [f"{act}.{point}" for act in ("publish", "rollback") for point in POINTS])
def test_all_of_it_is_released_once_all_tables_show_it_whatever_crashed(
    publications: Path, live: Stream, staging: Stream, point: str
) -> None:
    wanted = request(staging, days=(0, 2))
    acts: dict[str, Callable[[], Publication]] = {
        "publish": lambda: publication.publish(live.committer, staging.root, wanted, publications),
        "rollback": lambda: publication.rollback(live.committer, publications, "run-1"),
    }
    before = seen(live)
    for action, act in acts.items():
        known = len(sink_changes.KEEPING.of_run(publications, "run-1")), marks(publications)
        if point.startswith(action):
            crash_at(point)
            with pytest.raises(Crash):
                act()
            assert (len(sink_changes.KEEPING.of_run(publications, "run-1")), marks(publications)) == known
            live.restart()
        act()
        told = kept(publications)
        assert told.action == action
        after = seen(live)
        assert_led(before, after, publications, told)
        before = after
    assert marks(publications) == {}


def test_a_half_publication_that_is_taken_back_changes_no_sink(
    publications: Path, live: Stream, staging: Stream
) -> None:
    crash_at("publish.after_commit:users")
    with pytest.raises(Crash):
        publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)
    live.restart()

    publication.rollback(live.committer, publications, "run-1")

    assert sink_changes.waiting(publications) == [] and marks(publications) == {}


def test_rows_are_not_needed_once_all_sinks_are_done(publications: Path, live: Stream, staging: Stream) -> None:
    publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)
    told = sink_changes.note_done(publications, kept(publications), "search-users")
    assert told.waiting == ("jdbc-counts",) and list(publications.rglob("*.parquet"))
    digest = told.digest

    done = sink_changes.note_done(publications, told, "jdbc-counts")

    assert done.digest == digest, "what is changed stays the same"
    assert sink_changes.waiting(publications) == [] and not list(publications.rglob("*.parquet"))


def test_each_transaction_has_its_own_rows_whatever_the_groups_of_the_file(publications: Path) -> None:
    told = KeptSinks(
        run_id="run-1",
        action="publish",
        round=1,
        tables={"t": TableRows(rows=23, columns=("key",), identity=("key",), as_of_batch=0)},
        corrected={"s": "t"},
        stale={},
        per_transaction=4,
        made_ms=0,
    )
    place = rows_of(sink_changes.KEEPING.folder_of(publications, "run-1", "publish", 1), "t")
    place.parent.mkdir(parents=True)
    keys = list(range(23))
    there = pa.table({"b0": keys, "a0": keys, "in_before": [n % 3 != 0 for n in keys], "in_after": [True] * 23})
    for size in (1, 3, 4, 10, 23):
        pq.write_table(there, place, row_group_size=size)
        found = [
            [key for now, _ in sink_changes.rows(publications, told, "s", number) for key in now["key"].to_pylist()]
            for number in range(told.transactions("s"))
        ]
        assert found == [keys[begin : begin + 4] for begin in range(0, 23, 4)], size


def test_without_sinks_nothing_is_kept(publications: Path, live: Stream, staging: Stream) -> None:
    publication.publish(live.committer, staging.root, request_for(staging, days=(0, 2)), publications)
    publication.rollback(live.committer, publications, "run-1")
    assert not (publications / "sinks").exists() and not (publications / "stale-sinks").exists()


def test_a_mark_that_cannot_be_read_is_told(publications: Path) -> None:
    stale_sinks.mark(publications, "files", "run-1", "publish", "of the test")
    (path,) = (publications / "stale-sinks").iterdir()
    path.write_text("{")

    with pytest.raises(TableError, match="The mark of a stale sink") as raised:
        stale_sinks.all_of(publications)
    assert "remove the file once its sink is written anew" in str(raised.value)


def test_rows_that_no_document_names_or_needs_are_swept(publications: Path) -> None:
    """A kill before the document is written leaves rows without one, one after the last note rows of the past.

    One between the document and the record leaves rows that are never released: run-5.
    """

    def rows(folder: Path, *tables: str) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        found = [folder / f"{table}.parquet" for table in tables]
        for each in found:
            each.write_bytes(b"rows")
        return found

    def folder(run: str) -> Path:
        return sink_changes.KEEPING.folder_of(publications, run, "publish", 1)

    def save(run: str, released_ms: int | None, done_ms: dict[str, int]) -> None:
        told = TableRows(rows=1, columns=(), identity=(), as_of_batch=0)
        found = KeptSinks(
            run_id=run,
            action="publish",
            round=1,
            tables={"users": told, "other": told},
            corrected={"search-users": "users"},
            stale={},
            made_ms=1,
            released_ms=released_ms,
            done_ms=done_ms,
        )
        sink_changes.KEEPING.save(folder(run), found)

    orphan = rows(folder("run-0"), "users")
    for run, released, done in (
        ("run-1", None, {}), ("run-2", 2, {}), ("run-3", 3, {"search-users": 3}), ("run-5", None, {})
    ):  # fmt: skip
        save(run, released, done)
    begun, waits, over = (rows(folder(run), "users", "other") for run in ("run-1", "run-2", "run-3"))
    damaged = rows(folder("run-4"), "users")
    (folder("run-4") / "sinks.json").write_bytes(b"{")

    left = rows(folder("run-5"), "users", "other")

    gone = sink_changes.KEEPING.sweep(publications, ["run-1"])

    assert sorted(gone) == sorted([*orphan, begun[1], waits[1], *over, *left])
    assert not any(folder(run).exists() for run in ("run-0", "run-5")) and not any(each.exists() for each in gone)
    assert begun[0].exists() and waits[0].exists() and damaged[0].exists()
    assert sink_changes.KEEPING.sweep(publications, ["run-1"]) == []


def test_corrections_that_are_sent_need_no_rows(publications: Path) -> None:
    for run, sent_ms in (("run-1", None), ("run-2", 2)):
        kept = KeptCorrections(
            run_id=run,
            action="publish",
            round=1,
            topic="told",
            tables={"users": TableCorrections(rows=1, columns=(), identity=())},
            made_ms=1,
            released_ms=1,
            sent_ms=sent_ms,
        )
        folder = corrections.KEEPING.place_of(publications, kept)
        corrections.KEEPING.save(folder, kept)
        (folder / "users.parquet").write_bytes(b"rows")

    assert [each.parent.parent.name for each in corrections.KEEPING.sweep(publications, [])] == ["run-2"]


def test_a_publication_sweeps_what_a_killed_one_has_left(publications: Path, live: Stream, staging: Stream) -> None:
    left = [publications / what / "run-0" / "publish-1" / "users.parquet" for what in ("sinks", "corrections")]
    for each in left:
        each.parent.mkdir(parents=True)
        each.write_bytes(b"rows")

    publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)

    assert not any(each.exists() for each in left)
    there = sink_changes.KEEPING.folder_of(publications, "run-1", "publish", 1)
    assert {each.name for each in there.iterdir()} >= {"sinks.json", "users.parquet"}
    left[0].parent.mkdir(parents=True)
    left[0].write_bytes(b"rows")
    publication.rollback(live.committer, publications, "run-1")
    assert not left[0].exists()


@pytest.mark.parametrize("action", ["publish", "rollback"])
def test_what_was_killed_before_its_record_leaves_nothing_and_is_made_again(
    publications: Path, live: Stream, staging: Stream, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    told = CorrectionsRequest(topic="told", tables=("users", "counts"))
    wanted = replace(request(staging, days=(0, 2)), corrections=told)
    acts: dict[str, Callable[[], Publication]] = {
        "publish": lambda: publication.publish(live.committer, staging.root, wanted, publications),
        "rollback": lambda: publication.rollback(live.committer, publications, "run-1"),
    }
    if action == "rollback":
        acts["publish"]()
    places = [each.folder_of(publications, "run-1", action, 1) for each in (corrections.KEEPING, sink_changes.KEEPING)]  # type: ignore[arg-type]
    before = seen(live)
    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr(PublicationRecord, "save", crashing)
        acts[action]()
    live.restart()
    assert all({"users.parquet", "counts.parquet"} <= {file.name for file in each.iterdir()} for each in places)
    released = {each for each in publications.rglob("*.parquet") if each.parent not in places}

    publication.sweep(publications)

    assert not any(each.exists() for each in places)
    assert {*publications.rglob("*.parquet")} == released, "those that are still to be carried out stay"
    acts[action]()
    assert kept(publications).action == action and corrections.unsent(publications)[-1].action == action
    assert_led(before, seen(live), publications, kept(publications))


@pytest.mark.parametrize("action", ["publish", "rollback"])
def test_what_was_killed_behind_its_record_keeps_its_rows(
    publications: Path, live: Stream, staging: Stream, action: str
) -> None:
    """Those of tables that show it already cannot be made again."""
    if action == "rollback":
        publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)
    crash_at(f"{action}.after_commit:users")
    with pytest.raises(Crash):
        if action == "rollback":
            publication.rollback(live.committer, publications, "run-1")
        publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)
    there = {*publications.rglob("*.parquet")}

    publication.sweep(publications)

    assert there and {*publications.rglob("*.parquet")} == there
