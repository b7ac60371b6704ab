"""Which Delta tables keep the records that a pipeline reads, as they were in Kafka.

Topics of global tables have no archive: every machine reads them as a whole, at its own times, so no batch has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from deltaworks.errors import Problem
from deltaworks.topology.plan import Plan

_UNSAFE = re.compile(r"[^a-zA-Z0-9]+")
_MAX_NAME = 128


@dataclass(frozen=True)
class Archives:
    """The archives of the source topics of a plan; by default there are none."""

    topics: Mapping[str, str] = field(default_factory=dict)
    """Topic -> table."""
    patterns: Mapping[str, str] = field(default_factory=dict)
    """Pattern of topics -> the table of all topics that match it."""

    @classmethod
    def of(cls, plan: Plan) -> Archives:
        """One archive for each topic and each pattern that the tasks of a plan read."""
        return cls(
            {topic: archive_name(topic) for topic in plan.source_topics},
            {pattern: archive_name(pattern) for pattern in plan.source_patterns},
        )

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables, sorted."""
        return tuple(sorted({*self.topics.values(), *self.patterns.values()}))

    def table(self, topic: str) -> str | None:
        """The archive of a topic, if there is one."""
        if (table := self.topics.get(topic)) is not None:
            return table
        return next((table for pattern, table in self.patterns.items() if re.fullmatch(pattern, topic)), None)

    def problems(self, others: Mapping[str, str]) -> Iterator[Problem]:
        """Every problem of the tables' names.

        Args:
            others: Table -> what else writes it.
        """
        taken = {table.lower(): who for table, who in others.items()}
        for source, table in sorted({**self.topics, **self.patterns}.items()):
            who = taken.setdefault(table.lower(), f"the archive of '{source}'")
            if who != f"the archive of '{source}'":
                yield Problem(
                    f"the archive of '{source}' would be the Delta table '{table}', which {who} writes too.",
                    hint="a table has one writer: name the other one differently, or leave archive=True out",
                )
            if len(table) > _MAX_NAME:
                yield Problem(
                    f"the archive of '{source}' would be a Delta table whose name has {len(table)} characters.",
                    hint=f"a table's name has {_MAX_NAME} at most: leave archive=True out",
                )


def archive_name(topic: str) -> str:
    """The archive's name for a topic or a pattern; characters that a table name cannot hold become underscores."""
    name = f"{_UNSAFE.sub('_', topic).strip('_')}_archive".lstrip("_")
    return f"_{name}" if name[0].isdigit() else name
