"""What Spark calls a batch in a line that follows another one, and what its tasks begin with."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pyspark import cloudpickle

from deltaworks import StreamsBuilder
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.files import local_side
from deltaworks.object_path import ObjectPath, access_of, connect
from deltaworks.runtime import messages
from deltaworks.runtime.state import initial_state
from deltaworks.runtime.state.local_store import EMPTY
from deltaworks.runtime.state.recovery import CheckpointState
from deltaworks.runtime.worker import HostConfig
from deltaworks.spark import task_host
from deltaworks.spark.routes import Routes
from deltaworks.spark.task_host import SparkState, TaskHost
from tests.unit.spark.memory_bucket import MemoryBucket

ROW = messages.Row(7, 0, 3, messages.RESULT, b"result", b"batch")


class NoState:
    """A checkpoint in which nothing is yet."""

    def getMapState(self, *_: str) -> NoState:
        return self

    def getValue(self, _: object) -> None:
        return None


def host(**options: Any) -> TaskHost:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).to("out")
    routes = Routes.of(builder.build(), (1,), 1)
    given: dict[str, Any] = {"fence": Path(), "local_root": "", "tables_root": Path()} | options
    config = HostConfig(
        pipeline=b"", bootstrap="", query_id="run", generation=1, tasks=(1,), exchange_partitions={}, **given,
    )  # fmt: skip
    return TaskHost(config, routes.operators[0], routes.by_task())


Ran = Callable[[TaskHost, str], tuple[int, CheckpointState]]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Runs one of Spark's batches; the id that its tasks are told, and the state of task (0, 0)."""

    def run(host: TaskHost, spark_batch: str) -> tuple[int, CheckpointState]:
        found: list[Any] = []

        def run_shard(
            worker: Any, operator: Any, batch_id: int, rows: Any, committed: Any, attempt: int
        ) -> Iterator[messages.Row]:
            found.extend((batch_id, committed((0, 0)), attempt))
            yield ROW

        monkeypatch.setattr(task_host, "run_shard", run_shard)
        monkeypatch.setattr(task_host, "worker_for", lambda config, routes: None)
        context = SimpleNamespace(getLocalProperty={"streaming.sql.batchId": spark_batch}.get, attemptNumber=lambda: 2)
        monkeypatch.setattr(task_host.TaskContext, "get", lambda: context)  # type: ignore[attr-defined]
        host.init(NoState())  # type: ignore[arg-type]
        (route,) = host._mine
        assert list(host.handleInputRows((route,), iter(()), None)) == [ROW]  # type: ignore[arg-type,comparison-overlap]
        assert found[2] == 2
        return found[0], found[1]

    return run


def test_batches_are_counted_from_the_first_one_of_the_pipeline(ran: Ran) -> None:
    assert [ran(host(), "0")[0], ran(host(), "7")[0]] == [0, 7]
    assert [ran(host(first_batch=40), "0")[0], ran(host(first_batch=40), "7")[0]] == [40, 47]


def test_tasks_of_a_checkpoint_with_an_initial_state_take_it(ran: Ran, tmp_path: Path) -> None:
    initial_state.write(initial_state.path_of(tmp_path, 0, 0), None, {}, batches=1)

    _, alone = ran(host(), "0")
    _, with_initial_state = ran(host(initial_state=tmp_path), "0")

    header = with_initial_state.header()
    assert alone.header() is None
    assert header is not None and header.version == EMPTY


def test_what_spark_holds_of_another_format_is_refused() -> None:
    class FirstFormat(NoState):
        def getValue(self, _: object) -> Any:
            return (msgspec.msgpack.encode(((3, b"nonce"), ((0, 1, 0, 5),), 1)),)

    state: Any = FirstFormat()
    with pytest.raises(IncompatibleCheckpointError, match=r"task \(0, 1\) in Spark's checkpoint has no format"):
        SparkState((0, 1), state).header()


class Access(MemoryBucket):
    """Another one is made whenever it is unpacked."""

    made = 0

    def __init__(self, secret: str) -> None:
        super().__init__()
        self.secret = secret

    def __reduce__(self) -> tuple[Any, ...]:
        return unpacked_access, (self.secret,)


def unpacked_access(secret: str) -> Access:
    Access.made += 1
    return Access(secret)


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The folder of an executor; this process has unpacked nothing yet."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/executor,{tmp_path}/second")
    monkeypatch.setattr(Access, "made", 0)
    task_host._unpacked.cache_clear()
    yield tmp_path / "executor/deltaworks"
    task_host._unpacked.cache_clear()


def begun(host: TaskHost) -> TaskHost:
    """The host in a task: Spark sends it as it does."""
    sent: TaskHost = pickle.loads(cloudpickle.dumps(host))  # type: ignore[no-untyped-call]
    sent.init(NoState())  # type: ignore[arg-type]
    return sent


def test_a_process_unpacks_what_it_is_sent_once(executor: Path, tmp_path: Path) -> None:
    lake = connect("s3://memory/lake", Access("s3cret"), tmp_path / "driver")
    first = host(fence=lake / "fence", tables_root=lake / "tables", local_root=None)

    hosts = [begun(first) for _ in range(3)]

    assert len({id(each._config) for each in hosts}) == 1
    assert Access.made == 1

    another = begun(host(fence=lake / "other", tables_root=lake / "tables", local_root=None))
    assert another._config.fence == lake / "other"


def test_operators_of_one_query_share_what_a_process_has_unpacked(executor: Path, tmp_path: Path) -> None:
    lake = connect("s3://memory/lake", Access("s3cret"), tmp_path / "driver")
    options: dict[str, Any] = {"fence": lake / "fence", "tables_root": lake / "tables", "local_root": None}
    first, second = host(**options), host(**options)

    assert first._packed == second._packed
    assert begun(first)._config is begun(second)._config


def test_stores_and_what_belongs_to_tables_are_in_the_folder_of_the_executor(executor: Path, tmp_path: Path) -> None:
    lake = connect("s3://memory/lake", Access("s3cret"), tmp_path / "driver")

    found = begun(host(fence=lake / "fence", tables_root=lake / "tables", local_root=None))._config

    assert found.local_folder == executor / "stores"
    assert local_side(found.tables_root / "t") == executor / f"tables/{os.getpid()}/memory/lake/tables/t"


def test_on_yarn_they_are_in_the_folder_of_the_container_since_the_others_outlive_it(
    executor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_DIRS", f"{tmp_path}/first,{tmp_path}/second")
    monkeypatch.setenv("CONTAINER_ID", "container_1_0001_01_000002")
    lake = connect("s3://memory/lake", Access("s3cret"), tmp_path / "driver")

    found = begun(host(fence=lake / "fence", tables_root=lake / "tables", local_root=None))._config

    assert found.local_folder == tmp_path / "first/container_1_0001_01_000002/deltaworks/stores"


def test_stores_of_this_machine_are_where_the_driver_says(executor: Path, tmp_path: Path) -> None:
    lake = connect("s3://memory/lake", Access("s3cret"), tmp_path / "driver")

    found = begun(host(fence=lake / "fence", tables_root=lake / "tables", local_root=f"{tmp_path}/stores"))._config

    assert found.local_folder == tmp_path / "stores"
    assert local_side(found.tables_root / "t") == tmp_path / "driver/memory/lake/tables/t"


def test_paths_are_sent_as_they_were_reached_when_the_host_was_made(executor: Path, tmp_path: Path) -> None:
    lake = connect("s3://memory/lake", Access("followed"), tmp_path / "driver")
    made = host(fence=lake / "fence", tables_root=lake / "tables", local_root=None)
    connect("s3://memory/lake", Access("a reference"), tmp_path / "driver")

    sent = cloudpickle.dumps(made)  # type: ignore[no-untyped-call]

    assert b"a reference" not in sent
    found = begun(made)._config
    for path in (found.fence, found.tables_root):
        assert isinstance(path, ObjectPath)
        access: Any = access_of(path)[0]
        assert access.secret == "followed"
