"""What is marked as secret is replaced, equal values by equal ones, and nothing else changes."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from deltaworks import Pipeline, Secret, StreamsBuilder, Topic, TopologyError
from deltaworks.explain.masking import Mask, has_secrets
from deltaworks.explain.tracing import InputRecord


class Card(msgspec.Struct):
    number: Annotated[str, Secret()]
    bank: str


class Customer(msgspec.Struct, rename="camel"):
    full_name: Annotated[str, Secret()]
    country: str
    cards: list[Card] = []
    born: Annotated[datetime | None, Secret()] = None
    income: Annotated[Decimal, Secret()] = Decimal(0)
    tier: Annotated[Literal["A", "B"], Secret()] = "A"
    account: Annotated[UUID | None, Secret()] = None


def record(value: Any, key: bytes | None = b"c-1", topic: str = "customers") -> InputRecord:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return InputRecord(topic, 0, 0, 0, key, data, (), 0, 0)


def pipeline_of(kind: Any = Customer, names: tuple[str, ...] = ()) -> Pipeline:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream("customers", key=str, value=kind).to_delta("customers")

    return Pipeline(name="masked", topology=topology, topics=(Topic("customers", secret=names),))


def mask(kind: Any = Customer, names: tuple[str, ...] = (), secret: bytes | None = b"k") -> Mask:
    pipeline = pipeline_of(kind, names)
    return Mask(pipeline, pipeline.plan()) if secret is None else Mask(pipeline, pipeline.plan(), secret)


def masked(value: Any, **options: Any) -> Any:
    return json.loads(mask(**options).record(record(value)).value or b"")


def test_only_marked_fields_change_and_fields_without_a_type_stay() -> None:
    found = masked({"fullName": "Ann Smith", "country": "DE", "unknown": 1.10, "income": "12.50"})

    assert found.keys() == {"fullName", "country", "unknown", "income"}
    assert (found["country"], found["unknown"]) == ("DE", 1.10)
    assert "Ann" not in found["fullName"]
    assert found["income"] != "12.50"


def test_fields_of_objects_in_lists_are_found() -> None:
    found = masked({"fullName": "Ann", "country": "DE", "cards": [{"number": "4711-0815", "bank": "N"}] * 2})

    assert found["cards"][0] == found["cards"][1]
    assert found["cards"][0]["bank"] == "N"
    assert found["cards"][0]["number"].startswith("masked-")


def test_what_is_replaced_is_still_of_its_type() -> None:
    value = {
        "fullName": "Ann", "country": "DE", "born": "1990-01-01T00:00:00Z", "income": 1.5, "tier": "B",
        "account": "12345678-1234-5678-1234-567812345678",
    }  # fmt: skip
    data = mask().record(record(value)).value
    assert data is not None
    found = msgspec.json.decode(data, type=Customer)

    assert found.born is not None and found.born.year != 1990
    assert str(found.account) != value["account"]


def test_equal_values_have_equal_replacements_and_others_do_not() -> None:
    one = mask()
    first = [masked({"fullName": name, "country": ""})["fullName"] for name in ("Ann", "Ann", "Bob")]

    assert first[0] == first[1] != first[2]
    assert (
        one.record(record({"fullName": "Ann", "country": ""})).value
        == one.record(record({"fullName": "Ann", "country": ""})).value
    )


def test_every_mask_has_a_key_of_its_own_so_that_values_cannot_be_tried_out() -> None:
    value = {"fullName": "Ann", "country": ""}

    assert len({masked(value, secret=None)["fullName"] for _ in range(20)}) == 20
    hiding = mask(secret=None)
    hiding.record(record(value))
    assert "Ann" not in repr(hiding)


class Phone(msgspec.Struct):
    number: str


class Contacts(msgspec.Struct):
    phones: Annotated[dict[str, Phone], Secret()]


class Pin(msgspec.Struct):
    pin: Annotated[int, Secret()]
    vip: Annotated[bool, Secret()] = False
    tier: Annotated[Literal["A", "B"], Secret()] = "A"
    day: Annotated[date | None, Secret()] = None


def test_different_values_stay_different_where_replacements_would_meet() -> None:
    hiding, first = mask(Pin), date(1970, 1, 1)
    days = [(first + timedelta(days=number)).isoformat() for number in range(1_000)]
    found = [json.loads(hiding.record(record({"pin": 1, "day": day})).value or b"")["day"] for day in days + days]

    assert found[:1_000] == found[1_000:]
    assert len(set(found)) == 1_000


def test_different_short_values_stay_different_and_say_nothing_of_their_size() -> None:
    hiding = mask(Pin)
    found = [json.loads(hiding.record(record({"pin": pin})).value or b"")["pin"] for pin in range(5_000)]

    assert len(set(found)) == 5_000
    assert sum(pin >= 100_000_000 for pin in found[:10]) >= 5


def test_which_of_few_values_stands_for_which_is_random_and_different_ones_stay_different() -> None:
    seen = set()
    for number in range(40):
        hiding = mask(Pin, secret=bytes([number]))
        pair = [
            hiding.record(record({"pin": 1, "vip": vip, "tier": tier})).value
            for vip, tier in ((False, "A"), (True, "B"))
        ]
        one, other = (json.loads(each or b"") for each in pair)
        assert one["vip"] != other["vip"] and one["tier"] != other["tier"]
        seen.add((one["vip"], one["tier"]))

    assert {vip for vip, _ in seen} == {True, False} and {tier for _, tier in seen} == {"A", "B"}


def test_the_keys_of_a_secret_map_are_secret_and_the_names_of_fields_are_not() -> None:
    hiding = mask(Contacts)
    data = hiding.record(record({"phones": {"Ann Smith": {"number": "4711"}}})).value
    assert data is not None
    found = msgspec.json.decode(data, type=Contacts)

    assert b"Ann" not in data and b"4711" not in data
    assert [each.number.startswith("masked-") for each in found.phones.values()] == [True]


def test_a_topic_names_secret_parts_of_types_that_are_not_ones_own() -> None:
    class Plain(msgspec.Struct):
        mail: str
        country: str

    found = mask(Plain, names=("key", "value.mail")).record(record({"mail": "ann@example.org", "country": "DE"}))

    assert found.key is not None and found.key.startswith(b"masked-")
    assert json.loads(found.value or b"")["country"] == "DE"
    assert b"ann@" not in (found.value or b"")


def test_a_name_that_no_field_has_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"secret='value\.mial', but no record read from it has such a part"):
        mask(names=("value.mial",))


@pytest.mark.parametrize("data", [b"\xff\xfe Ann", b'{"fullName": ', b'["Ann Smith"]', b'"Ann Smith"'])
def test_what_does_not_have_its_type_shows_nothing(data: bytes) -> None:
    found = mask().record(record(data)).value

    assert found is not None and b"Ann" not in found


def test_texts_that_were_replaced_are_replaced_in_rows() -> None:
    hiding = mask()
    found = hiding.record(record({"fullName": "Ann Smith", "country": "DE"}))
    replacement = json.loads(found.value or b"")["fullName"]

    assert hiding.row({"who": "Ann Smith", "many": ["Ann Smith", "x"], "n": 1}) == {
        "who": replacement, "many": [replacement, "x"], "n": 1,
    }  # fmt: skip


def test_without_a_mark_nothing_is_secret() -> None:
    for kind, names, secret in ((dict[str, str], (), False), (Customer, (), True), (dict[str, str], ("key",), True)):
        pipeline = pipeline_of(kind, names)
        assert has_secrets(pipeline, pipeline.plan()) == secret
