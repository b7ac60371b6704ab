"""What a publication and its rollback change is kept row by row, and released once all tables show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from deltaworks.lakehouse.publish import corrected_rows, corrections, publication
from deltaworks.lakehouse.publish.corrected_rows import Change
from deltaworks.lakehouse.publish.corrections import CorrectionsRequest, KeptCorrections
from deltaworks.lakehouse.publish.publication import Publication, PublicationRequest
from tests.unit.lakehouse.crashes import Crash, crash_at
from tests.unit.lakehouse.publication_lake import Stream, contents, request_for

TOLD = ("orders", "users", "counts")
WANTED = CorrectionsRequest(topic="shop-corrections", tables=TOLD)
Row = tuple[tuple[str, Any], ...]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stream, Stream]:
    live = Stream(tmp_path_factory.mktemp("live") / "tables")
    live.run(9)
    live.committer.settle()
    live.committer.refresh_snapshots()
    return live, live.replay(tmp_path_factory.mktemp("staging") / "tables", "run-1", 1)


@pytest.fixture
def live(tmp_path: Path, base: tuple[Stream, Stream]) -> Stream:
    return base[0].copy(tmp_path / "tables")


@pytest.fixture
def staging(base: tuple[Stream, Stream]) -> Stream:
    return base[1]


@pytest.fixture
def publications(tmp_path: Path) -> Path:
    return tmp_path / "publications"


def request(staging: Stream, **options: Any) -> PublicationRequest:
    return replace(request_for(staging, **options), corrections=WANTED)


def kept(publications: Path) -> KeptCorrections:
    """The last that was released."""
    return corrections.KEEPING.of_run(publications, "run-1")[-1]


def changes(publications: Path, told: KeptCorrections) -> list[Change]:
    return [row for number in range(told.transactions) for row in corrected_rows.changes_of(publications, told, number)]


def rows(root: Path, table: str) -> Counter[Row]:
    """As readers see them, in the form of `sides`."""
    return Counter(
        (("key", row[1]), ("value", row[2]), ("at", row[0]))
        if table == "orders"
        else (("key", row[0]), ("value", row[-1]), ("at", row[1] if table == "counts" else None))
        for row in contents(root)[table]
    )


def sides(told: list[Change], table: str) -> tuple[Counter[Row], Counter[Row]]:
    """The rows of a table that the changes take away, and those that they bring."""
    found: tuple[Counter[Row], Counter[Row]] = Counter(), Counter()
    for change in told:
        for side, row in zip(found, (change.before, change.after), strict=True):
            if change.table == table and row is not None:
                time = row["timestamp"] if table == "orders" else row.get("window_start")
                at = None if time is None else round(time.timestamp() * 1000)
                side[("key", row["key"]), ("value", row["value"]), ("at", at)] += 1
    return found


def assert_led(before: dict[str, Counter[Row]], after: dict[str, Counter[Row]], told: list[Change]) -> None:
    """The changes, applied to what readers saw before, give what they see after."""
    for table in TOLD:
        gone, new = sides(told, table)
        assert before[table] - after[table] == gone - new, table
        assert after[table] - before[table] == new - gone, table


def seen(live: Stream) -> dict[str, Counter[Row]]:
    live.committer.refresh_snapshots(force=True)
    return {table: rows(live.root, table) for table in TOLD}


@pytest.mark.parametrize("days", [None, (0, 1)], ids=["all", "a day"])
def test_the_changes_lead_from_the_rows_before_to_those_after_and_back(
    publications: Path, live: Stream, staging: Stream, days: tuple[int, int] | None
) -> None:
    before = seen(live)
    tables = TOLD if days is None else ("orders", "counts")
    publication.publish(
        live.committer, staging.root, request(staging, days=days or (0, 2), tables=tables), publications
    )
    after = seen(live)

    told = kept(publications)
    published = changes(publications, told)
    assert (told.action, told.topic, told.count) == ("publish", "shop-corrections", len(published))
    assert set(told.tables) == set(tables) and all(told.tables[table].rows for table in tables)
    assert_led(before, after, published)
    assert all(change.before != change.after for change in published), "rows that stay are not told"

    publication.rollback(live.committer, publications, "run-1")
    assert seen(live) == before
    told = kept(publications)
    assert told.action == "rollback"
    assert_led(after, before, changes(publications, told))


def test_the_key_says_which_row_it_is(publications: Path, live: Stream, staging: Stream) -> None:
    publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)
    found = {change.table: list(change.key) for change in changes(publications, kept(publications))}
    assert found == {
        "orders": ["key", "source_topic", "source_partition", "source_offset"],
        "users": ["key"],
        "counts": ["key", "window_start", "window_end"],
    }


def test_a_key_that_the_stream_has_updated_since_is_not_told_again(
    publications: Path, live: Stream, staging: Stream
) -> None:
    live.run(2)
    before = seen(live)
    publication.publish(live.committer, staging.root, request(staging, tables=("users",)), publications)
    assert_led({**before}, seen(live), changes(publications, kept(publications)))

    live.run(2)
    before = seen(live)
    publication.rollback(live.committer, publications, "run-1")
    assert_led(before, seen(live), changes(publications, kept(publications)))


POINTS = ["after_record", "after_commit:users", "after_commits"]


@pytest.mark.parametrize("point", POINTS)
def test_they_are_released_once_all_tables_show_it_whatever_crashed(
    publications: Path, live: Stream, staging: Stream, point: str
) -> None:
    before = seen(live)
    wanted = request(staging, days=(0, 2))
    acts: dict[str, Callable[[], Publication]] = {
        "publish": lambda: publication.publish(live.committer, staging.root, wanted, publications),
        "rollback": lambda: publication.rollback(live.committer, publications, "run-1"),
    }
    for action, act in acts.items():
        waiting = len(corrections.unsent(publications))
        crash_at(f"{action}.{point}")
        with pytest.raises(Crash):
            act()
        assert len(corrections.unsent(publications)) == waiting
        live.restart()
        act()
        told = kept(publications)
        assert told.action == action
        after = seen(live)
        assert_led(before, after, changes(publications, told))
        act()
        assert kept(publications) == told, "asked again, it stays"
        before = after


def test_a_half_publication_that_is_taken_back_tells_nothing(publications: Path, live: Stream, staging: Stream) -> None:
    crash_at("publish.after_commit:users")
    with pytest.raises(Crash):
        publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)
    live.restart()

    publication.rollback(live.committer, publications, "run-1")
    assert corrections.unsent(publications) == []

    publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)
    assert [told.name for told in corrections.unsent(publications)] == ["run-1/publish-2"]


def test_released_corrections_are_never_made_anew(publications: Path, live: Stream, staging: Stream) -> None:
    """Killed between the release and the record: somebody may have sent them by then."""
    publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)
    record = publication._read(publications, "run-1")
    publication.rollback(live.committer, publications, "run-1")
    assert record is not None
    told = kept(publications)
    replace(record, state="rolling back").save(publications)

    publication.rollback(live.committer, publications, "run-1")
    assert kept(publications) == told


def test_what_is_sent_needs_its_rows_no_more(publications: Path, live: Stream, staging: Stream) -> None:
    publication.publish(live.committer, staging.root, request(staging, days=(0, 2)), publications)
    corrections.note_sent(publications, kept(publications))
    assert corrections.unsent(publications) == []
    assert not list(publications.rglob("*.parquet"))
    assert kept(publications).count > 0


def test_without_corrections_nothing_is_kept(publications: Path, live: Stream, staging: Stream) -> None:
    publication.publish(live.committer, staging.root, request_for(staging, days=(0, 2)), publications)
    publication.rollback(live.committer, publications, "run-1")
    assert not (publications / "corrections").exists()


def test_cells_become_what_json_has() -> None:
    nested = pa.struct([("share", pa.float64()), ("by", pa.map_(pa.string(), pa.list_(pa.float64())))])
    cells = [
        None,
        {"share": float("nan"), "by": [("a", [1.5, None, float("inf")])]},
        {"share": None, "by": None},
    ]
    assert corrected_rows._cells(pa.array(cells, nested)) == [
        None,
        {"share": "NaN", "by": {"a": [1.5, None, "Infinity"]}},
        {"share": None, "by": None},
    ]
    assert corrected_rows._cells(pa.array([1, None])) == [1, None]
