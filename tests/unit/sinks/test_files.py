"""Files of a sink: their rows, their names, and that a batch which runs again changes nothing."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from deltaworks import DecimalDigits, Pipeline, SinkBatch, SinkRecord, SinkTask, StreamsBuilder, TopologyError
from deltaworks.errors import ConfigurationError, IntentError
from deltaworks.topology.external import FileFolder
from deltaworks.topology.nodes import CustomSink
from deltaworks.topology.sinks import SinkWriter
from tests.support import object_stores
from tests.support.fake_hdfs import fake_hdfs


class Order(msgspec.Struct, frozen=True):
    city: str | None
    price: Annotated[Decimal, DecimalDigits(10, 2)]
    at: datetime
    tags: list[str]
    raw: bytes = b""


def order(city: str | None, price: str = "1.50") -> Order:
    return Order(city, Decimal(price), datetime(2026, 3, 1, 12, tzinfo=UTC), ["a", "b"], b"\x00")


def sink_of(url: object, *, table: bool = False, **settings: Any) -> FileFolder:
    def topology(builder: StreamsBuilder) -> None:
        if table:
            builder.table("in", key=str, value=Order, store="t").to_files(str(url), name="orders", **settings)
        else:
            builder.stream("in", key=str, value=Order).to_files(str(url), name="orders", **settings)

    (node,) = [n for n in Pipeline(name="p", topology=topology).plan().nodes if isinstance(n, CustomSink)]
    found = pickle.loads(pickle.dumps(node.sink))
    assert isinstance(found, FileFolder)
    return found


def writer(sink: FileFolder, task: int = 0, checkpoint: str = "c") -> SinkWriter[Any, Any]:
    return sink.open(SinkTask(pipeline="p", sink="orders", task=task, checkpoint=checkpoint))


def write(to: SinkWriter[Any, Any], batch: int, *records: tuple[str, Order | None], intent: str = "i") -> None:
    assert to.committed() is None
    to.write(SinkBatch(batch, intent), [SinkRecord(key, value, 1_000, ()) for key, value in records])
    to.prepare()
    to.commit()


def names(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_parquet_has_the_columns_of_to_delta(tmp_path: Path) -> None:
    to = writer(sink_of(tmp_path / "out"))

    write(to, 0, ("a", order("Utrecht")), ("b", order(None)))
    write(to, 1, ("a", order("Gouda", "2.25")))

    assert names(tmp_path / "out") == ["p-orders-c-00000-000000000000.parquet", "p-orders-c-00000-000000000001.parquet"]
    rows = ds.dataset(tmp_path / "out").to_table().to_pylist()
    assert [(row["key"], row["city"], row["price"]) for row in rows] == [
        ("a", "Utrecht", Decimal("1.50")),
        ("b", None, Decimal("1.50")),
        ("a", "Gouda", Decimal("2.25")),
    ]
    assert [*rows[0]] == ["key", "city", "price", "at", "tags", "raw", "timestamp"]
    assert rows[0]["timestamp"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_lines_of_json(tmp_path: Path, compression: str) -> None:
    write(writer(sink_of(tmp_path, format="jsonl", compression=compression)), 3, ("a", order("Ütrecht")))

    (file,) = tmp_path.iterdir()
    assert file.name == "p-orders-c-00000-000000000003.jsonl" + (".gz" if compression == "gzip" else "")
    data = gzip.decompress(file.read_bytes()) if compression == "gzip" else file.read_bytes()
    assert [json.loads(line) for line in data.splitlines()] == [
        {
            "key": "a",
            "city": "Ütrecht",
            "price": "1.50",
            "at": "2026-03-01T12:00:00+00:00",
            "tags": ["a", "b"],
            "raw": "AA==",
            "timestamp": "1970-01-01T00:00:01+00:00",
        }
    ]


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_batch_that_runs_again_changes_nothing(tmp_path: Path, format: str, compression: str) -> None:
    sink = sink_of(tmp_path, format=format, compression=compression)
    write(writer(sink), 0, ("a", order("x")))
    (file,) = tmp_path.iterdir()
    before = (file.read_bytes(), file.stat().st_mtime_ns)

    write(writer(sink), 0, ("a", order("x")))

    assert [*tmp_path.iterdir()] == [file]
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    with pytest.raises(IntentError, match="is there, with other rows"):
        write(writer(sink), 0, ("a", order("another")), intent="another")
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


def test_nothing_is_there_before_the_commit_or_after_an_abort(tmp_path: Path) -> None:
    to = writer(sink_of(tmp_path))
    to.write(SinkBatch(0, "i"), [SinkRecord("a", order("x"), 0, ())])
    to.prepare()
    assert [*tmp_path.iterdir()] == []

    to.abort()
    write(to, 1, ("b", order("x")))

    assert names(tmp_path) == ["p-orders-c-00000-000000000001.parquet"]


def test_tasks_and_checkpoints_never_share_a_file(tmp_path: Path) -> None:
    for task, checkpoint in ((0, "c"), (1, "c"), (0, "d")):
        write(writer(sink_of(tmp_path), task, checkpoint), 0, ("a", order("x")))

    assert len(names(tmp_path)) == 3


def test_partitions_are_folders_as_hive_names_them(tmp_path: Path) -> None:
    to = writer(sink_of(tmp_path, partition_by=("city", "at")))

    write(
        to,
        0,
        *((key, order(city)) for key, city in [("a", "x"), ("b", None), ("c", "x"), ("d", "y/../..=1"), ("e", "..")]),
    )

    at = "at=2026-03-01T12%3A00%3A00+00%3A00"
    folders = sorted({name.rpartition("/")[0] for name in names(tmp_path)})
    assert folders == sorted(
        f"city={city}/{at}" for city in ("x", "__HIVE_DEFAULT_PARTITION__", "y%2F..%2F..%3D1", "%2E.")
    )
    (x,) = (tmp_path / "city=x" / at).iterdir()
    assert pq.ParquetFile(x).read().column("key").to_pylist() == ["a", "c"]
    assert "city" not in pq.ParquetFile(x).schema_arrow.names


def test_a_table_has_each_update_with_what_it_does(tmp_path: Path) -> None:
    write(writer(sink_of(tmp_path, table=True)), 0, ("a", order("x")), ("a", None))

    rows = ds.dataset(tmp_path).to_table().to_pylist()
    assert [(row["key"], row["city"], row["op"]) for row in rows] == [("a", "x", "upsert"), ("a", None, "delete")]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with object_stores.moto() as endpoint:
        yield endpoint


def test_an_object_store_is_written_if_the_file_is_not_there(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINK_SECRET", "tests")
    reached = {"endpoint": endpoint, "region": "us-east-1", "access_key": "tests", "path_style": True}
    storage = {**reached, "secret_key": {"env": "SINK_SECRET"}}
    sink = sink_of(f"s3://{object_stores.BUCKET}/lake/orders", storage=storage)

    for _ in range(2):
        write(writer(sink), 0, ("a", order("x")))

    files = object_stores.make(Path("lake/orders"))
    assert files.names() == ["p-orders-c-00000-000000000000.parquet"]
    with pytest.raises(IntentError):
        write(writer(sink), 0, ("a", order("y")), intent="another")
    stored = files.get(files.names()[0])
    assert stored is not None
    assert pq.read_table(pa.BufferReader(stored.data)).column("city").to_pylist() == ["x"]


def test_an_object_store_is_reached_as_the_project_says(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deltaworks.toml").write_text(
        f'[s3]\nendpoint = "{endpoint}"\nregion = "us-east-1"\naccess_key = "tests"\nsecret_key = "tests"\n'
        "path_style = true\n"
    )
    monkeypatch.setenv("DELTAWORKS_PROJECT", str(tmp_path))

    write(writer(sink_of(f"s3://{object_stores.BUCKET}/lake/again")), 0, ("a", order("x")))

    assert len(object_stores.make(Path("lake/again")).names()) == 1


def test_hdfs_is_written_by_renames_that_replace_nothing() -> None:
    with fake_hdfs() as hdfs:
        sink = sink_of(f"webhdfs://me@127.0.0.1:{hdfs.port}/lake", format="jsonl")
        for _ in range(2):
            write(writer(sink), 0, ("a", order("x")))
        name = "/lake/p-orders-c-00000-000000000000.jsonl"
        assert [*hdfs.files] == [name] and json.loads(hdfs.files[name])["city"] == "x"

        beside = name.replace("000.jsonl", "001.jsonl")
        hdfs.create_beside = {beside: b"of another worker"}
        with pytest.raises(IntentError):
            write(writer(sink), 1, ("a", order("x")))
        assert hdfs.files == {name: hdfs.files[name], beside: b"of another worker"}, "nothing else is left behind"


def test_a_rename_that_hdfs_refuses_is_not_taken_for_done_when_it_is_down_then() -> None:
    with fake_hdfs() as hdfs:
        sink = sink_of(f"webhdfs://me@127.0.0.1:{hdfs.port}/lake", format="jsonl")
        hdfs.create_beside = {"/lake/p-orders-c-00000-000000000000.jsonl": b"of another worker"}
        hdfs.fails_after = "RENAME"

        with pytest.raises(OSError, match="503"):
            write(writer(sink), 0, ("a", order("x")))


def test_hdfs_that_hangs_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltaworks.sinks.hdfs._TIMEOUT_S", (0.2, 0.2))
    with fake_hdfs() as hdfs:
        hdfs.hangs = True
        with pytest.raises(OSError, match="timed out"):
            write(writer(sink_of(f"webhdfs://me@127.0.0.1:{hdfs.port}/lake")), 0, ("a", order("x")))


def test_hdfs_without_fsspec_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec.implementations.webhdfs", None)
    with pytest.raises(ConfigurationError, match=r"url= of to_files\('orders'\) needs the package 'fsspec"):
        writer(sink_of("webhdfs://h:9870/lake"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.to_files("/x", name="f", format="csv"), "format= is 'csv'"),
        (lambda s: s.to_files("/x", name="f", format="jsonl", compression="zstd"), "compression= is 'zstd' for jsonl"),
        (lambda s: s.to_files("/x", name="f", partition_by="day"), "no column 'day'.*"),
        (lambda s: s.to_files("/x", name="f", partition_by=("key", "value")), "nothing is left"),
        (lambda s: s.to_files("x", name="f"), "is no address"),
        (lambda s: s.to_files("s3://b/x", name="f", storage={"secret_key": "shh"}), "is a secret"),
        (lambda s: s.to_files("s3://b/x", name="f", storage={"bucket": "b"}), "has bucket"),
    ],
)
def test_a_call_that_cannot_work_is_refused_where_it_is(call: Callable[[Any], None], message: str) -> None:
    builder = StreamsBuilder()

    with pytest.raises(TopologyError, match=message) as raised:
        call(builder.stream("in", key=str, value=str))

    assert "shh" not in str(raised.value)
