"""Names of files, written and read again."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from deltaworks.errors import TableError
from deltaworks.lakehouse import layout
from deltaworks.lakehouse.layout import PageName

DAY, TAG = "2026-01-02", "0a1b2c3d"
LARGEST = (9999, (1 << 64) - 1, (1 << 32) - 1, (1 << 64) - 1, (1 << 32) - 1)


@pytest.mark.parametrize("fields", [(0, 0, 0, 0, 0), (7, 1_767_312_000_000, 0xFEDC, 1_767_315_600_000, 300), LARGEST])
def test_the_path_of_a_page_tells_what_it_was_made_of(fields: tuple[int, int, int, int, int]) -> None:
    path = layout.page_path(DAY, *fields, 12, TAG)
    page = PageName.of(path)
    assert astuple(page) == (path, *fields)
    assert page.position == fields[1:3]
    assert path.startswith(layout.page_position(DAY, *fields[:3]))
    assert layout.is_page(path)
    assert layout.page_day(path) == DAY
    assert layout.page_closes(path) == layout.closes_text(fields[3])
    assert layout.partition_of(path) == {"window_date": DAY}
    assert layout.batch_of(path) == (12, TAG)
    assert layout.task_of(path) is None


@pytest.mark.parametrize("kind", ["part", "merged", "final", "snapshot", "published", "remaining"])
@pytest.mark.parametrize("folder", ["", f"window_date={DAY}/"])
def test_the_path_of_another_file_tells_its_batch_and_query(kind: str, folder: str) -> None:
    path = folder + layout.part_name(kind, 12, 7, TAG)
    assert layout.batch_of(path) == (12, TAG)
    assert layout.task_of(path) == (7 if kind == "final" else None)
    assert layout.is_retained(path) == (kind in ("published", "remaining"))
    assert not layout.is_page(path)


@pytest.mark.parametrize(
    "path", ["", "part-00000-c000.snappy.parquet", f"window_date={DAY}/part-00000-c000.snappy.parquet"]
)
def test_a_file_of_somebody_else_tells_nothing(path: str) -> None:
    assert layout.batch_of(path) is None
    assert layout.task_of(path) is None
    assert not layout.is_page(path)
    with pytest.raises(TableError, match="not named as a page"):
        PageName.of(path)


def test_paths_of_pages_sort_as_their_positions() -> None:
    positions = [(0, 0), (0, 9), (0, 10), (15, 3), (16, 2), (255, 0), (256, 0)]
    paths = [layout.page_path(DAY, 3, *position, 500, 1, 12, TAG) for position in positions]
    assert sorted(paths) == paths


def test_the_times_of_pages_compare_as_numbers() -> None:
    times = [0, 9, 10, 15, 16, 255, 256, (1 << 63) - 1]
    texts = [layout.page_closes(layout.page_path(DAY, 0, 0, 0, time_ms, 1, 12, TAG)) for time_ms in times]
    assert sorted(texts) == texts == [layout.closes_text(time_ms) for time_ms in times]


def test_an_application_id_tells_its_step_and_query() -> None:
    app = layout.app_id("orders", "totals", layout.closed_step(7), "query")
    assert (layout.step_of(app), layout.query_of(app)) == ("closed-t0007", "query")
    assert layout.closed_task(layout.step_of(app)) == 7
    assert layout.closed_task(layout.ROWS) is None
    assert layout.step_of("somebody/else") == layout.query_of("somebody/else") == ""
