"""The record of erasures has no key; replays leave out what the stream had read of the persons by then."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest

from deltaworks.control import erasures
from deltaworks.control.erasures import Erasure, Forgotten
from deltaworks.control.paths import PipelinePaths
from deltaworks.dsl.builder import StreamsBuilder
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.kernel.records import RecordBatch
from deltaworks.topology.persons import Person
from deltaworks.topology.plan import Plan


class Order(msgspec.Struct):
    user_id: str


def plan() -> Plan:
    builder = StreamsBuilder()
    builder.stream("orders", key=str, value=Order).to("out")
    return builder.build()


def erased(paths: PipelinePaths, key: str, stop: int | None) -> Erasure:
    begun = erasures.begin(paths, Person.of(key), "shop", by="ada", reason="asked")
    if stop is None:
        return begun
    done = msgspec.structs.replace(begun, done_ms=begun.begun_ms, offsets={"orders": {"0": stop}})
    erasures.save(paths, done)
    return done


def batch(*users: str, partition: int = 0, first: int = 10) -> RecordBatch:
    count = len(users)
    values: list[bytes | None] = [msgspec.json.encode(Order(user)) for user in users]
    keys: list[bytes | None] = [f"o-{at}".encode() for at in range(count)]
    return RecordBatch("orders", partition, list(range(first, first + count)), [0] * count, keys, values,
                       [(("h", str(at).encode()),) for at in range(count)])  # fmt: skip


def offsets(forgotten: Forgotten, records: RecordBatch) -> list[int]:
    return forgotten.left(records).offsets


def test_nobody_is_forgotten_without_an_erasure(tmp_path: Path) -> None:
    paths = PipelinePaths.at(tmp_path)
    assert Forgotten.of(paths, plan()) is None
    erased(paths, "u-17", None)
    assert Forgotten.of(paths, plan()) is None, "one that was not completed"


def test_records_of_a_person_are_left_out_up_to_the_erasure(tmp_path: Path) -> None:
    paths = PipelinePaths.at(tmp_path)
    erased(paths, "u-17", 13)
    forgotten = Forgotten.of(paths, plan())
    assert forgotten is not None
    records = batch("u-17", "u-1", "u-17", "u-17", "u-17")
    assert offsets(forgotten, records) == [11, 13, 14]
    left = forgotten.left(records)
    assert left.values == [records.values[1], records.values[3], records.values[4]]
    assert left.headers == [(("h", b"1"),), (("h", b"3"),), (("h", b"4"),)] and left.keys == [b"o-1", b"o-3", b"o-4"]
    assert offsets(forgotten, batch("u-17", first=13)) == [13], "they are a customer again"
    assert offsets(forgotten, batch("u-17", partition=1)) == [10], "nothing of the partition was read"
    assert offsets(forgotten, batch("u-17")) == []
    others = batch("u-1", "u-171")
    assert forgotten.left(others) is others


def test_each_person_has_an_end_of_their_own(tmp_path: Path) -> None:
    paths = PipelinePaths.at(tmp_path)
    erased(paths, "u-1", 11)
    erased(paths, "u-2", 13)
    forgotten = Forgotten.of(paths, plan())
    assert forgotten is not None
    assert offsets(forgotten, batch("u-1", "u-2", "u-1", "u-2", "u-3")) == [12, 13, 14]
    sent = pickle.loads(pickle.dumps(forgotten.erasures))
    assert sent == forgotten.erasures


def test_an_erasure_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    paths = PipelinePaths.at(tmp_path)
    first = erased(paths, "u-17", None)
    assert erased(paths, "u-17", None) == first
    assert erased(paths, "u-18", None).id != first.id
    done = erased(paths, "u-17", 5)
    assert done.id == first.id and erased(paths, "u-17", None).id != first.id, "the next one is another"


def test_no_file_has_the_key(tmp_path: Path) -> None:
    paths = PipelinePaths.at(tmp_path)
    erased(paths, "u-17", 5)
    files = list(paths.erasures.iterdir())
    assert len(files) == 2 and all(file.stat().st_mode & 0o077 == 0 for file in files)
    assert not any(b"u-17" in file.read_bytes() for file in files)
    assert erasures.salt(paths) != erasures.salt(PipelinePaths.at(tmp_path / "other"))


def test_a_record_of_another_version_is_refused(tmp_path: Path) -> None:
    paths = PipelinePaths.at(tmp_path)
    done = erased(paths, "u-17", 5)
    erasures.save(paths, msgspec.structs.replace(done, format=2))
    with pytest.raises(IncompatibleCheckpointError, match="format 2"):
        Forgotten.of(paths, plan())
