"""The forms of `<name>__replay` and `<name>__reprocess`, and the JSON schemas that Airflow checks over REST.

Rules between fields are not here: the first task checks them, because a schema knows one field at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow.sdk import Param

from deltaworks.dsl.pipeline import Pipeline
from deltaworks.topology.checks import table_names
from deltaworks.topology.nodes.sinks import TableKind

_ORDERS = {
    "recorded": "recorded: as the stream processed the records",
    "time": "time: by the records' timestamps",
}


@dataclass(frozen=True)
class Tables:
    """The Delta tables that a replay can publish."""

    with_days: tuple[str, ...]
    """Those of which a range of days can be published."""
    whole: tuple[str, ...]
    """Those of KTables: each row depends on all history before it, so there are no days."""

    @classmethod
    def of(cls, pipeline: Pipeline) -> Tables:
        sinks = pipeline.plan().tables
        days = [name for sink in sinks if sink.kind is not TableKind.CHANGELOG for name in table_names(sink)]
        whole = [name for sink in sinks if sink.kind is TableKind.CHANGELOG for name in table_names(sink)]
        letters = [pipeline.dead_letter_table] if pipeline.dead_letter_table is not None else []
        return cls(tuple(days + letters), tuple(whole))


def replay_form(tables: Tables) -> dict[str, Param]:
    """The fields for a replay that somebody asks for."""
    return {
        "from": _day("From", "First UTC day to publish; empty: from the beginning."),
        "to": _day("To", "First UTC day that is not published any more; empty: as far as days are complete."),
        "tables": _tables(
            (*tables.with_days, *tables.whole),
            tables.with_days,
            f"What to publish; none: every table that has days ({_listed(tables.with_days)}). A table without days "
            f"({_listed(tables.whole)}) is published as a whole, so only without From and To.",
        ),
        "order": _order(),
        "hand_over": Param(
            False,
            type="boolean",
            title="Hand over",
            description="Instead of publishing days, let the stream go on with all stores and tables of the replay; it "
            "is stopped and deployed for that. Without From, To and Tables, in recorded order.",
        ),
        "approval": _approval(default=True),
        "reason": Param(
            type="string",
            minLength=1,
            pattern=r"\S",
            title="Reason",
            description="Why; kept in the history of the tables.",
        ),
    }


def reprocess_form(tables: Tables) -> dict[str, Param]:
    """The fields for the replay of one day; the day is the run's partition key."""
    return {
        "tables": _tables(tables.with_days, tables.with_days, "What to publish; none: every table that has days."),
        "order": _order(),
        "approval": _approval(default=False),
        "reason": Param(
            "",
            type="string",
            title="Reason",
            description="Why; kept in the history of the tables. Empty: that the day was reprocessed.",
        ),
    }


def _day(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], format="date", title=title, description=description)


def _tables(names: Sequence[str], with_days: Sequence[str], description: str) -> Param:
    """A list to choose several of; `enum` is what counts over REST, `examples` what the page shows."""
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
        description="Recorded order gives what the new code would have given then; by time nothing comes late.",
    )


def _approval(*, default: bool) -> Param:
    return Param(
        default,
        type="boolean",
        title="Approval",
        description="A person looks at the differences and approves them, after the gate and before anything changes.",
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
