"""What is said of a replication slot: by the traces of tasks, and by the database."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaworks.connect import slots
from deltaworks.connect.answers import Running, Status, Task
from deltaworks.connect.debezium import MARIADB, POSTGRES
from deltaworks.connect.slots import WAY_OUT, Slot, Trouble, assess, said, slot_of
from deltaworks.connect.states import lost, why_failed

GONE = "org.apache.kafka.connect.errors.ConnectException: An exception occurred in the producer.\nCaused by: "
PAGE = "docs/how-to/change-data-capture.md#a-lost-slot"
OF_13 = """\
org.postgresql.util.PSQLException: ERROR: can no longer get changes from replication slot "shop_cdc"
  Detail: This slot has been invalidated because it exceeded the maximum reserved size."""
OF_18 = 'org.postgresql.util.PSQLException: ERROR: can no longer access replication slot "shop_cdc"'
MISSING = 'org.postgresql.util.PSQLException: ERROR: replication slot "shop_cdc" does not exist'
PASSED = "io.debezium.DebeziumException: Cannot seek to the last known offset '0/19' on replication slot 'shop_cdc'. No"
AT_START = """\
io.debezium.DebeziumException: The connector is trying to read change stream starting at PostgresOffsetContext [
sourceInfo=source_info[server='shop'lsn=LSN{0/19}]], but this is no longer available on the server. Reconfigure the \
connector to use a snapshot mode when needed."""


@pytest.mark.parametrize("trace", [OF_13, OF_18, MISSING, PASSED])
def test_a_slot_that_postgresql_has_given_up_is_named_with_the_way_out(trace: str) -> None:
    found = said(GONE + trace + "\n\tat io.debezium.Task.start(Task.java:1)")

    assert found is not None and found.danger == "lost"
    assert found.told == (
        f"the database no longer has what it has not read, its replication slot 'shop_cdc' is lost: {WAY_OUT}"
    )
    assert found.told.endswith(PAGE) and "\n" not in found.told


@pytest.mark.parametrize(
    "trace",
    [
        "ERROR: requested WAL segment 000000010000000000000019 has already been removed",
        'Detail: This replication slot has been invalidated due to "idle_timeout".',
        "The offset to start reading from has been removed from the database write-ahead log. Create a new snapshot",
        AT_START,
    ],
)
def test_a_log_that_is_gone_is_told_without_a_name_if_none_is_said(trace: str) -> None:
    assert said(trace) == Trouble("lost", f"the database no longer has what it has not read: {WAY_OUT}")


@pytest.mark.parametrize(
    "trace",
    [
        None,
        "",
        "org.postgresql.util.PSQLException: Connection refused",
        'ERROR: replication slot "shop_cdc" is active for PID 17',
        "io.debezium.DebeziumException: Creation of replication slot failed",
        "Unable to obtain valid replication slot. Make sure there are no long-running transactions running in parallel",
    ],
)
def test_what_may_pass_is_not_taken_for_a_lost_slot(trace: str | None) -> None:
    assert said(trace) is None


def test_only_parts_that_have_failed_count() -> None:
    trace = 'ERROR: can no longer access replication slot "shop_cdc"'
    ran = Status("c", Running("RUNNING"), [Task(0, "RUNNING", trace=trace)])
    failed = Status("c", Running("RUNNING"), [Task(0, "RUNNING"), Task(1, "FAILED", trace=trace)])

    assert lost(ran) is None
    assert (found := lost(failed)) is not None and why_failed(failed) == found.told


def test_only_connectors_of_postgresql_have_a_slot() -> None:
    assert slot_of({"connector.class": POSTGRES, "slot.name": "mine"}) == "mine"
    assert slot_of({"connector.class": POSTGRES}) == "debezium"
    assert slot_of({"connector.class": MARIADB, "slot.name": "mine"}) is None
    assert slot_of({"connector.class": POSTGRES, "snapshot.mode": "initial_only"}) is None


def test_a_slot_that_has_what_is_needed_is_no_trouble() -> None:
    for status in ("reserved", "extended", None):
        assert assess(Slot(name="s", wal_status=status), has_offsets=True) is None
    assert assess(Slot(name="s", known=False, exists=False), has_offsets=True) is None


def test_a_slot_in_danger_is_told_before_it_is_lost() -> None:
    found = assess(Slot(name="shop_cdc", wal_status="unreserved"), has_offsets=True)

    assert found is not None and found.danger == "endangered"
    assert "'shop_cdc'" in found.told and "lost at the next checkpoint" in found.told and found.told.endswith(PAGE)


def test_a_lost_slot_is_told_with_the_reason_of_the_database() -> None:
    for slot, why in (
        (Slot(name="s", wal_status="lost"), ""),
        (Slot(name="s", wal_status="lost", why="wal_removed"), " (wal_removed)"),
        (Slot(name="s", wal_status="reserved", why="idle_timeout"), " (idle_timeout)"),
    ):
        assert assess(slot, has_offsets=False) == Trouble(
            "lost", f"its replication slot 's' is lost{why}: {slots.WAY_OUT}"
        )


def test_a_slot_that_is_gone_matters_only_to_who_has_read_something() -> None:
    gone = Slot(name="s", exists=False)

    assert assess(gone, has_offsets=False) is None
    found = assess(gone, has_offsets=True)
    assert found is not None and found.danger == "lost" and "is gone from the database" in found.told


def test_the_page_has_the_section() -> None:
    page, _, section = PAGE.partition("#")
    headings = [
        line.lstrip("# ").lower().replace(" ", "-")
        for line in (Path(__file__).parents[3] / page).read_text().splitlines()
        if line.startswith("#")
    ]
    assert section in headings
    assert WAY_OUT.endswith(PAGE)
