"""The one mutable object of the DSL: nodes, stores and problems as the user's calls come in.

Names follow Kafka Streams: one counter for all nodes, and a given name uses up a number too.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

from deltaworks.errors import Problem, TopologyError
from deltaworks.topology.durations import milliseconds
from deltaworks.topology.nodes import AnyNode, Source
from deltaworks.topology.nodes.base import Origin
from deltaworks.topology.stages import StoreSpec

N = TypeVar("N", bound=AnyNode)

PACKAGE = str(Path(__file__).parents[1])
"""The folder of our code: lines in it are not the user's."""
GENERATED_STORE = re.compile(r"STATE-STORE-\d{10}$")
"""The end of a generated store name."""


@dataclass(frozen=True, kw_only=True)
class BuilderConfig:
    """Options of a `StreamsBuilder`."""

    record_cache: bool = True
    """Stores forward only the last update per key, at a commit; without it, every update."""
    explicit_names: Literal["stores", "all", "none"] = "stores"
    """Names that the user must give: `stores`, `all` (exchanges too), `none` (generated, as in Kafka Streams)."""
    optimize: bool = False
    """Exchanges of one stream are merged, and a self-join uses one store (`topology.optimization=all`)."""
    emit_interval: timedelta = timedelta(0)
    """Wall-clock pause between two checks for closed windows and for records that stay without a partner."""
    compatible_with_kafka: bool = False
    """Windows that expire before they are forwarded are lost, as in Kafka Streams; else they are kept until then."""

    def __post_init__(self) -> None:
        if self.explicit_names not in ("stores", "all", "none"):
            raise ValueError(f"explicit_names is 'stores', 'all' or 'none', not {self.explicit_names!r}")
        if self.emit_interval_ms < 0:
            raise ValueError(f"emit_interval must not be negative, but is {self.emit_interval}")

    @property
    def emit_interval_ms(self) -> int:
        """The interval in milliseconds, for operators."""
        return milliseconds(self.emit_interval, "emit_interval")


class Graph:
    """The nodes, stores and problems that a `StreamsBuilder` has collected so far.

    Args:
        name: name of the topology, for messages.
        config: the builder's options.
    """

    def __init__(self, name: str, config: BuilderConfig) -> None:
        self.name = name
        self.config = config
        self.stores: list[tuple[StoreSpec, Origin]] = []
        self.problems: list[Problem] = []
        self.open_splits: dict[str, Origin] = {}
        self.streams: dict[tuple[str, ...], Source] = {}
        """Topics -> the source that reads them as a stream."""
        self.exchanges: dict[str, tuple[str, str]] = {}
        """Name of an exchange -> the node before it and the source behind it."""
        self.mergeable_exchanges: list[str] = []
        """Sources behind exchanges that operators made for themselves, not the user."""
        self.untyped: dict[object, Problem] = {}
        """A type that nobody says -> the problem that was reported for it."""
        self.old_values: set[str] = set()
        """Tables that send old values."""
        self._nodes: dict[str, AnyNode] = {}
        self._repeated: list[AnyNode] = []
        """Nodes whose name was already taken; `checks` reports them."""
        self._on_demand: dict[str, tuple[StoreSpec, Origin, bool]] = {}
        """Tables without a store that can get one -> the store, where, and whether the user named it."""
        self._count = 0

    @property
    def nodes(self) -> list[AnyNode]:
        """Parents before children."""
        finished = [
            replace(node, old_values=True) if node.name in self.old_values else node for node in self._nodes.values()
        ]
        return finished + self._repeated

    def next_name(self, prefix: str) -> str:
        """The next generated name, such as `KSTREAM-FILTER-0000000003`."""
        number, self._count = self._count, self._count + 1
        return f"{prefix}{number:010d}"

    def name_of(self, given: str | None, prefix: str) -> str:
        """The given name, else a generated one."""
        generated = self.next_name(prefix)
        return given or generated

    def add(self, node: N) -> N:
        """Keeps a node; its parents are already there."""
        if node.name in self._nodes:
            self._repeated.append(node)
        else:
            self._nodes[node.name] = node
        return node

    def node(self, name: str) -> AnyNode:
        """The current version of a node."""
        return self._nodes[name]

    def change(self, name: str, **fields: Any) -> None:
        """Replaces fields of a node, which keeps its place."""
        self._nodes[name] = replace(self._nodes[name], **fields)

    def store_name(self, given: str, prefix: str) -> str:
        """The given name, else a generated one such as `left-STATE-STORE-0000000000`; only that uses up a number."""
        return given or self.next_name(f"{prefix}STATE-STORE-")

    def add_store(self, spec: StoreSpec, where: Origin) -> None:
        """Keeps a store; `checks` says whether its name is valid and unique."""
        self.stores.append((spec, where))

    def add_store_on_demand(self, node: str, spec: StoreSpec, where: Origin, *, named: bool) -> None:
        """Keeps a store that its table gets only if something needs the rows."""
        self._on_demand[node] = spec, where, named

    def materialize(self, table: str) -> None:
        """Gives a table the store that was kept for it, if it has none yet."""
        if table not in self._on_demand:
            return
        spec, where, named = self._on_demand.pop(table)
        if not named:
            self.demand_name("the table", where)
        self.change(table, store=spec.name)
        self.add_store(spec, where)

    def demand_name(self, operator: str, where: Origin) -> None:
        """Reports a store without a name, unless the builder generates names."""
        if self.config.explicit_names != "none":
            self.report(
                f"{operator} has no name for its store; names are state, so they are not made up.",
                where,
                f"{operator}(..., store='...')",
            )

    def refuse(self, what: str, where: Origin | None, hint: str | None = None) -> NoReturn:
        """Raises all problems at once, this one last; checks after it would make no sense."""
        self.report(what, where, hint)
        raise TopologyError(self.name, list(dict.fromkeys(self.problems)))

    def report(self, what: str, where: Origin | None, hint: str | None = None) -> None:
        """Keeps a problem; `build` raises all of them at once."""
        self.problems.append(Problem(what, str(where) if where else None, hint))

    def report_untyped(self, cause: tuple[str, Origin, str], what: str, where: Origin, hint: str) -> None:
        """Reports a type that nobody says, unless its operator was refused for another reason, or it is known already.

        Args:
            cause: the operator that makes the values, its line, and `key` or `value`.
        """
        told = self.untyped.values()
        refused = any(each.where == str(cause[1]) for each in self.problems if each not in told)
        if cause not in self.untyped and not refused:
            self.report(what, where, hint)
            self.untyped[cause] = self.problems[-1]


def call_site() -> Origin:
    """The line of the user's code that called into this package."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(PACKAGE) and frame.f_back is not None:
        frame = frame.f_back
    return line_of(frame.f_code.co_filename, frame.f_lineno)


def line_of(file: str, line: int) -> Origin:
    """A line of the user's code; the file is relative to the working directory if it is below it."""
    return Origin(file.removeprefix(str(Path.cwd()) + "/"), line)
