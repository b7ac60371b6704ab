"""What Spark calls a batch in a line that follows another one, and what its tasks begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from deltaworks import StreamsBuilder
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.runtime import messages
from deltaworks.runtime.state import initial_state
from deltaworks.runtime.state.local_store import EMPTY
from deltaworks.runtime.state.recovery import CheckpointState
from deltaworks.runtime.worker import HostConfig
from deltaworks.spark import task_host
from deltaworks.spark.routes import Routes
from deltaworks.spark.task_host import SparkState, TaskHost

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
    config = HostConfig(
        pipeline=b"", bootstrap="", query_id="run", generation=1, fence=Path(), local_root="",
        tables_root=Path(), tasks=(1,),
        exchange_partitions={}, **options,
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
