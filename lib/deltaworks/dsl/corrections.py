"""Which topic tells consumers of Kafka what a replay has changed in the tables of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

from deltaworks.dsl.mistakes import named
from deltaworks.errors import Problem
from deltaworks.names import TOPIC
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.plan import Plan
from deltaworks.topology.table_columns import author_columns


@dataclass(frozen=True)
class Corrections:
    """A topic that gets each row that a published replay has changed, before and after, and the reverse on a rollback.

    ```python
    Pipeline(..., corrections=Corrections("orders-corrections", tables=("user_revenue",)))
    ```

    Each publication and each rollback is sent exactly once, to consumers that read committed records.
    """

    topic: str
    """The first start, or else the first publication, creates it."""
    _: KW_ONLY
    tables: tuple[str, ...] = ()
    """The tables that it tells about; empty: all that the topology writes. A KTable counts by its rows, not by its
    updates."""

    def tables_of(self, plan: Plan) -> tuple[str, ...]:
        """The tables of a plan that it tells about."""
        return self.tables or tuple(sink.table for sink in plan.tables)


def problems(wanted: Any, plan: Plan, letters: str | None) -> Iterator[Problem]:
    """What is wrong with it.

    Args:
        wanted: what the author gave.
        plan: of the pipeline.
        letters: its topic of dead letters.
    """
    if not isinstance(wanted, Corrections):
        hint = f'corrections=Corrections("{plan.name}-corrections")'
        yield Problem(f"corrections= is {named(wanted)}, not Corrections.", hint=hint)
        return
    topic: Any = wanted.topic
    tables: Any = wanted.tables
    if not isinstance(topic, str) or not TOPIC.allows(topic):
        yield Problem(
            f"corrections= names the topic {topic!r}, which cannot be {TOPIC.what}.", hint=f"use {TOPIC.valid}"
        )
    elif plan.uses(topic):
        yield Problem(
            f"the topic of corrections '{topic}' is read by the topology, so each replay would change its own input.",
            hint="name another topic for the corrections; another pipeline may read it",
        )
    elif topic in plan.sink_topics or topic == letters:
        yield Problem(
            f"the topic of corrections '{topic}' is also written by the stream, whose records have another form.",
            hint="name another topic for the corrections",
        )
    sinks = {sink.table: sink for sink in plan.tables}
    changelogs = [f"{name}_changelog" for name, sink in sinks.items() if sink.kind is TableKind.CHANGELOG]
    if not sinks:
        yield Problem(
            "corrections= tells what a replay changes in tables, but the topology writes none.",
            hint="add to_delta(...), or leave it out",
        )
    if isinstance(tables, str):
        yield Problem(f"corrections= has tables={tables!r}.", hint=f"tables=({tables!r},)")
        return
    for name in tables:
        if name in changelogs:
            yield Problem(
                f"corrections= names {name}, the updates of a KTable.", hint=f"name {name.removesuffix('_changelog')}"
            )
        elif sinks and name not in sinks:
            yield Problem(
                f"corrections= names {name!r}, which is no table of the topology.", hint=f"tables: {', '.join(sinks)}"
            )
    for name in wanted.tables_of(plan):
        if name in sinks and not author_columns(sinks[name]).key:
            yield Problem(
                f"corrections= tells about '{name}', a table without a key: nobody knows which row has changed.",
                hint="give its records a key, or name the other tables in tables=",
            )
