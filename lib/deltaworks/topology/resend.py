"""Records that failed and are sent again: how they say so, and to which operators they can go.

A record that is sent again is appended to the partition in which it failed. A header names the pipeline, the operator
and the offset of the record that failed. Only that operator and those behind it see it; other pipelines skip it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from deltaworks.topology.nodes import (
    AnyNode,
    Branch,
    CallOut,
    CustomSink,
    DeltaSink,
    ExchangeSink,
    ExtractedTopicSink,
    Filter,
    FlatMap,
    FlatMapValues,
    GlobalTableJoin,
    Map,
    MapValues,
    Merge,
    Passthrough,
    Peek,
    SelectKey,
    Source,
    StreamAggregate,
    StreamTableJoin,
    TableSource,
    TableTransformValues,
    TopicSink,
    WindowAggregate,
)
from deltaworks.topology.nodes.sinks import TableKind
from deltaworks.topology.records import Header, Headers
from deltaworks.topology.windows import TimeWindows

HEADER = "__deltaworks.sent_again"
"""The name of the header; its value is a `SentAgain` as JSON."""
FORMAT = 1

Path = tuple[str, ...]
"""The nodes from the source, which is the first, to the last before the operator; empty if it is the source."""


class SentAgain(msgspec.Struct, frozen=True, kw_only=True):
    """What the header of a record says."""

    format: int = FORMAT
    pipeline: str
    operator: str
    """The node that failed."""
    offset: int
    """Offset of the record that failed, in the same topic and partition."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, header: bytes | None) -> SentAgain:
        """
        Raises:
            ValueError: another version of deltaworks wrote it, or something else did.
        """
        try:
            said = msgspec.json.decode(header or b"", type=cls)
        except msgspec.MsgspecError as error:
            raise ValueError(f"the header {HEADER} cannot be read: {error}") from None
        if said.format != FORMAT:
            raise ValueError(f"the header {HEADER} has format {said.format}; this version reads format {FORMAT}")
        return said


def header_of(headers: Headers) -> Header | None:
    """The header with which a record was sent again; None: it is sent for the first time."""
    return next((header for header in headers if header[0] == HEADER), None)


def without_header(headers: Headers) -> Headers:
    """The other headers."""
    return tuple(each for each in headers if each[0] != HEADER)


def paths(nodes: Mapping[str, AnyNode], operator: str) -> dict[str, Path] | str:
    """The ways of a record to an operator.

    Args:
        nodes: of a topology or a stage.
        operator: the node that failed.

    Returns:
        Source -> the only way from there. A text says why the operator takes no record again: some of what it or those
        before it did with the record has been kept, and would be done twice.
    """
    node = nodes.get(operator)
    if node is None:
        return "the topology has no such operator"
    if (reason := _may_have_begun(node)) is not None:
        return reason
    found: dict[str, Path] = {}
    waiting: list[tuple[AnyNode, Path]] = [(node, ())]
    while waiting:
        at, path = waiting.pop()
        if isinstance(at, Source):
            if (reason := _enters_elsewhere(at, nodes)) is not None:
                return reason
            if at.name in found:
                return "records reach it in several ways"
            found[at.name] = path
            continue
        for name in at.parents:
            parent = nodes.get(name)
            if parent is None:
                return _BEHIND_EXCHANGE
            if (reason := _not_one_by_one(parent, nodes)) is not None:
                return f"{name} before it {reason}"
            waiting.append((parent, (name, *path)))
    return found


def target(nodes: Mapping[str, AnyNode], operator: str, headers: Headers) -> str:
    """The operator to which a record is sent again that has failed in `operator`.

    One that was sent again and failed before it came to its operator goes there the next time, too: all other operators
    have had the record.

    Args:
        nodes: of the stage.
        operator: the node that failed.
        headers: of the dead letter.

    Raises:
        ValueError: it was sent again with a header that cannot be read.
    """
    if (header := header_of(headers)) is None:
        return operator
    said = SentAgain.decode(header[1])
    if isinstance(nodes.get(operator), Source):
        return said.operator
    found = paths(nodes, said.operator)
    before = isinstance(found, dict) and any(operator in path for path in found.values())
    return said.operator if before else operator


_BEHIND_EXCHANGE = "it reads records that another stage has sent, which are in no topic of yours"


def _not_one_by_one(node: AnyNode, nodes: Mapping[str, AnyNode]) -> str | None:
    """Why an operator before the one that failed cannot do its work again; None: it can.

    It makes at most one record of a record, and remembers nothing. A join with a table looks the row up when the record
    comes again, as for any record at that place.
    """
    match node:
        case (
            Source() | Filter() | Map() | MapValues() | SelectKey() | Peek() | Merge() | Branch() | Passthrough()
            | CallOut()
        ):  # fmt: skip
            return None
        case StreamTableJoin(buffer=None) if _has_a_transformer(node.table, nodes):
            return "reads rows that a transformer makes, which may remember how often it was asked"
        case GlobalTableJoin() | StreamTableJoin(buffer=None):
            return None
        case StreamTableJoin():
            return "keeps the records that wait for rows"
        case _:
            return "keeps what it makes of a record, or makes several of one"


def _has_a_transformer(table: str, nodes: Mapping[str, AnyNode]) -> bool:
    """Whether a transformer without a store, or one before it, makes the rows of a table."""
    node = nodes.get(table)
    if node is None:
        return False
    no_store = isinstance(node, TableTransformValues) and node.store is None
    return no_store or any(_has_a_transformer(parent, nodes) for parent in node.parents)


def _may_have_begun(node: AnyNode) -> str | None:
    """Why an operator that failed may have done a part of its work; None: it has done nothing."""
    match node:
        case Source() | Filter() | Map() | MapValues() | SelectKey() | Peek() | Branch() | CallOut():
            return None
        case StreamAggregate() | GlobalTableJoin() | TopicSink() | ExtractedTopicSink() | CustomSink() | ExchangeSink():
            return None
        case DeltaSink(kind=TableKind.APPEND):
            return None
        case StreamTableJoin(buffer=None):
            return None
        case WindowAggregate(windows=TimeWindows() as windows) if windows.size_ms == windows.advance_ms:
            return None
        case FlatMap() | FlatMapValues():
            return "it may have forwarded results before it failed"
        case WindowAggregate():
            return "it may have counted the record in some of its windows before it failed"
        case _:
            return "it may have kept or forwarded a part of its work before it failed"


def _enters_elsewhere(source: Source, nodes: Mapping[str, AnyNode]) -> str | None:
    """Why the records of a source cannot come again at its end; None: they can."""
    if source.exchange:
        return _BEHIND_EXCHANGE
    readers = [node for node in nodes.values() if source.name in node.parents]
    if source.whole or any(isinstance(node, TableSource) for node in readers):
        return "a table takes the last record of a key, and a later one may have come since; write the row anew"
    return None
