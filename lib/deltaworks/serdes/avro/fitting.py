"""What connects a Python type with an Avro schema: conversions of values, and the schema that the type reads with.

fastavro reads and writes the bytes; it makes `datetime`, `date`, `time` and `UUID`, and dicts of records. The
conversions here make objects of dicts, and check what fastavro would write wrongly: it cuts off microseconds, takes
naive times for local ones, writes any number as an `int`, and rounds decimals when it reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from operator import attrgetter
from typing import Any
from uuid import UUID

from deltaworks.errors import SerializationError
from deltaworks.serdes import shapes
from deltaworks.serdes.avro import nodes
from deltaworks.serdes.avro.changes import meaning
from deltaworks.serdes.avro.nodes import NO_DEFAULT, Array, Fixed, Map, Primitive, Record, Symbols, Union, short, words
from deltaworks.serdes.conversions import (
    Convert,
    bytes_of_uuid,
    checked,
    day,
    decimals,
    float_32,
    float_64,
    instant,
    integer,
    known,
    read_branch,
    read_many,
    read_map,
    reason_of,
    text_of_uuid,
    time_of_day,
    unless_none,
    unnamed,
    unwrapped,
    uuid_of_bytes,
    write_branch,
    write_many,
    write_map,
)
from deltaworks.serdes.shapes import Again, Basic, Choice, Entries, Many, Number, OneOf, Shape, in_python, members

ABSENT: Any = object()
"""What is read for a field that the writer does not have."""
MARK = "deltaworks.absent"
"""The property of a field in `Fit.reader` that is read as `ABSENT` if the writer does not have it."""


@dataclass(frozen=True)
class Fit:
    """How values of one type are read and written with one schema."""

    reader: nodes.Node
    """The schema with only the fields that the type has."""
    read: Convert | None = None
    """What fastavro has read -> the value; None: it is the value."""
    write: Convert | None = None
    """The value -> what fastavro writes; None: the value itself. Raises `ValueError` or `TypeError`."""


@dataclass
class Fitted:
    """A type that fits a schema."""

    fit: Fit
    problems: list[str] = field(default_factory=list)
    """Why it does not."""
    unwritable: list[str] = field(default_factory=list)
    """Why values can be read, but not written."""
    named: bool = False
    """A union has several records, so fastavro must say which of them it has read."""


def fitted(node: nodes.Node, shape: Shape) -> Fitted:
    """Compares a type with a schema; `problems` says by field what does not fit."""
    fitting = _Fitting()
    fit = fitting.fit(node, shape, "")
    return Fitted(fit, fitting.problems, fitting.unwritable, fitting.named)


class _Fitting:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self.unwritable: list[str] = []
        self.named = False
        self._open: dict[tuple[str, type], _Later] = {}
        self._projected: dict[str, tuple[type, nodes.Record]] = {}

    def fit(self, node: nodes.Node, shape: Shape, where: str) -> Fit:
        match node, shape:
            case Union(), _:
                return self._union(node, shape, where)
            case _, OneOf(parts):
                return self._member(node, parts, where)
            case Record(), shapes.Record():
                return self._record(node, shape, where)
            case Record(), Again(_, kind) if kind is not None and (node.name, kind) in self._open:
                later = self._open[node.name, kind]
                return Fit(later.reader, later.read, later.write)
            case Array(items), Many():
                return self._many(items, shape, where)
            case Map(values), Entries(value, Basic.TEXT):
                return self._entries(values, value, where)
            case Symbols(), Choice():
                return self._symbols(node, shape, where)
            case ((Primitive() | Fixed()), Number()) if meaning(node) == "decimal":
                return self._decimal(node, shape, where)
            case Primitive("string"), Choice() if all(isinstance(each, str) for each in shape.values):
                return _choice(node, shape)
            case Primitive("int" | "long"), Choice() if not any(isinstance(each, str) for each in shape.values):
                return _choice(node, shape)
            case _:
                if (found := _simple(node, shape)) is not None:
                    return found
        return self._misfit(node, shape, where)

    def _misfit(self, node: nodes.Node, shape: Shape, where: str, why: str = "") -> Fit:
        self.problems.append(
            f"{_at(where)} is {words(node)} in the schema, and {in_python(shape)} in the type{why and f': {why}'}"
        )
        return Fit(node)

    def _fits(self, node: nodes.Node, shape: Shape, where: str) -> Fit | None:
        before, unwritable = len(self.problems), len(self.unwritable)
        found = self.fit(node, shape, where)
        if len(self.problems) == before:
            return found
        del self.problems[before:], self.unwritable[unwritable:]
        return None

    def _member(self, node: nodes.Node, parts: tuple[Shape, ...], where: str) -> Fit:
        for part in parts:
            if part is not Basic.NOTHING and (found := self._fits(node, part, where)) is not None:
                return found
        rest = [each for each in parts if each is not Basic.NOTHING]
        return self.fit(node, rest[0], where) if len(rest) == 1 else self._misfit(node, OneOf(parts), where)

    def _union(self, node: Union, shape: Shape, where: str) -> Fit:
        left = list(members(shape))
        pairs: list[tuple[nodes.Node, Shape, Fit]] = []
        for branch in node.branches:
            named = [each for each in left if _name_of(each) == _name_of(branch)] if _name_of(branch) else []
            for each in [*named, *(each for each in left if each not in named)]:
                if (found := self._fits(branch, each, where)) is not None:
                    pairs.append((branch, each, found))
                    left.remove(each)
                    break
            else:
                return self._no_member(node, branch, shape, where)
        if left:
            return self._misfit(node, shape, where, f"it cannot be {' or '.join(map(in_python, left))} in the schema")
        if len(pairs) == 2 and (other := _beside_null(pairs)) is not None:
            return _nullable(node, other)
        return self._several(node, shape, pairs, where)

    def _no_member(self, node: Union, branch: nodes.Node, shape: Shape, where: str) -> Fit:
        rest = [each for each in members(shape) if each is not Basic.NOTHING]
        others = [each for each in node.branches if each != Primitive("null")]
        if len(rest) == len(others) == 1 and branch is others[0]:
            return self.fit(branch, rest[0], where)
        return self._misfit(node, shape, where, f"it may be {words(branch)}")

    def _several(self, node: Union, shape: Shape, pairs: list[tuple[nodes.Node, Shape, Fit]], where: str) -> Fit:
        records = [each for each, _, _ in pairs if isinstance(each, Record)]
        self.named = self.named or len(records) > 1
        by_name = {name: fit.read for branch, _, fit in pairs if isinstance(branch, Record) for name in _names(branch)}
        by_class: dict[type, Convert | None] = {}
        branches: list[tuple[type, str, Convert | None]] = []
        for branch, each, fit in pairs:
            raw = _raw_class(branch)
            if raw in by_class and not (isinstance(branch, Record) and raw is dict and len(records) > 1):
                return self._misfit(node, shape, where, f"{words(branch)} cannot be told from another of its types")
            by_class[raw] = fit.read
            branches += [(kind, _branch_name(branch), fit.write) for kind in _classes(each)]
        if len(records) > 1:
            by_class[dict] = unnamed
        kinds = [kind for kind, _, _ in branches]
        if len(set(kinds)) < len(kinds):
            return self._misfit(node, shape, where, "two of its types cannot be told apart")
        reader = Union(tuple(fit.reader for _, _, fit in pairs))
        return Fit(reader, read_branch(by_class, by_name), write_branch(branches))

    def _record(self, node: Record, shape: shapes.Record, where: str) -> Fit:
        assert shape.kind is not None
        if (node.name, shape.kind) in self._open:
            later = self._open[node.name, shape.kind]
            return Fit(later.reader, later.read, later.write)
        if (known := self._projected.get(node.name)) is not None and known[0] is not shape.kind:
            return self._misfit(node, shape, where, f"elsewhere, {node.name} is {known[0].__name__}")
        reader = Record(node.name, doc=node.doc, aliases=node.aliases)
        later = self._open[node.name, shape.kind] = _Later(reader)
        self._projected[node.name] = shape.kind, reader
        parts = [
            (part, self._part(node, part, f"{where}.{part.written}" if where else part.written)) for part in shape.parts
        ]
        used = {found[0].name for _, found in parts if found is not None}
        self.unwritable += [
            f"{_at(f'{where}.{each.name}' if where else each.name)} is not in the type, and has no default"
            for each in node.fields
            if each.name not in used and each.default is NO_DEFAULT
        ]
        found = [(part, *both) for part, both in parts if both is not None]
        reader.fields = tuple(_reading(part, each, fit) for part, each, fit in found)
        reader.by_name = {each.name: each for each in reader.fields}
        later.reading = _read_record(shape.kind, found)
        later.writing = _write_record(found)
        return Fit(reader, later.reading, later.writing)

    def _part(self, node: Record, part: shapes.Part, where: str) -> tuple[nodes.Field, Fit] | None:
        if (found := node.by_name.get(part.written)) is None:
            self.problems.append(
                f"{_at(where)} is not in the schema, which has {', '.join(node.by_name) or 'no fields'}"
            )
            return None
        return found, self.fit(found.type, part.shape, where)

    def _many(self, items: nodes.Node, shape: Many, where: str) -> Fit:
        inner = self.fit(items, shape.item, f"{where}[]")
        return Fit(Array(inner.reader), read_many(shape.kind, inner.read), write_many(shape.kind, inner.write))

    def _entries(self, values: nodes.Node, value: Shape, where: str) -> Fit:
        inner = self.fit(values, value, f"{where}{{}}")
        return Fit(Map(inner.reader), read_map(inner.read), write_map(inner.write))

    def _symbols(self, node: Symbols, shape: Choice, where: str) -> Fit:
        names = shape.values
        if shape.kind is not None and set(names) != set(node.symbols):
            names = tuple(member.name for member in shape.kind)
        if set(names) != set(node.symbols):
            said = ", ".join(node.symbols)
            return self._misfit(node, shape, where, f"the schema has {said}")
        if shape.kind is None:
            return Fit(node)
        of_symbol = dict(zip(names, shape.kind, strict=True))
        return Fit(node, of_symbol.__getitem__, {member: symbol for symbol, member in of_symbol.items()}.__getitem__)

    def _decimal(self, node: Primitive | Fixed, shape: Number, where: str) -> Fit:
        digits = shape.digits
        if digits is not None and (
            node.scale > digits.scale or node.precision - node.scale > digits.precision - digits.scale
        ):
            return self._misfit(node, shape, where, f"with {digits.precision} digits, {digits.scale} after the point")
        size = node.size if isinstance(node, Fixed) else None
        return Fit(node, *decimals(node.precision, node.scale, size))


@dataclass
class _Later:
    """A record whose conversions are not ready, because it contains itself."""

    reader: nodes.Record
    reading: Convert | None = None
    writing: Convert | None = None

    def read(self, value: Any) -> Any:
        assert self.reading is not None
        return self.reading(value)

    def write(self, value: Any) -> Any:
        assert self.writing is not None
        return self.writing(value)


def _simple(node: nodes.Node, shape: Shape) -> Fit | None:
    """Types without parts; None: they differ."""
    match node, meaning(node), shape:
        case Primitive("null"), None, Basic.NOTHING:
            return Fit(node)
        case Primitive("string"), None, Basic.TEXT:
            return Fit(node)
        case Symbols(), None, Basic.TEXT:
            return Fit(node)
        case Primitive("bytes") | Fixed(), None, Basic.BINARY:
            return Fit(node, None, checked(bytes))
        case Primitive("boolean"), None, Basic.BOOLEAN:
            return Fit(node, None, checked(bool))
        case Primitive("int"), None, Basic.INTEGER:
            return Fit(node, None, integer(32))
        case Primitive("long"), None, Basic.INTEGER:
            return Fit(node, None, integer(64))
        case Primitive("float"), None, Basic.FLOAT:
            return Fit(node, None, float_32)
        case Primitive("double"), None, Basic.FLOAT:
            return Fit(node, None, float_64)
        case Primitive(), "date", Basic.DATE:
            return Fit(node, None, day)
        case Primitive(_, logical), "time", Basic.TIME:
            return Fit(node, None, time_of_day(1000 if logical == "time-millis" else 1))
        case Primitive(_, logical), "instant", Basic.INSTANT:
            return Fit(node, None, instant(1000 if logical == "timestamp-millis" else 1, zoned=True))
        case Primitive(_, logical), "local", Basic.INSTANT | Basic.LOCAL:
            return Fit(node, None, instant(1000 if logical == "local-timestamp-millis" else 1, zoned=False))
        case Primitive("string"), "uuid", Basic.UUID:
            return Fit(node, None, checked(UUID))
        case Primitive("string"), None, Basic.UUID:
            return Fit(node, UUID, text_of_uuid)
        case Fixed(_, 16), "uuid", Basic.UUID:
            return Fit(node, uuid_of_bytes, bytes_of_uuid)
        case _:
            return None


def without_meanings(node: nodes.Node) -> nodes.Node:
    """A schema in which decimals, and UUIDs of 16 bytes, are bytes for fastavro; we convert them."""
    found: nodes.Node = _stripped(node, {})
    return found


def _stripped(node: Any, done: dict[int, Record]) -> Any:
    match node:
        case Array(items):
            return Array(_stripped(items, done))
        case Map(values):
            return Map(_stripped(values, done))
        case Union(branches):
            return Union(tuple(_stripped(each, done) for each in branches))
        case Record():
            if id(node) not in done:
                new = done[id(node)] = Record(node.name, doc=node.doc, aliases=node.aliases)
                new.fields = tuple(replace(each, type=_stripped(each.type, done)) for each in node.fields)
                new.by_name = {each.name: each for each in new.fields}
            return done[id(node)]
        case _:
            return _without_meaning(node)


def _without_meaning(node: Any) -> Any:
    ours = meaning(node) == "decimal" or (isinstance(node, Fixed) and meaning(node) == "uuid")
    return replace(node, logical=None, precision=0, scale=0) if ours else node


def _choice(node: Primitive, shape: Choice) -> Fit:
    """A text or an integer that must be one of several."""
    if shape.kind is not None:
        of_value: dict[Any, Any] = {member.value: member for member in shape.kind}
        return Fit(node, known(of_value), {member: value for value, member in of_value.items()}.__getitem__)
    same = {value: value for value in shape.values}
    return Fit(node, known(same), known(same))


def _nullable(node: Union, pair: tuple[nodes.Node, Shape, Fit]) -> Fit:
    branch, _, fit = pair
    reader = Union(tuple(fit.reader if each is branch else each for each in node.branches))
    read, name, write = fit.read, _branch_name(branch), fit.write

    def write_it(value: Any) -> Any:
        if value is None:
            return None
        return (name, value if write is None else write(value))

    if isinstance(branch, Record):
        return Fit(reader, unless_none(unwrapped(read)), write_it)
    return Fit(reader, None if read is None else unless_none(read), write_it)


def _read_record(kind: type, parts: list[tuple[shapes.Part, nodes.Field, Fit]]) -> Convert:
    converted = [(part.written, fit.read) for part, _, fit in parts if fit.read is not None]
    renamed = [(part.written, part.name) for part, _, _ in parts if part.written != part.name]
    absent = [(part.written, _default(part, each, fit)) for part, each, fit in parts if _has_default(part, each)]

    def read(found: dict[str, Any]) -> Any:
        missing = {}
        for name, default in absent:
            if found[name] is ABSENT:
                missing[name] = default()
                found[name] = None
        for name, convert in converted:
            if name not in missing:
                found[name] = convert(found[name])
        found.update(missing)
        for written, name in renamed:
            found[name] = found.pop(written)
        return kind(**found)

    def read_plain(found: dict[str, Any]) -> Any:
        return kind(**found)

    return read if converted or renamed or absent else read_plain


def _write_record(parts: list[tuple[shapes.Part, nodes.Field, Fit]]) -> Convert:
    names = [part.name for part, _, _ in parts]
    written = [each.name for _, each, _ in parts]
    converted = [(each.name, fit.write) for _, each, fit in parts if fit.write is not None]
    get: Convert = attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)

    def write(value: Any) -> dict[str, Any]:
        cells = dict(zip(written, get(value), strict=True))
        for name, convert in converted:
            try:
                cells[name] = convert(cells[name])
            except (TypeError, ValueError, KeyError, ArithmeticError, SerializationError) as error:
                raise ValueError(f"field '{name}': {reason_of(error)}") from error
        return cells

    return write


def _has_default(part: shapes.Part, each: nodes.Field) -> bool:
    return part.default is not None or each.default is not NO_DEFAULT


def _default(part: shapes.Part, each: nodes.Field, fit: Fit) -> Callable[[], Any]:
    """What a field is that the writer does not have: the type's default, else the schema's."""
    if part.default is not None:
        return part.default
    value, read = raw_default(each.default, each.type), fit.read
    return lambda: value() if read is None else read(value())


def raw_default(value: Any, node: nodes.Node) -> Callable[[], Any]:
    """A default as fastavro would have read it; raises when it is asked for if there is no way to say it."""
    match node, value:
        case Union(branches), _:
            return raw_default(value, branches[0])
        case ((Primitive("bytes") | Fixed()), str()):
            data = value.encode("latin-1")
            return lambda: data
        case (Array(), []) | (Map(), {}):
            return lambda: type(value)()
        case (Primitive(), _) | (Symbols(), _) if meaning(node) is None:
            return lambda: float(value) if node in (Primitive("double"), Primitive("float")) else value
        case _:

            def refuse() -> Any:
                raise ValueError(
                    f"the default {value!r} of {words(node)} cannot be read; give the field of the type one"
                )

            return refuse


def _reading(part: shapes.Part, each: nodes.Field, fit: Fit) -> nodes.Field:
    default = ABSENT if _has_default(part, each) else NO_DEFAULT
    return nodes.Field(each.name, fit.reader, default, aliases=each.aliases)


def _beside_null(pairs: list[tuple[nodes.Node, Shape, Fit]]) -> tuple[nodes.Node, Shape, Fit] | None:
    rest = [pair for pair in pairs if pair[0] != Primitive("null")]
    return rest[0] if len(rest) == 1 else None


def _name_of(each: nodes.Node | Shape) -> str | None:
    match each:
        case Record(name) | Symbols(name) | Fixed(name):
            return short(name)
        case shapes.Record(name) | Again(name):
            return name
        case Choice(_, kind, name):
            return kind.__name__ if kind is not None else name
        case _:
            return None


def _names(record: Record) -> Iterator[str]:
    yield record.name


def _branch_name(branch: nodes.Node) -> str:
    match branch:
        case Record(name) | Symbols(name) | Fixed(name):
            return name
        case Array():
            return "array"
        case Map():
            return "map"
        case Primitive(kind):
            return kind
        case Union():
            raise ValueError("a union has no union inside")


_RAW = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
}


def _raw_class(branch: nodes.Node) -> type:
    """The class of what fastavro reads for a branch."""
    match branch:
        case Record() | Map():
            return dict
        case Array():
            return list
        case Symbols():
            return str
        case Fixed():
            return bytes
        case Primitive(kind):
            classes = {"instant": datetime, "local": datetime, "time": time, "date": date, "uuid": UUID}
            return classes.get(meaning(branch) or "", _RAW[kind])
        case Union():
            raise ValueError("a union has no union inside")


def _classes(shape: Shape) -> tuple[type, ...]:
    """The classes of values of a member."""
    basic: dict[Basic, type] = {
        Basic.TEXT: str,
        Basic.INTEGER: int,
        Basic.FLOAT: float,
        Basic.BOOLEAN: bool,
        Basic.BINARY: bytes,
        Basic.INSTANT: datetime,
        Basic.LOCAL: datetime,
        Basic.DATE: date,
        Basic.TIME: time,
        Basic.UUID: UUID,
        Basic.NOTHING: type(None),
    }
    match shape:
        case Basic():
            return (basic[shape],)
        case Number():
            return (Decimal,)
        case Choice(values, None):
            return tuple({type(each) for each in values})
        case Choice(_, kind):
            return (kind or Enum,)
        case Many(_, kind):
            return (kind,)
        case Entries():
            return (dict,)
        case shapes.Record(_, _, kind) | Again(_, kind):
            return (kind or object,)
        case OneOf(parts):
            return tuple(kind for each in parts for kind in _classes(each))


def _at(where: str) -> str:
    return f"field '{where}'" if where else "the value"
