from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaworks.errors import ConfigurationError
from deltaworks.serdes import Json, Long, String
from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.persons import Person

ADA = Person.of("u-17")
OTHER = Person.of("somebody else").hash(b"s")


class Order(msgspec.Struct):
    user_id: str
    quantity: int = 1


@dataclass
class Note:
    text: str


class Pair(NamedTuple):
    first: str
    second: int


@pytest.mark.parametrize("text", ["u-17", "u-17|DE", "user u-17 failed.", "(u-17)", '{"user_id":"u-17"}', "is u-17."])
def test_a_key_is_found_as_a_whole_word(text: str) -> None:
    assert ADA.in_text(text)
    assert Person.known(b"salt", [ADA.hash(b"salt")]).in_text(text)
    assert ADA.in_bytes(b"\x00\x01" + text.encode() + b"\xff")


@pytest.mark.parametrize("text", ["u-171", "eu-17", "u-17-a", "user_u-17", "u-17.de", "U-17", "", "u 17"])
def test_a_part_of_a_word_is_another_key(text: str) -> None:
    assert not ADA.in_text(text)
    assert not Person.known(b"salt", [ADA.hash(b"salt")]).in_text(text)


def test_a_key_of_several_words_is_found_in_their_order() -> None:
    person = Person.of("Ada Lovelace")
    assert person.in_text("by Ada Lovelace, 1843") and Person.known(b"s", [OTHER, person.hash(b"s")]).in_text(
        "Ada\nLovelace"
    )
    assert not person.in_text("Lovelace Ada") and not person.in_text("Ada")


@pytest.mark.parametrize(
    "value",
    [
        "u-17", b"u-17", Order("u-17"), Note("for u-17"), Pair("u-17", 1), ["a", "u-17"], {"u-17": 1}, {"a": ["u-17"]},
        ("x", "u-17"), {"u-17"}, Windowed("u-17", 0, 1), Order("u-1", 17).__class__("u-17"),
    ],
)  # fmt: skip
def test_a_key_is_found_anywhere_in_an_object(value: Any) -> None:
    assert ADA.in_value(value)


def test_a_uuid_is_found_by_its_text() -> None:
    text = "4f9c3a52-6f0d-4f7e-9b64-6d0b0b6a0c11"
    assert Person.of(text).in_value({"id": UUID(text)})


def test_numbers_count_in_keys_and_named_fields_only() -> None:
    seventeen = Person.of("17")
    assert not seventeen.in_value(Order("u-1", 17)) and not seventeen.in_value(17)
    assert seventeen.in_value(17, is_key=True)
    assert Person.of("17", ["quantity"]).in_value(Order("u-1", 17))
    assert not Person.of("17", ["quantity"]).in_value(Pair("a", 17))


def test_bytes_that_no_serde_reads_are_searched() -> None:
    serde = Json(Order)
    assert ADA.in_raw(b'{"user_id":"u-17"}', serde) and not ADA.in_raw(b'{"user_id":"u-1"}', serde)
    assert ADA.in_raw(b"{broken u-17", serde) and not ADA.in_raw(b"{broken", serde)
    assert ADA.in_raw(b'{"user_id":"u-1","seen_by":"u-17"}', serde), "a field that the type does not have"
    assert not ADA.in_raw(None, serde)
    assert Person.of("17").in_raw(Long().serialize(17), Long(), is_key=True)
    assert ADA.in_raw(b"u-17", String()) and ADA.in_raw(b"\x01u-17\x02", None)


@pytest.mark.parametrize("key", ["", "--", " ", "|"])
def test_a_key_has_to_have_a_letter_or_digit(key: str) -> None:
    with pytest.raises(ConfigurationError, match="no letter and no digit"):
        Person.of(key)


def test_the_hash_tells_nothing_without_its_salt() -> None:
    known = ADA.hash(b"one")
    assert known.digest != ADA.hash(b"two").digest and "u-17" not in str(known)


@given(st.text(), st.text(alphabet="ab-. |_1", min_size=1, max_size=6))
def test_the_hashed_key_is_found_exactly_where_the_key_is(text: str, key: str) -> None:
    if any(letter.isalnum() for letter in key):
        person = Person.of(key)
        for each in (text, text + key, f"{text} {key} {text}", key):
            assert person.in_text(each) == Person.known(b"s", [OTHER, person.hash(b"s")]).in_text(each)
        assert person.in_text(key)
