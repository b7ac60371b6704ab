"""What a person's erasure changes in the entries of a store: which go as a whole, and which keep a part.

An entry is the person's if its key or its value has their key; then it goes. Entries that hold several things lose the
person's only: a value of a list, an old value, a header, a version of another key. What is left has the bytes that it
had, and all that stores derive from their entries (order, numbers, marks) stays valid: none of it says that an entry
must be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, assert_never

import msgspec

from deltaworks.kernel.processors import grace_join
from deltaworks.kernel.records import Headers
from deltaworks.kernel.stores import suppress
from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.keys import key_of
from deltaworks.kernel.stores.lists import pack, unpack
from deltaworks.kernel.stores.subscriptions import keys_of
from deltaworks.kernel.stores.versioned import LATEST_MS
from deltaworks.kernel.stores.waiting_list import MARKS
from deltaworks.serdes.base import Serde
from deltaworks.topology.nodes.foreign_keys import ForeignKeyUpdate
from deltaworks.topology.persons import Person
from deltaworks.topology.stages import Stage, StoreSpec

Entry = tuple[bytes, bytes]
Without = Callable[[bytes, bytes], bytes | None]
"""`(key, value) -> the value without the person`; None: the entry goes; the value itself: it has nothing of them."""
_Theirs = Callable[[bytes], bool]
_Left = Callable[[bytes], bytes | None]
"""From a part of an entry to what is left of it; None: it goes."""
_LATEST = LATEST_MS.to_bytes(TIME_BYTES, "big")
_NO_VALUE = b"\x00"
"""In a versioned store: that nothing was valid then."""


def changes(
    stage: Stage, spec: StoreSpec, entries: Iterable[Entry], person: Person
) -> Iterator[tuple[bytes, bytes | None]]:
    """The entries that change, with the new value; None deletes.

    Args:
        stage: of the store.
        spec: of the store.
        entries: all of them, as the state has them.
        person: whose data it is.
    """
    without = _without(stage, spec, person)
    for key, value in entries:
        new = without(key, value)
        if new != value:
            yield key, new


def _without(stage: Stage, spec: StoreSpec, person: Person) -> Without:
    find = key_of(spec)

    def theirs_key(key: bytes) -> bool:
        return person.in_raw(find(key), spec.key, is_key=True)

    def theirs(data: bytes) -> bool:
        return person.in_raw(data, spec.value)

    def not_theirs(data: bytes) -> bytes | None:
        return None if theirs(data) else data

    match spec.kind:
        case "key-value" | "lru":
            at = TIME_BYTES if spec.kind == "lru" or spec.timestamped else 0
            return _whole(theirs_key, lambda value: theirs(value[at:]))
        case "session":
            return _whole(theirs_key, theirs)
        case "custom":
            return _whole(person.in_bytes, person.in_bytes)
        case "window":
            return _window(spec, theirs_key, theirs, not_theirs)
        case "versioned":
            return _version(theirs_key, theirs)
        case "suppress":
            return _held(person, theirs_key, not_theirs)
        case "subscriptions":
            return _subscription(person, spec, _left_keys(stage, spec))
        case "join-window":
            return _several(theirs_key, not_theirs)
        case "join-buffer":
            return _several(theirs_key, _waiting(person, theirs))
        case "waiting-list":
            in_list = _several(theirs_key, not_theirs)
            return lambda key, value: value if key == MARKS else in_list(key, value)
        case _:
            assert_never(spec.kind)


def _whole(theirs_key: _Theirs, theirs: _Theirs) -> Without:
    return lambda key, value: None if theirs_key(key) or theirs(value) else value


def _several(theirs_key: _Theirs, left: _Left) -> Without:
    """Of a list of values."""

    def without(key: bytes, value: bytes) -> bytes | None:
        if theirs_key(key):
            return None
        kept = [each for data in unpack(value) if (each := left(data)) is not None]
        return pack(kept) if kept else None

    return without


def _window(spec: StoreSpec, theirs_key: _Theirs, theirs: _Theirs, not_theirs: _Left) -> Without:
    at = TIME_BYTES if spec.timestamped else 0
    if not spec.retain_duplicates:
        return _whole(theirs_key, lambda value: theirs(value[at:]))
    in_list = _several(theirs_key, not_theirs)

    def without(key: bytes, value: bytes) -> bytes | None:
        kept = in_list(key, value[at:])
        return None if kept is None else value[:at] + kept

    return without


def _version(theirs_key: _Theirs, theirs: _Theirs) -> Without:
    """An older version of another key becomes a tombstone, so that its neighbours begin and end as before.

    The latest one has no entry if it is a tombstone.
    """

    def without(key: bytes, value: bytes) -> bytes | None:
        if theirs_key(key):
            return None
        begin, rest = value[:TIME_BYTES], value[TIME_BYTES:]
        if key.endswith(_LATEST):
            return None if theirs(rest) else value
        return begin + _NO_VALUE if rest[:1] != _NO_VALUE and theirs(rest[1:]) else value

    return without


def _held(person: Person, theirs_key: _Theirs, not_theirs: _Left) -> Without:
    """An update of another key goes if its new value is the person's; what came before it is forgotten."""

    def left(value: bytes | None) -> bytes | None:
        return None if value is None else not_theirs(value)

    def without(key: bytes, value: bytes) -> bytes | None:
        held = suppress.decode(value)
        if theirs_key(key) or left(held.new) != held.new:
            return None
        kept = msgspec.structs.replace(
            held, old=left(held.old), prior=left(held.prior), headers=_headers(person, held.headers)
        )
        if kept == held:
            return value
        nothing_left = kept.new is None and kept.old is None and kept.prior is None
        return None if nothing_left else suppress.encode(kept)

    return without


def _waiting(person: Person, theirs: _Theirs) -> _Left:
    """Of a record that waits for a table."""

    def left(data: bytes) -> bytes | None:
        record = grace_join.decode(data)
        if theirs(record.value):
            return None
        if (headers := _headers(person, record.headers)) == record.headers:
            return data
        return grace_join.encode(msgspec.structs.replace(record, headers=headers))

    return left


def _subscription(person: Person, spec: StoreSpec, left_keys: Serde[Any] | None) -> Without:
    """It has no values: a digest of the left one, and both keys."""

    def theirs_keys(data: bytes) -> bool:
        foreign, left = keys_of(data)
        return person.in_raw(foreign, spec.key, is_key=True) or person.in_raw(left, left_keys, is_key=True)

    return lambda key, value: None if theirs_keys(key) else value


def _left_keys(stage: Stage, spec: StoreSpec) -> Serde[Any] | None:
    """The serde of the keys of the left table, which the store does not need."""
    return next(
        (node.key for node in stage.nodes if isinstance(node, ForeignKeyUpdate) and node.store == spec.name), None
    )


def _headers(person: Person, headers: Headers) -> Headers:
    """Those that have nothing of the person."""
    return tuple((name, value) for name, value in headers if not (person.in_text(name) or person.in_raw(value, None)))
