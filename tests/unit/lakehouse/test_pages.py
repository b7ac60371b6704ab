"""Open windows in pages: a batch rewrites what it touches, and nothing else."""

from __future__ import annotations

import datetime as dt
import random
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltaworks.errors import TableError
from deltaworks.lakehouse import layout
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.lakehouse.writes import TableWrite
from deltaworks.topology.columns import LAST_MS
from deltaworks.topology.nodes.sinks import DeltaSink, TableKind
from tests.unit.lakehouse.lake import opened, query

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DAY_ONE_MS = 20_000 * DAY_MS

Row = tuple[object, int, int, object]
"""Key, start, end, value."""


class Windows:
    """One windowed table with one task."""

    def __init__(self, root: Path, *, key: Any = str, value: Any = int, page_rows: int = 8) -> None:
        sink = DeltaSink(name="n", table="t", kind=TableKind.WINDOWED, key=key, value=value)
        self.root, self._page_rows = root, page_rows
        self.sink = sink
        self.committer = TableCommitter(root, "app", "q", [sink])
        self.committer.open(1)
        self.tables = TaskTables(root, [sink], None, stage=0, task=0, page_rows=page_rows)
        self.batch_id = -1

    def batch(self, *rows: Row, close: int | None = None) -> TableWrite | None:
        """Writes and commits a batch; what its task wrote."""
        self.batch_id += 1
        self.tables.begin(self.batch_id)
        for key, start, end, value in rows:
            self.tables.rows("t").add((key, value, start, start, end))
        if close is not None:
            self.tables.rows("t").close_windows(close)
        writes = self.tables.finish()
        self.committer.commit(self.batch_id, writes)
        return writes[0] if writes else None

    def rows(self, columns: str = "key, epoch_ms(window_start), epoch_ms(window_end), value, is_final") -> list[Any]:
        with opened(self.root) as connection:
            return sorted(query(connection, f"select {columns} from t"))

    def pages(self) -> list[str]:
        table = self.committer.tables["t"]
        assert sorted(filter(layout.is_page, table.log.files)) == (
            table.pages[0].pages.paths if 0 in table.pages else []
        )
        return [path for path in table.log.files if layout.is_page(path)]


def hour(number: int) -> tuple[int, int]:
    start = DAY_ONE_MS + number * HOUR_MS
    return start, start + HOUR_MS


def many(keys: int, number: int, value: int = 1) -> list[Row]:
    return [(f"k{key:05d}", *hour(number), value) for key in range(keys)]


def test_an_update_replaces_the_row(tmp_path: Path) -> None:
    windows = Windows(tmp_path)

    windows.batch(("a", *hour(0), 1), ("b", *hour(0), 1))
    windows.batch(("a", *hour(0), 2))

    assert windows.rows() == [("a", *hour(0), 2, False), ("b", *hour(0), 1, False)]


def test_the_last_of_several_updates_in_a_batch_counts(tmp_path: Path) -> None:
    windows = Windows(tmp_path)

    windows.batch(("a", *hour(0), 1), ("b", *hour(0), 1), ("a", *hour(0), 2), ("b", *hour(0), None))

    assert windows.rows() == [("a", *hour(0), 2, False)]


def test_null_removes_the_row_and_an_empty_page_goes_away(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.batch(("a", *hour(0), 1))

    windows.batch(("a", *hour(0), None))

    assert windows.rows() == []
    assert windows.pages() == []


def test_removing_a_row_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    windows = Windows(tmp_path)

    windows.batch(("a", *hour(0), None))

    assert windows.rows() == []


def test_sessions_of_one_key_and_start_are_told_apart_by_their_end(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    start = DAY_ONE_MS
    windows.batch(("a", start, start, 1))

    windows.batch(("a", start, start, None), ("a", start, start + 5, 2))

    assert windows.rows() == [("a", start, start + 5, 2, False)]


def test_windows_that_end_before_the_bound_become_final_and_others_do_not(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.batch(*[("a", *hour(number), number) for number in range(4)])

    windows.batch(close=hour(1)[1])

    assert [(row[3], row[4]) for row in windows.rows()] == [(0, True), (1, False), (2, False), (3, False)]


def test_a_page_whose_windows_are_all_closed_becomes_a_final_file(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.batch(*many(30, 0))

    write = windows.batch(close=hour(1)[1])

    assert write is not None
    assert [Path(new.path).name.split("-")[0] for new in write.added] == ["final"]
    assert windows.pages() == []
    assert all(row[4] for row in windows.rows())


def test_a_window_that_opens_and_closes_in_one_batch_is_final_at_once(tmp_path: Path) -> None:
    windows = Windows(tmp_path)

    windows.batch(("a", *hour(0), 1), close=hour(5)[1])

    assert windows.rows() == [("a", *hour(0), 1, True)]
    assert windows.pages() == []


@pytest.mark.parametrize("value", [2, None])
def test_a_change_to_a_final_window_is_an_error(tmp_path: Path, value: object) -> None:
    windows = Windows(tmp_path)
    windows.batch(("a", *hour(0), 1), ("a", *hour(3), 1), close=hour(1)[1])

    with pytest.raises(TableError, match=r"changes a window of table 't' that was final already: key \['a'\]"):
        windows.batch(("a", *hour(0), value))


def test_a_change_to_a_final_window_is_an_error_after_a_restart(tmp_path: Path) -> None:
    first = Windows(tmp_path)
    first.batch(("a", *hour(0), 1), close=hour(1)[1])
    windows = Windows(tmp_path)
    windows.batch_id = first.batch_id

    with pytest.raises(TableError, match="that was final already"):
        windows.batch(("a", *hour(0), 2))


def test_a_bound_that_closes_nothing_writes_nothing(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.batch(("a", *hour(5), 1), close=hour(1)[0])

    assert windows.batch(close=hour(2)[0]) is None


def test_pages_have_a_bounded_size(tmp_path: Path) -> None:
    windows = Windows(tmp_path, page_rows=8)

    windows.batch(*many(100, 0))
    windows.batch(*many(100, 1))
    windows.batch(*[(f"x{number}", *hour(0), 1) for number in range(50)])

    assert max(layout.PageName.of(path).rows for path in windows.pages()) <= 8
    assert len(windows.rows()) == 250


def test_new_windows_leave_full_pages_behind(tmp_path: Path) -> None:
    windows = Windows(tmp_path, page_rows=100)
    for number in range(20):
        for part in range(5):
            windows.batch(*many(50, number)[part * 10 : part * 10 + 10])

    rows = sorted(layout.PageName.of(path).rows for path in windows.pages())

    assert sum(rows) == 1000
    assert len(rows) <= 16


def test_tiny_neighbours_are_joined_when_they_are_touched(tmp_path: Path) -> None:
    windows = Windows(tmp_path, page_rows=8)
    windows.batch(*many(60, 0))
    before = len(windows.pages())

    windows.batch(*[(f"k{key:05d}", *hour(0), None) for key in range(60) if key % 10])

    assert len(windows.rows()) == 6
    assert before >= 8
    assert len(windows.pages()) <= 3


def test_a_batch_rewrites_only_the_pages_it_touches(tmp_path: Path) -> None:
    windows = Windows(tmp_path, page_rows=100)
    for number in range(20):
        windows.batch(*many(300, number))
    before = set(windows.pages())

    write = windows.batch(("k00007", *hour(3), 2), ("k00123", *hour(17), 2))

    assert write is not None
    assert len(write.removed) == 2
    assert sum(new.rows for new in write.added) <= 200
    assert before - set(windows.pages()) == set(write.removed)


def test_a_window_before_all_others_of_its_day_finds_a_page(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.batch(("a", *hour(5), 1))

    windows.batch(("a", *hour(1), 2))
    windows.batch(("a", *hour(1), 3), ("a", *hour(5), 4))

    assert [row[3] for row in windows.rows()] == [3, 4]
    assert len(windows.pages()) == 1


def test_a_driver_that_wakes_up_between_commit_and_pages_tells_tasks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = Windows(tmp_path)
    windows.batch(("a", *hour(0), 1), ("b", *hour(0), 1))
    late, asleep = windows.committer, list[tuple[Any, ...]]()
    monkeypatch.setattr(late, "_change_pages", lambda *change: asleep.append(change))
    windows.batch(("a", *hour(1), 2))
    monkeypatch.undo()

    windows.committer = TableCommitter(tmp_path, "app", "q", [windows.sink])
    windows.committer.open(2)
    windows.batch(("a", *hour(2), 3))
    before = windows.rows()
    with suppress(FileNotFoundError):
        late._change_pages(*asleep[0])
    windows.batch(("a", *hour(0), 4))
    assert windows.rows() == sorted(("a", *hour(0), 4, False) if row[:3] == ("a", *hour(0)) else row for row in before)
    assert windows.pages()


def test_days_have_pages_of_their_own(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    windows.batch(("a", *hour(23), 1), ("a", *hour(24), 2), ("a", *hour(49), 3))

    windows.batch(("a", *hour(24), 4), ("b", *hour(0), 5))

    dates = [row[0] for row in windows.rows("window_date")]
    assert dates == [dt.date(2024, 10, 4), dt.date(2024, 10, 4), dt.date(2024, 10, 5), dt.date(2024, 10, 6)]
    assert len(windows.pages()) == 3


def test_a_session_across_midnight_belongs_to_the_day_it_starts(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    start = DAY_ONE_MS + DAY_MS - 1000
    windows.batch(("a", start, start, 1))

    windows.batch(("a", start, start, None), ("a", start, start + 5000, 2))

    assert windows.rows("window_date, value") == [(dt.date(2024, 10, 4), 2)]


class Place(msgspec.Struct, frozen=True):
    city: str | None
    zone: int
    price: Decimal
    day: dt.date


def test_keys_may_have_several_fields_of_any_scalar_type(tmp_path: Path) -> None:
    windows = Windows(tmp_path, key=Place)
    places = [Place(city, zone, Decimal("1.50"), dt.date(2026, 1, 1)) for city in ("a", "b", None) for zone in range(9)]
    windows.batch(*[(place, *hour(0), 1) for place in places])

    windows.batch(*[(place, *hour(0), 2) for place in places[::2]], (places[1], *hour(0), None))

    rows = windows.rows("coalesce(city, ''), zone, price, day, value")
    assert len(rows) == len(places) - 1
    assert sum(row[4] for row in rows) == 2 * len(places[::2]) + len(places[1::2]) - 1


def test_a_key_that_is_no_scalar_is_kept_as_json(tmp_path: Path) -> None:
    windows = Windows(tmp_path, key=tuple[str, ...])
    windows.batch((("a", "b"), *hour(0), 1), (("a",), *hour(0), 1))

    windows.batch((("a", "b"), *hour(0), 2))

    assert windows.rows("key, value") == [('["a","b"]', 2), ('["a"]', 1)]


def test_a_window_before_1970_is_an_error_that_says_so(tmp_path: Path) -> None:
    windows = Windows(tmp_path)

    with pytest.raises(TableError, match="A window starts at -1 ms"):
        windows.batch(("a", -1, 1, 1))


def test_an_end_that_no_table_can_hold_is_shown_as_the_last_moment(tmp_path: Path) -> None:
    windows = Windows(tmp_path)
    forever = (1 << 63) - 1
    windows.batch(("a", DAY_ONE_MS, forever, 1))

    windows.batch(("a", DAY_ONE_MS, forever, 2))

    assert windows.rows() == [("a", DAY_ONE_MS, LAST_MS, 2, False)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("page_rows", [2, 16])
def test_random_batches_give_what_a_dictionary_gives(tmp_path: Path, seed: int, page_rows: int) -> None:
    choose = random.Random(seed)
    windows = Windows(tmp_path, page_rows=page_rows)
    expected: dict[tuple[str, int, int], int] = {}
    now = DAY_ONE_MS
    bound = -1
    for batch_id in range(25):
        now += choose.randrange(4 * HOUR_MS)
        rows: list[Row] = []
        for number in range(choose.randrange(25)):
            start = (now - choose.randrange(40 * HOUR_MS)) // HOUR_MS * HOUR_MS
            window = (f"k{choose.randrange(8)}", start, start + choose.choice([1, 2]) * HOUR_MS)
            if start >= 0 and window[2] >= bound:
                gone = choose.random() < 0.2
                rows.append((*window, None if gone else batch_id * 100 + number))
                expected.pop(window, None)
                if not gone:
                    expected[window] = batch_id * 100 + number
        bound = max(bound, now - choose.randrange(20, 60) * HOUR_MS)
        windows.batch(*rows, close=bound)
        windows.pages()

    assert windows.rows() == sorted((*key, value, key[2] < bound) for key, value in expected.items())


def test_a_part_of_a_page_whose_windows_are_all_closed_is_no_page(tmp_path: Path) -> None:
    windows = Windows(tmp_path)

    windows.batch(*many(12, 0), *many(6, 5), close=hour(3)[0])

    table = windows.committer.tables["t"]
    assert all(layout.page_closes(path) == layout.closes_text(hour(5)[1]) for path in windows.pages())
    windows.batch(close=hour(9)[0])
    assert not windows.pages()
    assert sum(entry.rows for entry in table.log.files.values()) == 18
    assert all(final for *_, final in windows.rows())
