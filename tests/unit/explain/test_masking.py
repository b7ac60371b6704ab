"""What is marked as secret is replaced, equal values by equal ones, and nothing else changes."""

from __future__ import annotations

import json
import stat
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from deltaworks import Pipeline, Secret, StreamsBuilder, Topic, TopologyError
from deltaworks.explain.masking import Mask, key_of_home
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


def mask(kind: Any = Customer, secret: bytes = b"k", names: tuple[str, ...] = ()) -> Mask:
    def topology(builder: StreamsBuilder) -> None:
        builder.stream("customers", key=str, value=kind).to_delta("customers")

    pipeline = Pipeline(name="masked", topology=topology, topics=(Topic("customers", secret=names),))
    return Mask(pipeline, pipeline.plan(), secret)


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


def test_another_home_has_other_replacements() -> None:
    value = {"fullName": "Ann", "country": ""}

    assert masked(value, secret=b"1") != masked(value, secret=b"2")


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


def test_without_a_mark_nothing_is_needed() -> None:
    assert not mask(dict[str, str]).is_needed
    assert mask().is_needed
    assert mask(dict[str, str], names=("key",)).is_needed


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    first = key_of_home(tmp_path)

    assert key_of_home(tmp_path) == first
    assert len(first) == 32
    assert stat.S_IMODE((tmp_path / "explain.key").stat().st_mode) == 0o600
