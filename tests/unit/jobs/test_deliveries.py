"""The job in the test driver, and on the streaming host while schemas and types change.

Input is written by fastavro, and the output topic read by Google's Protobuf: none of our serdes is asked.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from deltalake import DeltaTable
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

import jobs.deliveries
from deltaworks import Bytes, Pipeline
from deltaworks.control import schemas
from deltaworks.errors import ConflictError
from deltaworks.serdes.schemas import InMemory, WriterSchema
from deltaworks.settings import Settings
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.topics import RawRecord
from jobs.deliveries import Address, Parcel, Scan
from jobs.sample_data.deliveries import CURRENT, INCOMPATIBLE, NEWER, OLD, SUBJECT, UNKNOWN_ID, Ids, header
from tests.hosts.in_process import InProcessStream
from tests.hosts.memory_kafka import MemoryKafka

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = 60_000
DELFT = {"country": "NL", "city": "Delft"}
Row = dict[str, Any]


def instant(at_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=at_ms)


def a_scan(at: int = 0, **fields: Any) -> Row:
    scan = {"scan_id": "s-1", "carrier": "post", "status": "accepted", "scanned_at": instant(at), "destination": DELFT}
    return scan | {"fee": Decimal("1.50")} | fields


@cache
def message_of(text: str) -> Any:
    """The class of `Parcel` in a `.proto` file, compiled by protoc."""

    with tempfile.TemporaryDirectory() as folder:
        file, compiled = Path(folder) / "its.proto", Path(folder) / "its.set"
        file.write_text(text)
        built_in = Path(protoc.__file__).parent / "_proto"
        arguments = [f"-I{folder}", f"-I{built_in}", "--include_imports", f"--descriptor_set_out={compiled}"]
        assert protoc.main(["protoc", *arguments, str(file)]) == 0
        files = FileDescriptorSet.FromString(compiled.read_bytes()).file
    pool = DescriptorPool()
    for each in files:
        pool.Add(each)
    return GetMessageClass(pool.FindMessageTypeByName("deliveries.Parcel"))


def in_protobuf(data: bytes | None, registry: InMemory) -> Row:
    """What a receiver sees who decodes a parcel with the schema that it names; an empty field is left out."""
    assert data is not None
    assert (data[0], data[5:7]) == (0, b"\x02\x02"), "the id, then the second message of the file"
    writer = registry.by_id(int.from_bytes(data[1:5], "big"))
    assert writer.kind == "PROTOBUF"
    found: Row = MessageToDict(message_of(writer.text).FromString(data[7:]), preserving_proto_field_name=True)
    return found


class Depot:
    """The pipeline with a registry of its own, and scans as producers write them."""

    def __init__(self, pipeline: Pipeline = jobs.deliveries.pipeline) -> None:
        self.registry = InMemory()
        self.ids = Ids(self.registry)
        self.driver = TopologyTestDriver(replace(pipeline, schemas=self.registry))
        self.topic = self.driver.create_input_topic("deliveries-scans")

    def scan(self, parcel: str | None = "p-1", schema: Mapping[str, Any] = CURRENT, at: int = 0, **fields: Any) -> None:
        self.raw(self.ids.written(schema, a_scan(at, **fields)), parcel, at)

    def raw(self, value: bytes | None, parcel: str | None = "p-1", at: int = 0) -> None:
        self.topic.pipe_raw(None if parcel is None else parcel.encode(), value, timestamp_ms=at)

    @property
    def parcels(self) -> dict[str, Parcel]:
        found: dict[str, Parcel] = self.driver.table("deliveries_parcels").rows
        return found

    @property
    def scans(self) -> list[tuple[str | None, Scan]]:
        return [(row.key, row.value) for row in self.driver.table("deliveries_scans").rows]

    @property
    def sent(self) -> list[tuple[str, Row]]:
        """What the topic of parcels has got since it was last read."""
        topic = self.driver.create_output_topic("deliveries-parcels", key=str, value=Bytes())
        return [(key or "", in_protobuf(value, self.registry)) for key, value in topic.read_key_values_to_list()]

    @property
    def refused(self) -> list[str]:
        return [letter.message for letter in self.driver.dead_letters]


# What the job does ---------------------------------------------------------------------------------------------------


def test_a_parcel_is_as_its_newest_scan_says_and_has_all_fees() -> None:
    depot = Depot()

    depot.scan(at=1 * MINUTE, status="accepted", fee=Decimal("1.50"))
    depot.scan(at=9 * MINUTE, status="delivered", fee=Decimal("-0.25"), destination={"country": "JP", "city": "大阪"})

    assert depot.parcels == {
        "p-1": Parcel("delivered", instant(9 * MINUTE), Address("JP", "大阪"), scans=2, fees=Decimal("1.25"))
    }
    assert depot.sent[-1] == (
        "p-1",
        {
            "status": "delivered",
            "scanned_at": "1970-01-01T00:09:00Z",
            "destination": {"country": "JP", "city": "大阪"},
            "scans": "2",
            "fees": "1.25",
        },
    )


def test_a_scan_that_comes_late_counts_and_decides_nothing() -> None:
    depot = Depot()

    depot.scan(at=9 * MINUTE, status="delivered")
    depot.scan(at=1 * MINUTE, status="accepted")

    assert depot.parcels["p-1"] == Parcel("delivered", instant(9 * MINUTE), Address(**DELFT), 2, Decimal("3.00"))


def test_of_two_scans_in_the_same_millisecond_the_later_to_arrive_decides() -> None:
    depot = Depot()

    depot.scan(status="delivered")
    depot.scan(status="returned")

    assert depot.parcels["p-1"].status == "returned"


def test_a_scan_without_a_parcel_is_kept_and_belongs_to_none() -> None:
    depot = Depot()

    depot.scan(None)
    depot.raw(None)

    assert [key for key, _ in depot.scans] == [None]
    assert (depot.parcels, depot.sent, depot.refused) == ({}, [], [])


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda whole: whole[:-1], "they end too early"),
        (lambda whole: whole + b"\0", "the value ends after"),
        (lambda whole: whole[5:], "they do not begin with a zero and the id of a schema"),
        (lambda whole: whole[:4], "they do not begin with a zero and the id of a schema"),
        (lambda _: b"", "they do not begin with a zero and the id of a schema"),
        (lambda _: json.dumps({"scan_id": "s-1"}).encode(), "they do not begin with a zero and the id of a schema"),
        (lambda whole: header(UNKNOWN_ID) + whole[5:], f"names schema {UNKNOWN_ID}, which is not in the registry"),
    ],
)
def test_what_is_no_scan_becomes_a_dead_letter_and_the_next_one_is_read(damage: Any, why: str) -> None:
    depot = Depot()
    value = damage(depot.ids.written(CURRENT, a_scan()))

    depot.raw(value)
    depot.scan("p-2")

    [letter] = depot.driver.dead_letters
    assert (letter.value, letter.operator) == (value, "scans")
    assert why in letter.message
    assert [parcel for parcel, _ in depot.sent] == ["p-2"]


# (a) Producers move to another version -------------------------------------------------------------------------------


def test_scans_of_all_versions_are_read_side_by_side() -> None:
    depot = Depot()

    depot.scan("old", OLD)
    depot.scan("current", CURRENT)
    depot.scan("newer", NEWER, signed_by="Zoë", destination=DELFT | {"postcode": "2611"})

    wanted = Scan("s-1", "post", "accepted", EPOCH, Address(**DELFT), Decimal("1.50"))
    assert dict(depot.scans) == {
        "old": Scan("s-1", "post", "accepted", EPOCH, Address(**DELFT), Decimal("0.00")),
        "current": wanted,
        "newer": wanted,
    }
    assert {parcel: (row["fees"], row["destination"]) for parcel, row in depot.sent} == {
        "old": ("0.00", DELFT),
        "current": ("1.50", DELFT),
        "newer": ("1.50", DELFT),
    }
    assert depot.refused == []


def test_a_parcel_goes_on_when_its_producer_moves_to_a_newer_version() -> None:
    depot = Depot()

    for at, schema in enumerate((OLD, CURRENT, NEWER, OLD)):
        depot.scan(schema=schema, at=at, scan_id=f"s-{at}")

    assert depot.parcels["p-1"] == Parcel("accepted", instant(3), Address(**DELFT), scans=4, fees=Decimal("3.00"))
    assert [row["fees"] for _, row in depot.sent] == ["0.00", "1.50", "3.00", "3.00"]


def test_a_status_of_a_newer_version_is_unknown() -> None:
    depot = Depot()

    depot.scan(schema=NEWER, status="lost")

    assert depot.parcels["p-1"].status == "unknown"
    [(_, row)] = depot.sent
    assert "status" not in row, "zero, which Protobuf leaves out"


# (c) A version that cannot be read -----------------------------------------------------------------------------------


def changed(schema: Mapping[str, Any], name: str, kind: Any) -> Row:
    """The schema with another type of a field."""
    found: Row = deepcopy(dict(schema))
    found["fields"] = [{"name": name, "type": kind} if each["name"] == name else each for each in found["fields"]]
    return found


WRONG = (
    (INCOMPATIBLE, {"depot": "Delft-2"}, "field 'destination' is not written, and has no default"),
    (changed(CURRENT, "fee", "string"), {"fee": "1.50"}, "field 'fee' is written as string"),
    (changed(CURRENT, "scanned_at", "string"), {"scanned_at": "noon"}, "field 'scanned_at' is written as string"),
)


@pytest.mark.parametrize(("schema", "fields", "why"), WRONG)
def test_scans_of_a_version_that_cannot_be_read_become_dead_letters_and_others_flow_on(
    schema: Row, fields: Row, why: str
) -> None:
    depot = Depot()

    depot.scan(at=1)
    depot.scan(schema=schema, at=2, **fields)
    depot.scan(schema=NEWER, at=3, status="delivered")

    [message] = depot.refused
    assert why in message
    assert len(depot.scans) == 2
    assert [(row["status"], row["scans"], row["fees"]) for _, row in depot.sent] == [
        ("accepted", "1", "1.50"),
        ("delivered", "2", "3.00"),
    ]


@pytest.mark.parametrize(("schema", "fields", "why"), WRONG)
def test_a_deployment_is_refused_if_the_newest_version_cannot_be_read(schema: Row, fields: Row, why: str) -> None:
    registry = InMemory()
    plan = replace(jobs.deliveries.pipeline, schemas=registry).plan()
    for each in (OLD, CURRENT, NEWER):
        registry.id_of(SUBJECT, WriterSchema(json.dumps(each), "AVRO"))
    assert schemas.check(plan, registry).lines == ()

    registry.id_of(SUBJECT, WriterSchema(json.dumps(schema), "AVRO"))

    with pytest.raises(ConflictError, match="version 4 of 'deliveries-scans-value', the newest, cannot be read") as no:
        schemas.check(plan, registry)
    assert why in no.value.message


# (b) The job's types get a field -------------------------------------------------------------------------------------

GROWN = (
    (
        '    }\n  ]\n}\n"""',
        '    },\n    {"name": "signed_by", "type": ["null", "string"], "default": null}\n  ]\n}\n"""',
    ),
    ("  string fees = 5;\n", "  string fees = 5;\n  optional string signed_by = 6;\n"),
    ("\n\n\nclass Parcel(", "\n    signed_by: str | None = None\n\n\nclass Parcel("),
    ("\n\n\nSCAN = ", "\n    signed_by: str | None = None\n\n\nSCAN = "),
    ("fees=scan.fee)", "fees=scan.fee, signed_by=scan.signed_by)"),
)
"""What somebody changes who wants to know who has signed."""


@pytest.fixture
def grown(tmp_path: Path) -> Iterator[ModuleType]:
    """The job after that change."""
    text = Path(jobs.deliveries.__file__).read_text()
    for before, after in GROWN:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    file = tmp_path / "grown.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("grown_deliveries", file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


class Stream:
    """The job on the streaming host, which goes on with other code."""

    def __init__(self, home: Path) -> None:
        self.registry = InMemory()
        self.ids = Ids(self.registry)
        self.kafka = MemoryKafka({"deliveries-scans": 2, "deliveries-parcels": 2})
        settings = replace(Settings.from_environment({}), home=home)
        pipeline = replace(jobs.deliveries.pipeline, schemas=self.registry)
        self.stream = InProcessStream(pipeline, settings, kafka=self.kafka)

    def scan(self, parcel: str, schema: Mapping[str, Any], at: int, **fields: Any) -> None:
        value = self.ids.written(schema, a_scan(at, **fields))
        self.kafka.write("deliveries-scans", RawRecord(parcel.encode(), value, at))

    def run(self) -> None:
        self.stream.run(self.stream.end())
        self.stream.committer.refresh_snapshots(force=True)

    def deploy(self, job: ModuleType, *, without_local_stores: bool) -> None:
        self.stream.pipeline = replace(job.pipeline, schemas=self.registry)
        self.stream.plan = self.stream.pipeline.plan()
        schemas.check(self.stream.plan, self.registry).register(self.registry)
        if without_local_stores:
            self.stream.lose_disk()
        self.stream.restart()

    def rows(self, table: str) -> list[Row]:
        return sorted(
            DeltaTable(self.stream.settings.tables / table).to_pyarrow_table().to_pylist(),
            key=lambda row: (row["parcel_id"], row["timestamp"]),
        )

    @property
    def sent(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for _, _, record in self.kafka.read("deliveries-parcels"):
            assert record.key is not None and record.value is not None
            found.setdefault(record.key.decode(), []).append(in_protobuf(record.value, self.registry))
        return found


@pytest.mark.parametrize("without_local_stores", [False, True])
def test_a_type_that_gets_a_field_goes_on_with_its_stores_tables_and_topic(
    tmp_path: Path, grown: ModuleType, without_local_stores: bool
) -> None:
    stream = Stream(tmp_path / "home")
    stream.scan("p-1", OLD, at=1)
    stream.scan("p-2", NEWER, at=2, signed_by="Zoë")
    stream.run()
    assert "signed_by" not in stream.rows("deliveries_parcels")[0]

    stream.deploy(grown, without_local_stores=without_local_stores)
    stream.scan("p-1", NEWER, at=3, signed_by="愛子", status="delivered")
    stream.scan("p-2", OLD, at=4, status="returned")
    stream.scan("p-3", CURRENT, at=5)
    stream.scan("p-2", NEWER, at=1, signed_by="late")
    stream.run()

    parcels = stream.rows("deliveries_parcels")
    assert [(r["parcel_id"], r["status"], r["scans"], r["fees"], r["signed_by"]) for r in parcels] == [
        ("p-1", "delivered", 2, Decimal("1.50"), "愛子"),
        ("p-2", "returned", 3, Decimal("3.00"), None),
        ("p-3", "accepted", 1, Decimal("1.50"), None),
    ]
    assert [row["destination"] for row in parcels] == [DELFT] * 3
    scans = [(r["parcel_id"], r["scanned_at"], r["signed_by"]) for r in stream.rows("deliveries_scans")]
    assert scans == [
        ("p-1", instant(1), None),
        ("p-1", instant(3), "愛子"),
        ("p-2", instant(1), "late"),
        ("p-2", instant(2), None),  # read before anybody wanted to know
        ("p-2", instant(4), None),
        ("p-3", instant(5), None),
    ]
    first, last = stream.sent["p-1"]
    assert ("signed_by" in first, last["signed_by"], last["scans"], last["fees"]) == (False, "愛子", "2", "1.50")
    assert "signed_by" not in stream.sent["p-2"][-1] and stream.sent["p-2"][-1]["fees"] == "3.00"
    assert [each.version for each in stream.registry.versions("deliveries-parcels-value")] == [1, 2]
    assert DeltaTable(stream.stream.settings.tables / "deliveries_dead_letters").to_pyarrow_table().num_rows == 0
    stream.stream.close()


def test_a_receiver_with_the_first_schema_reads_parcels_of_the_second(tmp_path: Path, grown: ModuleType) -> None:
    depot = Depot(grown.pipeline)
    depot.scan(schema=NEWER, signed_by="Zoë", status="delivered")

    topic = depot.driver.create_output_topic("deliveries-parcels", key=str, value=Bytes())
    [(_, value)] = topic.read_key_values_to_list()
    assert value is not None

    parcel = message_of(jobs.deliveries.PROTO).FromString(value[7:])
    assert (parcel.scans, parcel.fees, parcel.destination.city) == (1, "1.50", "Delft")
    assert in_protobuf(value, depot.registry)["signed_by"] == "Zoë"
