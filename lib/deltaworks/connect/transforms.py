"""Transforms and predicates of Kafka, Debezium and deltaworks, made of typed arguments: `transforms=[...]`.

```py
transforms=[
    Filter(predicate=RecordIsTombstone()),
    InsertField(timestamp="received_at"),
    MaskField("card", replacement="****"),
    ReplaceField(renames={"tel": "phone"}, of="key", predicate=TopicNameMatches("cdc\\..*")),
]
```

Each function makes a `Transform` (or a `Predicate`), and refuses what cannot work. Whether a record has a field, only
the worker finds out, when it gets the record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias, TypedDict, Unpack, get_args

from deltaworks.connect.chains import FILTER, Predicate, Transform
from deltaworks.connect.options import given, require_known
from deltaworks.connect.values import Value, is_text
from deltaworks.errors import ConfigurationError

Side: TypeAlias = Literal["key", "value"]
Type: TypeAlias = Literal["int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"]
INSERT_FIELD = "org.apache.kafka.connect.transforms.InsertField"
TIMESTAMP_ROUTER = "org.apache.kafka.connect.transforms.TimestampRouter"
REGEX_ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"
ROWS = "io.debezium.transforms.ExtractNewRecordState"
CHANGE_HEADERS = "deltaworks.connect.ChangeHeaders"
_KAFKA = "org.apache.kafka.connect.transforms."
_PREDICATES = "org.apache.kafka.connect.transforms.predicates."
_SIDES: Mapping[Side, str] = {"key": "$Key", "value": "$Value"}
_PYTHONS_GROUP = re.compile(r"\\\d|\\g<")
_TIMES = ("string", "unix", "Date", "Time", "Timestamp")


class TransformOptions(TypedDict, total=False):
    """What all functions that make transforms take besides their own arguments."""

    predicate: Predicate
    """Only records for which this holds are changed."""
    negate: bool
    """Only those for which it does not hold."""
    name: str
    """Of the transform in the settings of a connector; else one is made of its class."""
    config: Mapping[str, Value]
    """Further settings of the transform, such as `{"replace.null.with.default": False}`."""


def TopicNameMatches(pattern: str, *, name: str | None = None) -> Predicate:
    """Holds for records of topics whose whole name matches an expression of Java."""
    return Predicate(f"{_PREDICATES}TopicNameMatches", {"pattern": _text("TopicNameMatches", "pattern", pattern)}, name)


def HasHeaderKey(header: str, *, name: str | None = None) -> Predicate:
    """Holds for records that have a header of this name."""
    return Predicate(f"{_PREDICATES}HasHeaderKey", {"name": _text("HasHeaderKey", "header", header)}, name)


def RecordIsTombstone(*, name: str | None = None) -> Predicate:
    """Holds for records without a value."""
    return Predicate(f"{_PREDICATES}RecordIsTombstone", {}, name)


def Filter(**options: Unpack[TransformOptions]) -> Transform:
    """Drops the records for which `predicate=` holds; with `negate=True`, all others."""
    return _made("Filter", FILTER, {}, options)


def RegexRouter(regex: str, replacement: str, **options: Unpack[TransformOptions]) -> Transform:
    """Gives records another topic: where an expression of Java matches its whole name, `$1` is its first group."""
    if _PYTHONS_GROUP.search(replacement):
        raise _wrong("RegexRouter", f"has the replacement {replacement!r}", "groups are $1, as Java writes them")
    own = {"regex": _text("RegexRouter", "regex", regex), "replacement": replacement}
    return _made("RegexRouter", REGEX_ROUTER, own, options)


def TimestampRouter(
    topic: str = "${topic}-${timestamp}", timestamp: str = "yyyyMMdd", **options: Unpack[TransformOptions]
) -> Transform:
    """Gives records a topic with their timestamp in its name.

    Args:
        topic: the new name, with `${timestamp}` and, if wanted, `${topic}` in it.
        timestamp: how it is written, as SimpleDateFormat of Java says; in UTC.
        **options: see `TransformOptions`.

    Raises:
        ConfigurationError: the name has no time in it.
    """
    if "${timestamp}" not in topic:
        raise _wrong("TimestampRouter", f"has the topic {topic!r}, without a time", 'such as "${topic}-${timestamp}"')
    own = {"topic.format": topic, "timestamp.format": _text("TimestampRouter", "timestamp", timestamp)}
    return _made("TimestampRouter", TIMESTAMP_ROUTER, own, options)


def InsertField(
    *,
    topic: str | None = None,
    partition: str | None = None,
    offset: str | None = None,
    timestamp: str | None = None,
    static: tuple[str, str] | None = None,
    of: Side = "value",
    **options: Unpack[TransformOptions],
) -> Transform:
    """Adds fields; each name may end with `!`, if it is required, or `?`, if it is optional.

    Args:
        topic: the field for the record's topic.
        partition: the field for its partition, in a sink.
        offset: the field for its offset, in a sink.
        timestamp: the field for its timestamp, which Kafka gives a record: in a sink.
        static: the name of a field, and the text in it.
        of: where: `value` or `key`.
        **options: see `TransformOptions`.

    Raises:
        ConfigurationError: there is no field, two have one name, or `static` is no pair.
    """
    fields = given(
        {"topic.field": topic, "partition.field": partition, "offset.field": offset, "timestamp.field": timestamp}
    )
    if static is not None:
        if not isinstance(static, tuple) or len(static) != 2 or not all(map(is_text, static)):
            raise _wrong("InsertField", f"has static={static!r}", 'a name and a text: static=("source", "shop")')
        fields |= {"static.field": static[0], "static.value": static[1]}
    names = [str(each).rstrip("!?") for setting, each in fields.items() if setting != "static.value"]
    if not names or not all(names):
        raise _wrong("InsertField", "adds no field", 'InsertField(timestamp="received_at")')
    if len(set(names)) < len(names):
        raise _wrong("InsertField", f"adds two fields of one name: {', '.join(names)}", "another name for one of them")
    return _made("InsertField", f"{INSERT_FIELD}{_side('InsertField', of)}", fields, options)


def ReplaceField(
    *,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    renames: Mapping[str, str] | None = None,
    of: Side = "value",
    **options: Unpack[TransformOptions],
) -> Transform:
    """Leaves fields out and gives others another name.

    Args:
        include: the only fields that stay, by their old names; none: all.
        exclude: fields that are left out.
        renames: old name -> new name.
        of: where: `value` or `key`.
        **options: see `TransformOptions`.

    Raises:
        ConfigurationError: it would do nothing, or a field is both included and excluded.
    """
    kept, left_out = list(_items(include)), list(_items(exclude))
    if both := [each for each in kept if each in left_out]:
        raise _wrong("ReplaceField", f"includes and excludes {', '.join(both)}", "one of both")
    if lost := [each for each in renames or () if each in left_out or (kept and each not in kept)]:
        raise _wrong("ReplaceField", f"renames {', '.join(lost)}, which it leaves out", "one of both")
    new = list((renames or {}).values())
    if twins := sorted({each for each in new if new.count(each) > 1}):
        raise _wrong("ReplaceField", f"gives two fields the name {', '.join(twins)}", "another name for one of them")
    own = given(
        {
            "include": _names("ReplaceField", "include", kept) if kept else None,
            "exclude": _names("ReplaceField", "exclude", left_out) if left_out else None,
            "renames": _pairs("ReplaceField", "renames", renames) if renames else None,
        }
    )
    if not own:
        raise _wrong("ReplaceField", "does nothing", "include=, exclude= or renames=")
    return _made("ReplaceField", f"{_KAFKA}ReplaceField{_side('ReplaceField', of)}", own, options)


def MaskField(
    *fields: str, replacement: str | int | float | None = None, of: Side = "value", **options: Unpack[TransformOptions]
) -> Transform:
    """Writes something else into fields: what is null-like for their type (empty, 0, false), or a replacement.

    Args:
        *fields: those that are masked.
        replacement: a text or a number that the fields can hold.
        of: where: `value` or `key`.
        **options: see `TransformOptions`.

    Raises:
        ConfigurationError: there is no field, or an empty replacement.
    """
    if replacement is not None and not str(replacement):
        raise _wrong("MaskField", "has an empty replacement", "leave it out: texts are masked as empty ones")
    own = given({"fields": _names("MaskField", "fields", fields), "replacement": replacement})
    return _made("MaskField", f"{_KAFKA}MaskField{_side('MaskField', of)}", own, options)


def Flatten(*, delimiter: str = ".", of: Side = "value", **options: Unpack[TransformOptions]) -> Transform:
    """Makes `address.city` of a field `city` within `address`; `delimiter` is between the names."""
    own = {"delimiter": _text("Flatten", "delimiter", delimiter)}
    return _made("Flatten", f"{_KAFKA}Flatten{_side('Flatten', of)}", own, options)


def ExtractField(
    field: str, *, of: Side = "value", nested: bool = False, **options: Unpack[TransformOptions]
) -> Transform:
    """Makes a key or value of one of its fields; with `nested`, a dot in `field` leads into another."""
    own = given({"field": _text("ExtractField", "field", field), "field.syntax.version": "V2" if nested else None})
    return _made("ExtractField", f"{_KAFKA}ExtractField{_side('ExtractField', of)}", own, options)


def ValueToKey(*fields: str, **options: Unpack[TransformOptions]) -> Transform:
    """Makes a key of fields of the value; `ExtractField(..., of="key")` after it makes a plain one."""
    return _made("ValueToKey", f"{_KAFKA}ValueToKey", {"fields": _names("ValueToKey", "fields", fields)}, options)


def HoistField(field: str, *, of: Side = "value", **options: Unpack[TransformOptions]) -> Transform:
    """Puts the whole key or value into a field."""
    own = {"field": _text("HoistField", "field", field)}
    return _made("HoistField", f"{_KAFKA}HoistField{_side('HoistField', of)}", own, options)


def Cast(types: Mapping[str, Type] | Type, *, of: Side = "value", **options: Unpack[TransformOptions]) -> Transform:
    """Gives fields another type.

    Args:
        types: field -> its type; one type: the key or value itself gets it.
        of: where: `value` or `key`.
        **options: see `TransformOptions`.

    Raises:
        ConfigurationError: there is no field, or no such type.
    """
    wanted = [types] if isinstance(types, str) else list(types.values())
    known = get_args(Type)
    if unknown := [each for each in wanted if each not in known]:
        raise _wrong("Cast", f"knows no type {', '.join(map(repr, unknown))}", f"one of {', '.join(known)}")
    spec = types if isinstance(types, str) else _pairs("Cast", "types", types)
    return _made("Cast", f"{_KAFKA}Cast{_side('Cast', of)}", {"spec": spec}, options)


def SetSchemaMetadata(
    *, schema: str | None = None, version: int | None = None, of: Side = "value", **options: Unpack[TransformOptions]
) -> Transform:
    """Gives the schema of keys or values another name or version."""
    own = given({"schema.name": schema, "schema.version": version})
    if not own:
        raise _wrong("SetSchemaMetadata", "sets nothing", "schema= or version=")
    return _made("SetSchemaMetadata", f"{_KAFKA}SetSchemaMetadata{_side('SetSchemaMetadata', of)}", own, options)


def TimestampConverter(
    to: Literal["string", "unix", "Date", "Time", "Timestamp"],
    *,
    field: str | None = None,
    format: str | None = None,
    precision: Literal["seconds", "milliseconds", "microseconds", "nanoseconds"] = "milliseconds",
    of: Side = "value",
    **options: Unpack[TransformOptions],
) -> Transform:
    """Writes a time in another way.

    Args:
        to: a text, a whole number since 1970, or a logical type of Connect.
        field: where it is; None: it is the key or value itself.
        format: of the text, before or after, as SimpleDateFormat of Java says.
        precision: of the whole number, before or after.
        of: where: `value` or `key`.
        **options: see `TransformOptions`.

    Raises:
        ConfigurationError: a text has no format, or there is no such type.
    """
    if to not in _TIMES:
        raise _wrong("TimestampConverter", f"knows no {to!r}", f"one of {', '.join(_TIMES)}")
    if to == "string" and not format:
        raise _wrong("TimestampConverter", "makes a text without format=", 'format="yyyy-MM-dd HH:mm:ss"')
    own = given({"field": field, "target.type": to, "format": format, "unix.precision": precision})
    return _made("TimestampConverter", f"{_KAFKA}TimestampConverter{_side('TimestampConverter', of)}", own, options)


def HeaderFrom(
    headers: Mapping[str, str], *, move: bool = False, of: Side = "value", **options: Unpack[TransformOptions]
) -> Transform:
    """Copies fields into headers.

    Args:
        headers: field -> its header.
        move: whether the fields are left out then.
        of: where they are: `value` or `key`.
        **options: see `TransformOptions`.

    Raises:
        ConfigurationError: there is no field.
    """
    own = {
        "fields": _names("HeaderFrom", "fields", headers),
        "headers": _names("HeaderFrom", "headers", headers.values()),
        "operation": "move" if move else "copy",
    }
    return _made("HeaderFrom", f"{_KAFKA}HeaderFrom{_side('HeaderFrom', of)}", own, options)


def InsertHeader(header: str, value: str, **options: Unpack[TransformOptions]) -> Transform:
    """Adds a header; a text that looks like a number, a bool or JSON becomes one."""
    own = {"header": _text("InsertHeader", "header", header), "value.literal": value}
    return _made("InsertHeader", f"{_KAFKA}InsertHeader", own, options)


def DropHeaders(*headers: str, **options: Unpack[TransformOptions]) -> Transform:
    """Takes headers away."""
    return _made("DropHeaders", f"{_KAFKA}DropHeaders", {"headers": _names("DropHeaders", "headers", headers)}, options)


def ExtractNewRecordState(
    *,
    deletions: Literal[
        "rewrite-with-tombstone", "rewrite", "tombstone", "delete-to-tombstone", "drop"
    ] = "rewrite-with-tombstone",
    fields: Iterable[str] = ("op", "ts_ms", "source.ts_ms"),
    headers: Iterable[str] = (),
    **options: Unpack[TransformOptions],
) -> Transform:
    """Makes rows of Debezium's changes, as `unwrap=True` does, at a place of the chain that you choose; also in sinks.

    Args:
        deletions: what becomes of a deletion: a row with `__deleted` (`rewrite`), a null value (`tombstone`), both, or
            nothing.
        fields: what a row gets of its change, as fields that begin with `__`.
        headers: likewise, as headers.
        **options: see `TransformOptions`.

    Raises:
        ConfigurationError: an argument cannot be used.
    """
    fields, headers = list(_items(fields)), list(_items(headers))
    own = given(
        {
            "delete.tombstone.handling.mode": deletions,
            "add.fields": _names("ExtractNewRecordState", "fields", fields) if fields else None,
            "add.headers": _names("ExtractNewRecordState", "headers", headers) if headers else None,
        }
    )
    return _made("ExtractNewRecordState", ROWS, own, options)


def ChangeHeaders(*, prefix: str = "change.", **options: Unpack[TransformOptions]) -> Transform:
    """Writes what Debezium says of a change into headers, as texts, so that rows made of it keep it.

    `op`, `connector`, `snapshot`, `ts_ms` (of the source), `transaction`, `gtid`, `position`: those that a
    change has. Positions of a database are texts of one length. Of two changes of a row, the later one has the greater
    position; rows of a snapshot come before all changes. Records that are no changes (heartbeats, borders of
    transactions, null values) get no headers.

    It is a class of deltaworks: the workers need its plugin, which `DELTAWORKS_CONNECT_PLUGINS=deltaworks` gives those
    of a home. It reads changes, so functions put it in front of `unwrap`.

    Args:
        prefix: what the names of the headers begin with.
        **options: see `TransformOptions`.

    Raises:
        ConfigurationError: an argument cannot be used.
    """
    return _made("ChangeHeaders", CHANGE_HEADERS, {"prefix": prefix}, options, of_changes=True)


def require_source(connector: str, transforms: Iterable[object], *, has_timestamps: bool) -> None:
    """Refuses what has no effect in a source, or fails there.

    Args:
        connector: its name.
        transforms: its chain.
        has_timestamps: whether its records have one before they are in Kafka.

    Raises:
        ConfigurationError: a transform needs what only records of Kafka have.
    """
    missing = {"offset.field": "no offset", "partition.field": "no partition"}
    if not has_timestamps:
        missing["timestamp.field"] = "no timestamp"
    for each in transforms:
        if not isinstance(each, Transform):
            continue
        if each.class_.startswith(INSERT_FIELD):
            for setting in missing.keys() & each.config.keys():
                raise ConfigurationError(
                    f"Connector '{connector}': InsertField would leave '{each.config[setting]}' empty: before they are "
                    f"in Kafka, its records have {missing[setting]}.",
                    hint="in a sink, they have one; of a change, added_fields= has times and positions",
                )
        if each.class_ == TIMESTAMP_ROUTER and not has_timestamps:
            raise ConfigurationError(
                f"Connector '{connector}': TimestampRouter would fail: its records have no timestamp before they are "
                "in Kafka.",
                hint="TimestampRouter in a sink",
            )


def _made(
    function: str, class_: str, own: Mapping[str, Value], options: TransformOptions, *, of_changes: bool = False
) -> Transform:
    require_known(options, TransformOptions.__annotations__, function)
    return Transform(
        class_,
        {**own, **options.get("config", {})},
        predicate=options.get("predicate"),
        negate=options.get("negate", False),
        name=options.get("name"),
        of_changes=of_changes,
    )


def _side(function: str, of: Side) -> str:
    if of not in _SIDES:
        raise _wrong(function, f"has of={of!r}", "'key' or 'value'")
    return _SIDES[of]


def _text(function: str, argument: str, value: object) -> str:
    if not is_text(value):
        raise _wrong(function, f"has {argument}={value!r}", "a text that says something")
    return str(value)


def _items(items: Iterable[str]) -> Iterable[str]:
    if isinstance(items, str):
        raise TypeError(f"expected a list of texts, but got {items!r}: write [{items!r}]")
    return items


def _names(function: str, argument: str, names: Iterable[str]) -> str:
    """Names as Connect lists them; a comma would make two of one."""
    found = list(names)
    if not found:
        raise _wrong(function, f"has no {argument}", "at least one name")
    for name in found:
        if not is_text(name) or "," in name:
            raise _wrong(function, f"has {name!r} in {argument}", "each name is a text of its own, without a comma")
        if found.count(name) > 1:
            raise _wrong(function, f"has {name!r} twice in {argument}", "each name once")
    return ",".join(found)


def _pairs(function: str, argument: str, pairs: Mapping[str, str]) -> str:
    for name in (*pairs, *pairs.values()):
        if not is_text(name) or ":" in name or "," in name:
            raise _wrong(function, f"has {name!r} in {argument}", "names are texts without a colon and a comma")
    if not pairs:
        raise _wrong(function, f"has no {argument}", "at least one name")
    return ",".join(f"{name}:{other}" for name, other in pairs.items())


def _wrong(function: str, what: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"{function} {what}.", hint=hint)
