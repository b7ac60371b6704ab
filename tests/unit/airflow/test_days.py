"""The events of days that have closed: one per table, and none that was told already."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import AssetAlias
from airflow.sdk.execution_time.context import OutletEventAccessors, TriggeringAssetEventsAccessor

from deltaworks.airflow import events
from deltaworks.airflow.assets import checked_asset, table_asset
from deltaworks.airflow.days import ALIAS, days_dag, tell
from deltaworks.airflow.events import CheckEvent, TableEvent, check_events, table_events
from deltaworks.control import closed_days
from deltaworks.control.closed_days import ClosedDays
from deltaworks.errors import ConfigurationError, IncompatibleCheckpointError
from deltaworks.lakehouse import cuts
from deltaworks.lakehouse.cuts import Cut

RUN = SimpleNamespace(run_id="scheduled__1")
DAYS = (date(2026, 11, 21), date(2026, 11, 22))
AT = datetime(2026, 11, 23, 0, 6, tzinfo=UTC)


def cut(pipeline: str) -> Cut:
    at_ms = int(AT.timestamp() * 1000)
    return Cut(pipeline=pipeline, query="q", batch_id=7, at_ms=at_ms, tables={"sales": 5, "refunds": 6})


class World:
    """Pipelines with days that have closed; takes notes of what Airflow is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed: dict[str, list[ClosedDays] | Exception] = {}
        self.states: dict[str, Any] = {}
        self.has_told: Any = None
        monkeypatch.setattr(cuts, "pipelines", lambda root: sorted(self.closed))
        monkeypatch.setattr(closed_days, "claim", self._claim)

    def _claim(self, settings: object, pipeline: str, claimant: str, told: Any, *, delay: timedelta) -> Any:
        assert (claimant, delay) == ("scheduled__1", timedelta(minutes=5))
        self.has_told = told
        found = self.closed[pipeline]
        if isinstance(found, Exception):
            raise found
        return found

    def get_task_states(self, *, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, Any]:
        assert (dag_id, task_ids) == ("streams__days", ["tell"])
        return {run: self.states[run] for run in run_ids if run in self.states}

    def tell(self, **given: Any) -> tuple[dict[str, list[str]], list[Any]]:
        outlets = OutletEventAccessors()
        told = tell(self, RUN, outlets, **given)
        return told, outlets[AssetAlias(ALIAS)].asset_alias_events


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    monkeypatch.setenv("DELTAWORKS_HOME", str(tmp_path))
    return World(monkeypatch)


def test_each_table_with_closed_days_has_an_event_that_names_them_and_the_cut(world: World) -> None:
    world.closed = {"shop": [ClosedDays("sales", DAYS, cut("shop")), ClosedDays("refunds", DAYS[1:], cut("shop"))]}

    told, sent = world.tell()

    assert told == {"sales": ["2026-11-21", "2026-11-22"], "refunds": ["2026-11-22"]}
    assert [event.dest_asset_key.uri for event in sent] == [table_asset(table).uri for table in ("sales", "refunds")]
    assert sent[0].extra == {
        "why": "closed",
        "table": "sales",
        "days": ["2026-11-21", "2026-11-22"],
        "version": 5,
        "run": "scheduled__1",
        "pipeline": "shop",
        "batch_id": 7,
        "at": "2026-11-23T00:06:00Z",
    }


def test_assets_are_those_that_the_team_has_named(world: World) -> None:
    world.closed = {"shop": [ClosedDays("sales", DAYS, cut("shop"))]}

    assert [event.dest_asset_key.uri for event in world.tell(asset_uri="s3://lake/{table}")[1]] == ["s3://lake/sales"]
    with pytest.raises(ConfigurationError, match="does not depend on the table"):
        days_dag(asset_uri="s3://lake")


def test_without_closed_days_nothing_is_sent(world: World) -> None:
    world.closed = {"shop": []}

    assert world.tell() == ({}, [])


def test_one_pipeline_that_cannot_be_told_keeps_no_other_from_it(world: World) -> None:
    broken = IncompatibleCheckpointError("the mark has format 9")
    world.closed = {"broken": broken, "shop": [ClosedDays("sales", DAYS, cut("shop"))]}
    assert list(world.tell()[0]) == ["sales"]

    world.closed = {"broken": broken, "shop": []}
    with pytest.raises(IncompatibleCheckpointError, match="format 9"):
        world.tell()


@pytest.mark.parametrize(
    ("state", "told"),
    [("success", True), ("failed", False), ("upstream_failed", False), ("running", None), ("up_for_retry", None)],
)
def test_a_run_has_told_once_its_task_has_succeeded(world: World, state: str, told: bool | None) -> None:
    world.closed = {"shop": []}
    world.tell()
    world.states["scheduled__0"] = {"tell": state}

    assert world.has_told("scheduled__0") is told
    assert world.has_told("deleted") is True, "rather no event than two"


def triggered(*found: tuple[Any, dict[str, Any]], alias: str | None = None) -> Any:
    """As a task gets its events."""
    made = [
        SimpleNamespace(
            asset=asset,
            extra=extra,
            timestamp=AT + timedelta(seconds=number),
            source_aliases=[] if alias is None else [SimpleNamespace(name=alias)],
        )
        for number, (asset, extra) in enumerate(found)
    ]
    return TriggeringAssetEventsAccessor.build(made)  # type: ignore[arg-type]


def test_a_task_reads_the_events_in_their_order_and_each_once() -> None:
    first = TableEvent(why="closed", table="sales", days=[DAYS[0]], pipeline="shop", batch_id=7, at=AT, version=5)
    then = TableEvent(why="computed", table="daily", days=list(DAYS), version=9)
    whole = TableEvent(why="published", table="users", days=None)

    seen = triggered(*((table_asset(each.table), each.extra) for each in (first, then, whole)), alias=ALIAS)

    assert table_events(seen) == [first, then, whole]
    assert table_events(None) == []


def test_events_of_others_and_events_without_a_day_are_left_out() -> None:
    nothing = TableEvent(why="published", table="users", days=[])
    checked = CheckEvent(suite="shop", passed=3, warnings=1, pipeline="shop", batch_id=7, at=AT, run="r")

    seen = triggered(
        (table_asset("users"), nothing.extra),
        (table_asset("sales"), {"day": 1}),
        (checked_asset("shop"), checked.extra),
    )

    assert table_events(seen) == []
    assert check_events(seen) == [checked]


def test_an_event_that_a_newer_version_has_sent_is_read() -> None:
    event = TableEvent(why="closed", table="sales", days=list(DAYS))

    assert table_events(triggered((table_asset("sales"), {**event.extra, "more": 1}))) == [event]
    assert events.cut_of(None) == {}
