"""What the events of assets say, typed: their `extra`, for a DAG that is scheduled on assets.

```
from deltaworks.airflow.dags import table_asset
from deltaworks.airflow.events import table_events

@task
def report(triggering_asset_events=None):
    for event in table_events(triggering_asset_events):
        orders = tables.open(event.pipeline, at=event.at)
        print(event.why, event.days, orders["enriched_orders"].version)
```

An event may come twice, such as when somebody clears the task that has sent it: do the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

if TYPE_CHECKING:
    from deltaworks.lakehouse.cuts import Cut

_T = TypeVar("_T")


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    run: str | None = None
    """The run of a DAG, or the replay, that has sent it."""
    pipeline: str | None = None
    """None: the table is that of a batch job."""
    batch_id: int | None = None
    """The batch of the pipeline as of which this holds."""
    at: datetime | None = None
    """The time of that batch in UTC, for `deltaworks.tables.open(pipeline, at=at)`."""

    @property
    def extra(self) -> dict[str, Any]:
        """The event as Airflow keeps it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class TableEvent(_Event, frozen=True, kw_only=True):
    """A table has changed, or some of its days do not change any more."""

    why: Literal["closed", "published", "computed"]
    """closed: all records of the days are in it; published: by a replay; computed: by a batch job."""
    table: str
    days: list[date] | None
    """UTC days, in order; None: any day may have changed, such as when a table without days was published."""
    version: int | None = None
    """The version of the Delta table with these rows."""


class CheckEvent(_Event, frozen=True, kw_only=True):
    """The tables of a pipeline have passed all checks; `at` is the newest batch when they began."""

    suite: str
    """The file in `jobs/quality/`, without `.py`."""
    passed: int
    """Number of checks that have passed, warnings left out."""
    warnings: int
    """Number of checks that have not, but are only warnings."""


def table_events(events: Mapping[Any, Iterable[Any]] | None) -> list[TableEvent]:
    """The events of tables that have started a run, in the order in which they came.

    Args:
        events: `triggering_asset_events` of Airflow; None, as in a run by hand: there are none.

    Returns:
        One per event of deltaworks; those of others, and those that change no day of a table, are left out.
    """
    return [event for event in _decoded(events, TableEvent) if event.days != []]


def check_events(events: Mapping[Any, Iterable[Any]] | None) -> list[CheckEvent]:
    """The passed checks that have started a run; see `table_events`."""
    return list(_decoded(events, CheckEvent))


def cut_of(cut: Cut | None) -> dict[str, Any]:
    """The fields of an event that name a cut."""
    return {} if cut is None else {"pipeline": cut.pipeline, "batch_id": cut.batch_id, "at": cut.at}


def _decoded(events: Mapping[Any, Iterable[Any]] | None, kind: type[_T]) -> Iterator[_T]:
    given = events or {}
    found = {id(event): event for asset in given for event in given[asset]}  # also under the alias that it came by
    for event in sorted(found.values(), key=lambda event: event.timestamp):
        try:
            yield msgspec.convert(event.extra, kind)
        except msgspec.ValidationError:
            continue
