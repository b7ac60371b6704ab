"""What has failed, how often and with which records, read from a table of dead letters."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from deltaworks.kernel.records import DeadLetter
from deltaworks.lakehouse import dead_letters
from deltaworks.lakehouse.committer import TableCommitter
from deltaworks.lakehouse.dead_letters import Wanted
from deltaworks.lakehouse.task_tables import TaskTables
from deltaworks.topology.records import Coordinates

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
ANY = Wanted()
Letter = tuple[int, int, int, bytes | None, str, str, str]
"""Minute, partition, offset, key, operator, class of the error, its message."""
LETTERS: list[Letter] = [
    (0, 0, 10, b"a", "parse", "ValueError", "no number"),
    (1, 0, 11, b"b", "parse", "ValueError", "no Number either"),
    (2, 1, 5, None, "parse", "ValueError", "100% wrong"),
    (2, 1, 5, None, "join", "KeyError", "'x'"),
    (9, 0, 12, b"a", "join", "shop.errors.Missing", "gone\nfor ever"),
]
LATER: list[Letter] = [(10, 0, 99, b"late", "parse", "ValueError", "not shown yet")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two batches of them; the second one is not part of what readers see."""
    committer = TableCommitter(tmp_path, "shop", "live", (), "letters")
    committer.open(1)
    task = TaskTables(tmp_path, (), "letters", stage=0, task=0)
    for batch, letters in enumerate((LETTERS, LATER)):
        task.begin(batch)
        task.step(batch)
        for minute, partition, offset, key, operator, error, message in letters:
            task.dead_letter(
                DeadLetter(
                    key, b"\xff{", (("h", b"1"), ("h", None)), NOON_MS + minute * 60_000,
                    Coordinates("raw", partition, offset), error, message, operator, f"at {operator}",
                )
            )  # fmt: skip
        committer.commit(batch, task.finish())
        if batch == 0:
            committer.publish_cut()
    committer.close()
    return tmp_path


def test_failures_are_counted_per_operator_and_class(root: Path) -> None:
    found = dead_letters.failures(root, "letters", ANY)

    assert [(each.operator, each.error_class, each.count) for each in found] == [
        ("parse", "ValueError", 3),
        ("join", "KeyError", 1),
        ("join", "shop.errors.Missing", 1),
    ]
    assert (found[0].first, found[0].last) == (NOON, NOON + timedelta(minutes=2))
    assert (found[0].example, found[0].message) == (Coordinates("raw", 1, 5), "100% wrong")


@pytest.mark.parametrize(
    ("wanted", "offsets"),
    [
        (ANY, [12, 5, 5, 11, 10]),
        (Wanted(operator="join"), [12, 5]),
        (Wanted(error="NUMBER"), [11, 10]),
        (Wanted(error="keyerror"), [5]),
        (Wanted(error="%"), [5]),
        (Wanted(error="_"), []),
        (Wanted(key=b"a"), [12, 10]),
        (Wanted(key=b""), []),
        (Wanted(since=NOON + timedelta(minutes=2)), [12, 5, 5]),
        (Wanted(until=NOON + timedelta(minutes=2)), [11, 10]),
        (Wanted(operator="parse", key=b"a", since=NOON, until=NOON + timedelta(hours=1)), [10]),
        (Wanted(operator="' OR true --"), []),
    ],
)
def test_the_newest_ones_that_are_wanted(root: Path, wanted: Wanted, offsets: list[int]) -> None:
    found = dead_letters.newest(root, "letters", wanted, 10)

    assert [each.record.offset for each in found] == offsets
    assert sum(each.count for each in dead_letters.failures(root, "letters", wanted)) == len(offsets)
    assert dead_letters.newest(root, "letters", wanted, 1) == found[:1]
    assert dead_letters.newest(root, "letters", wanted, 10, records=False) == [
        replace(each, key=None, value=None, headers=(), stacktrace="") for each in found
    ]


def test_a_record_with_everything_that_failed_on_it(root: Path) -> None:
    join, parse = dead_letters.of_record(root, "letters", Coordinates("raw", 1, 5))

    assert (join.operator, parse.operator) == ("join", "parse")
    assert (join.key, join.value, join.headers) == (None, b"\xff{", (("h", b"1"), ("h", None)))
    assert (join.timestamp, join.error_class, join.stacktrace) == (NOON + timedelta(minutes=2), "KeyError", "at join")
    assert dead_letters.of_record(root, "letters", Coordinates("raw", 0, 5)) == []


def test_a_table_that_does_not_exist_yet_has_none(tmp_path: Path) -> None:
    assert dead_letters.failures(tmp_path, "letters", ANY) == []
    assert dead_letters.newest(tmp_path, "letters", ANY, 10) == []
