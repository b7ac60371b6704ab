"""The form of `<name>__replay`, and the JSON schemas that Airflow checks over REST.

The first task checks rules between fields, because a schema covers one field at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Param

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.topology.checks import table_names
from deltaworks.topology.nodes.sinks import TableKind

_ACTIONS = {
    "replay": "replay: process history again",
    "roll back": "roll back: restore what a replay has replaced, or the stream before a hand-over",
    "discard": "discard: remove a replay that is not published",
}
_ORDERS = {
    "recorded": "recorded: the order in which the stream processed the records",
    "time": "time: the order of the records' timestamps",
}


@dataclass(frozen=True)
class Tables:
    """The Delta tables that a replay can publish."""

    with_days: tuple[str, ...]
    """Tables that can be published by range of days."""
    whole: tuple[str, ...]
    """Tables of KTables: each row depends on all earlier history, so they have no days."""

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.with_days, *self.whole)

    @classmethod
    def of(cls, pipeline: Pipeline) -> Tables:
        sinks = pipeline.plan().tables
        days = [name for sink in sinks if sink.kind is not TableKind.CHANGELOG for name in table_names(sink)]
        whole = [name for sink in sinks if sink.kind is TableKind.CHANGELOG for name in table_names(sink)]
        letters = [pipeline.dead_letters.table] if pipeline.dead_letters.table is not None else []
        return cls(tuple(days + letters), tuple(whole))


def replay_form(tables: Tables, *, approval_required: bool = False) -> dict[str, Param]:
    """The fields of the form of `<name>__replay`.

    Args:
        tables: of the pipeline.
        approval_required: whether nobody may do without an approval.
    """
    only_yes: dict[str, Any] = {"const": True} if approval_required else {}
    return {
        "action": Param(
            "replay",
            type="string",
            enum=list(_ACTIONS),
            values_display=dict(_ACTIONS),
            title="Action",
            description="The fields after Run are for a new replay.",
        ),
        "run": Param(
            None,
            type=["null", "string"],
            title="Run",
            description="The replay to roll back or discard: the id of its run of this DAG, or of the replay itself "
            "(log of `plan`). Empty for a new replay.",
        ),
        "from": _day("From", "First UTC day to publish; empty: from the beginning, or the day of a backfill."),
        "to": _day("To", "First UTC day not to publish; empty: up to the last complete day."),
        "tables": _tables(
            tables.all,
            tables.with_days,
            f"Tables to publish; empty: every table that has days ({_listed(tables.with_days)}). Tables without days "
            f"({_listed(tables.whole)}) are published as a whole, so leave From and To empty for them.",
        ),
        "order": _order(),
        "hand_over": Param(
            False,
            type="boolean",
            title="Hand over",
            description="Instead of publishing days, let the stream continue with all stores and tables of the replay. "
            "This stops and redeploys the stream. Leave From, To and Tables empty, and keep the recorded order.",
        ),
        "cascade": Param(
            False,
            type="boolean",
            title="Cascade",
            description="Compute the batch jobs that read what is published again, as part of this replay: approved "
            "with it, and rolled back with it. The log of `plan` and the question say who reads it.",
        ),
        "approval": Param(
            True,
            type="boolean",
            title="Approval",
            description="A person approves the differences, after the gate and before anything changes.",
            **only_yes,
        ),
        "reason": Param(  # Airflow lets no DAG that can have a backfill require a field; the first task does
            "",
            type="string",
            title="Reason",
            description="Why you replay; kept in the history of the tables. Only a backfill may leave it empty.",
        ),
    }


def _day(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], format="date", title=title, description=description)


def _tables(names: Sequence[str], with_days: Sequence[str], description: str) -> Param:
    """A multiple-choice list; REST checks `enum`, the page shows `examples`."""
    return Param(
        [],
        type="array",
        items={"type": "string", "enum": list(names)},
        uniqueItems=True,
        examples=list(names),
        values_display={name: name if name in with_days else f"{name} (as a whole)" for name in names},
        title="Tables",
        description=description,
    )


def _order() -> Param:
    return Param(
        "recorded",
        type="string",
        enum=list(_ORDERS),
        values_display=dict(_ORDERS),
        title="Order",
        description="Recorded order gives the results that the new code would have given live; in time order no record "
        "is late.",
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
