"""Which entries of each kind of store go, and what is left of those that hold several things."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from deltaworks.erase import entries
from deltaworks.kernel.processors import grace_join
from deltaworks.kernel.processors.grace_join import Waiting
from deltaworks.kernel.records import Coordinates, Headers
from deltaworks.kernel.stores import suppress
from deltaworks.kernel.stores.lists import pack
from deltaworks.kernel.stores.suppress import HeldBytes
from deltaworks.kernel.stores.versioned import LATEST_MS
from deltaworks.kernel.stores.waiting_list import LEFT, MARKS, waiting_key
from deltaworks.serdes.left_or_right import LeftOrRight
from deltaworks.serdes.primitives import Bytes, Long, String
from deltaworks.topology.nodes.foreign_keys import ForeignKeyUpdate
from deltaworks.topology.persons import Person
from deltaworks.topology.stages import Stage, StoreKind, StoreSpec

PERSON = Person.of("u-17")
STAGE = Stage(index=0, number=0, nodes=(), stores=())
THEIRS, OTHER = b"by u-17", b"by u-171"
"""Values."""
AT, NEXT = (5).to_bytes(8, "big"), (9).to_bytes(8, "big")
LATEST = LATEST_MS.to_bytes(8, "big")
SOURCE = Coordinates("in", 0, 7)


def spec(kind: StoreKind, *, timestamped: bool = True, retain_duplicates: bool = False) -> StoreSpec:
    value = LeftOrRight(String(), String()) if kind == "waiting-list" else String()
    return StoreSpec(
        name="store", kind=kind, key=String(), value=value, timestamped=timestamped,
        retain_duplicates=retain_duplicates,
    )  # fmt: skip


def changed(
    store: StoreSpec, *stored: tuple[bytes, bytes], stage: Stage = STAGE, person: Person = PERSON
) -> dict[bytes, bytes | None]:
    return dict(entries.changes(stage, store, stored, person))


@pytest.mark.parametrize(
    ("store", "behind", "before"),
    [
        (spec("key-value"), b"", AT),
        (spec("key-value", timestamped=False), b"", b""),
        (spec("lru"), b"", AT),
        (spec("window"), AT, AT),
        (spec("window", timestamped=False), AT, b""),
        (spec("session"), AT + NEXT, b""),
        (spec("custom"), b"\0", b""),
    ],
    ids=lambda each: each.layout if isinstance(each, StoreSpec) else "",
)
def test_an_entry_goes_if_its_key_or_its_value_is_theirs(store: StoreSpec, behind: bytes, before: bytes) -> None:
    theirs, same = (b"u-17" + behind, before + b"x"), (b"u-18" + behind, before + THEIRS)
    others = [(b"u-171" + behind, before + b"x"), (b"u-19" + behind, before + OTHER)]

    assert changed(store, theirs, same, *others) == {theirs[0]: None, same[0]: None}


@pytest.mark.parametrize("timestamped", [True, False])
def test_lists_lose_their_values_only(timestamped: bool) -> None:
    before = AT if timestamped else b""
    store = spec("window", timestamped=timestamped, retain_duplicates=True)
    found = changed(
        store,
        (b"u-17" + AT, before + pack([OTHER])),
        (b"a" + AT, before + pack([OTHER, THEIRS, b"x"])),
        (b"b" + AT, before + pack([THEIRS])),
        (b"c" + AT, before + pack([OTHER, OTHER])),
    )
    assert found == {b"u-17" + AT: None, b"a" + AT: before + pack([OTHER, b"x"]), b"b" + AT: None}


def test_both_sides_of_a_join_lose_their_values_only() -> None:
    found = changed(
        spec("join-window"),
        (b"u-17" + AT, pack([OTHER])), (b"a" + AT, pack([THEIRS, OTHER])), (b"b" + AT, pack([OTHER])),
    )  # fmt: skip
    assert found == {b"u-17" + AT: None, b"a" + AT: pack([OTHER])}


def test_what_waits_for_a_partner_goes_and_the_marks_stay() -> None:
    def at(key: bytes) -> bytes:
        return waiting_key(5, LEFT, key)

    found = changed(
        spec("waiting-list"),
        (at(b"u-17"), pack([b"\1x"])), (at(b"a"), pack([b"\1" + THEIRS, b"\1" + OTHER])),
        (at(b"b"), pack([b"\0" + OTHER])), (MARKS, AT + NEXT),
    )  # fmt: skip
    assert found == {at(b"u-17"): None, at(b"a"): pack([b"\1" + OTHER])}


def test_an_older_version_becomes_a_tombstone_and_the_latest_goes() -> None:
    there, gone = b"\1", b"\0"
    found = changed(
        spec("versioned"),
        (b"u-17" + NEXT, AT + gone), (b"u-17" + LATEST, AT + b"x"),
        (b"a" + NEXT, AT + there + THEIRS), (b"a" + LATEST, NEXT + OTHER),
        (b"b" + NEXT, AT + there + OTHER), (b"b" + LATEST, NEXT + THEIRS),
        (b"c" + NEXT, AT + gone),
    )  # fmt: skip
    assert found == {b"u-17" + NEXT: None, b"u-17" + LATEST: None, b"a" + NEXT: AT + gone, b"b" + LATEST: None}


def held(new: bytes | None, old: bytes | None, prior: bytes | None, headers: Headers = ()) -> bytes:
    return suppress.encode(HeldBytes(5, new, old, prior, 6, SOURCE, headers))


def test_a_held_update_goes_by_its_new_value_and_forgets_what_was_before() -> None:
    found = changed(
        spec("suppress"),
        (b"u-17", held(OTHER, None, None)),
        (b"new", held(THEIRS, OTHER, OTHER)),
        (b"old", held(OTHER, THEIRS, THEIRS)),
        (b"prior", held(OTHER, b"x", THEIRS)),
        (b"header", held(OTHER, b"x", None, (("who", b"u-17"), ("h", b"v")))),
        (b"deleted", held(None, THEIRS, THEIRS)),
        (b"other", held(OTHER, OTHER, None, (("h", b"v"),))),
    )
    assert found == {
        b"u-17": None,
        b"new": None,
        b"old": held(OTHER, None, None),
        b"prior": held(OTHER, b"x", None),
        b"header": held(OTHER, b"x", None, (("h", b"v"),)),
        b"deleted": None,
    }


def waiting(*records: tuple[bytes, Headers]) -> bytes:
    return pack(grace_join.encode(Waiting(value, headers, SOURCE)) for value, headers in records)


def test_a_record_that_waits_for_a_table_goes_and_others_lose_a_header() -> None:
    found = changed(
        spec("join-buffer"),
        (AT + b"u-17", waiting((OTHER, ()))),
        (AT + b"a", waiting((THEIRS, ()), (OTHER, (("who", b"u-17"), ("h", b"v"))))),
        (AT + b"b", waiting((OTHER, (("h", None),)))),
        (AT + b"c", waiting((THEIRS, ()))),
    )
    assert found == {AT + b"u-17": None, AT + b"a": waiting((OTHER, (("h", b"v"),))), AT + b"c": None}


@pytest.mark.parametrize("number", [17, 18])
def test_a_subscription_goes_by_either_key(number: int) -> None:
    """The keys of the left table are numbers here, which the store does not know."""
    update = ForeignKeyUpdate(name="update", parents=("right",), store="store", key=Long(), other_key=String())
    stage = Stage(index=0, number=0, nodes=(update,), stores=())

    def key(foreign: bytes, left: int) -> bytes:
        return len(foreign).to_bytes(4, "big") + foreign + left.to_bytes(8, "big")

    store: StoreSpec = spec("subscriptions")
    stored: Sequence[tuple[bytes, bytes]] = [(key(b"u-17", 1), b"x"), (key(b"r", 17), b"x"), (key(b"r", 18), b"x")]
    person = Person.of(str(number))
    assert dict(entries.changes(stage, store, stored, person)) == {key(b"r", number): None}
    assert changed(store, *stored, stage=stage) == {key(b"u-17", 1): None}


def test_bytes_that_no_serde_reads_are_searched_as_they_are() -> None:
    store = StoreSpec(name="store", kind="key-value", key=Long(), value=Bytes(), timestamped=False)
    assert changed(store, (b"u-17", b"x"), (b"k", b"\xff u-17 \xff"), (b"u-171", b"x")) == {b"u-17": None, b"k": None}


@pytest.mark.parametrize(
    ("kind", "behind", "before"),
    [("key-value", b"", AT), ("lru", b"", AT), ("window", AT, AT), ("session", AT + NEXT, b"")],
)
def test_keys_and_values_are_read_without_what_the_store_adds(kind: StoreKind, behind: bytes, before: bytes) -> None:
    def key(number: int) -> bytes:
        return number.to_bytes(8, "big") + behind

    looks_like_them = b"\0\0\0\0\0 17"[: len(before)]
    found = changed(
        StoreSpec(name="store", kind=kind, key=Long(), value=String(), timestamped=True),
        (key(17), before + b"x"), (key(1), before + b"by 17"), (key(2), looks_like_them + b" x"),
        person=Person.of("17"),
    )  # fmt: skip
    assert found == {key(17): None, key(1): None}
