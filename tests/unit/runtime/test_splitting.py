"""Each entry goes to the task that gets the records of its key; what tasks know comes together without a loss."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaworks import JoinWindows, Pipeline, Processor, Record, Stores, StreamsBuilder, TimeWindows
from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.kernel.partitioning import partition_of
from deltaworks.kernel.stores import waiting_list
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.kernel.stores.waiting_list import LEFT, MARKS, waiting_key
from deltaworks.kernel.task_times import TASK_STORE
from deltaworks.runtime.state.local_store import LocalStore, stores_of
from deltaworks.runtime.state.recovery import NOTHING, local_path, next_version
from deltaworks.runtime.state.splitting import Splitter
from deltaworks.topology.rescaling import StageMove, Widths, stage_moves

Contents = dict[str, dict[bytes, bytes]]
SECOND = timedelta(seconds=1)
LRU = Stores.lru("recent", key=str, value=str, max_entries=3, record_key=lambda key: key)


class Recent(Processor[str, str, str, str]):
    stores = (LRU,)

    def process(self, record: Record[str, str]) -> None: ...


def counted(builder: StreamsBuilder) -> None:
    """An exchange, whose width the author chooses."""
    stream = builder.stream("a", key=str, value=str).repartition(name="spread", partitions=builder_partitions[0])
    windows = TimeWindows(size=60 * SECOND, grace=timedelta(0))
    stream.group_by_key().windowed_by(windows).count(store="windows").to_delta("windows")
    stream.process(Recent, value=str).to("recent")


builder_partitions = [2]


def move_of(topology: Callable[[StreamsBuilder], None], before: int, after: int) -> StageMove:
    widths = []
    for count in (before, after):
        builder_partitions[0] = count
        plan = Pipeline(name="split", topology=topology).plan()
        widths.append(Widths.of(plan, {"a": 1}))
    return stage_moves(plan, *widths)[1]


def filled(folder: Path, move: StageMove, task: int, contents: Contents) -> LocalStore:
    local = LocalStore(local_path(folder, move.stage.index, task), stores_of(move.stage))
    with local.transaction() as transaction:
        transaction.apply({store: StoreChanges(list(entries.items())) for store, entries in contents.items()})
        transaction.commit(next_version(NOTHING))
    return local


def split(folder: Path, move: StageMove, tasks: dict[int, Contents], **partitioners: str) -> dict[int, Contents]:
    """The contents of the new tasks."""
    with Splitter(move, folder / "new", partitioners) as splitter:
        for task, contents in tasks.items():
            with closing(filled(folder / "old", move, task, contents)) as local:
                splitter.add(task, local)
        splitter.finish()
    return dict(contents_of(folder / "new", move))


def contents_of(folder: Path, move: StageMove) -> Iterator[tuple[int, Contents]]:
    for task in range(move.after):
        with closing(LocalStore(local_path(folder, move.stage.index, task), stores_of(move.stage))) as local:
            found = {name: dict(local.reader(name).scan(b"", None)) for name in stores_of(move.stage)}
            yield task, {name: entries for name, entries in found.items() if entries}


def window(key: str, start_ms: int = 0) -> bytes:
    return key.encode() + start_ms.to_bytes(8, "big")


def time(ms: int) -> bytes:
    return ms.to_bytes(8, "big")


@given(
    before=st.integers(1, 5),
    after=st.integers(1, 7),
    keys=st.sets(st.text(min_size=1, max_size=6), max_size=30),
)
def test_every_entry_is_once_where_its_key_is(
    before: int, after: int, keys: set[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    move, tasks = move_of(counted, before, after), dict[int, Contents]()
    for key in keys:
        contents = tasks.setdefault(partition_of(key.encode(), before), {"windows": {}})
        contents["windows"] |= {window(key, start): time(start) for start in (0, 60_000)}
    found = split(tmp_path_factory.mktemp("split"), move, tasks)
    everything = {(key, value) for contents in tasks.values() for key, value in contents["windows"].items()}
    there = [(key, value) for contents in found.values() for key, value in contents.get("windows", {}).items()]
    assert len(there) == len(everything) and set(there) == everything
    for task, contents in found.items():
        assert {partition_of(key[:-8], after) for key in contents.get("windows", {})} <= {task}


def test_times_are_copied_to_the_parts_of_a_task(tmp_path: Path) -> None:
    known = {b"stream": time(50), b"observed/windows": time(40), b"newest/windows": time(30),
             b"partition/spread-repartition/0": time(20)}  # fmt: skip
    found = split(tmp_path, move_of(counted, 1, 3), {0: {TASK_STORE: known}})
    assert all(contents[TASK_STORE] == known for contents in found.values()) and len(found) == 3


def test_where_tasks_come_together_times_are_the_largest(tmp_path: Path) -> None:
    low = {b"stream": time(10), b"observed/windows": time(10), b"punctuator/p/0": time(70), b"turn/p/0": time(5)}
    high = {b"stream": time(99), b"observed/windows": time(90), b"punctuator/p/0": time(60), b"turn/p/0": time(1)}
    found = split(tmp_path, move_of(counted, 2, 1), {0: {TASK_STORE: low}, 1: {TASK_STORE: high}})
    assert found == {
        0: {
            TASK_STORE: {
                b"stream": time(99), b"observed/windows": time(90), b"punctuator/p/0": time(70), b"turn/p/0": time(5)
            }
        }
    }  # fmt: skip


def test_windows_that_were_forwarded_up_to_different_times_stay_apart(tmp_path: Path) -> None:
    tasks: dict[int, Contents] = {task: {TASK_STORE: {b"emitted/windows": time(task)}} for task in (0, 1)}
    with pytest.raises(IncompatibleCheckpointError, match=r"closed windows of 'windows' up to different times"):
        split(tmp_path, move_of(counted, 2, 1), tasks)


def test_schemas_and_failed_records_come_together(tmp_path: Path) -> None:
    def known(schema: str, offset: int) -> dict[bytes, bytes]:
        return {
            b"schema/windows": json.dumps({"key": "s", "value": [schema, "old"]}).encode(),
            b"failed/x/0/000000000000000/op": b"O" + offset.to_bytes(2, "big"),
        }

    tasks: dict[int, Contents] = {0: {TASK_STORE: known("a", 3)}, 1: {TASK_STORE: known("b", 9)}}
    (found,) = split(tmp_path, move_of(counted, 2, 1), tasks).values()
    assert json.loads(found[TASK_STORE][b"schema/windows"]) == {"key": "s", "value": ["a", "old", "b"]}
    bits = found[TASK_STORE][b"failed/x/0/000000000000000/op"]
    assert bits in (b"B" + (1 << 3 | 1 << 9).to_bytes(2, "big"), b"O" + b"\0\3\0\x09")


def test_the_least_recently_used_go_if_too_many_come_together(tmp_path: Path) -> None:
    by_task: dict[int, list[str]] = {0: [], 1: []}
    for number in range(40):
        by_task[partition_of(str(number).encode(), 2)].append(str(number))
    tasks: dict[int, Contents] = {
        task: {"recent": {key.encode(): time(place) + b"v" for place, key in enumerate(keys[:3])}}
        for task, keys in by_task.items()
    }
    (found,) = split(tmp_path, move_of(counted, 2, 1), tasks).values()
    assert len(found["recent"]) == 3
    assert sorted(int.from_bytes(value[:8], "big") for value in found["recent"].values()) == [1, 2, 2]


def waiting(builder: StreamsBuilder) -> None:
    left, right = (
        builder.stream(name, key=str, value=str).repartition(name=f"{name}-spread", partitions=builder_partitions[0])
        for name in ("a", "b")
    )
    near = JoinWindows(before=SECOND, after=SECOND, grace=SECOND)
    left.left_join(right, lambda a, b: f"{a}{b}", near, value=str, store="near").to("all")


def test_a_waiting_list_is_walked_by_the_earliest_mark(tmp_path: Path) -> None:
    widths = []
    for count in (2, 1):
        builder_partitions[0] = count
        plan = Pipeline(name="split", topology=waiting).plan()
        widths.append(Widths.of(plan, {"a": 1, "b": 1}))
    move = next(each for each in stage_moves(plan, *widths) if each.stores)
    name = next(spec.name for spec in move.stage.stores if spec.kind == "waiting-list")
    keys: dict[int, bytes] = {}
    for number in range(20):
        keys.setdefault(partition_of(str(number).encode(), 2), str(number).encode())
    tasks: dict[int, Contents] = {
        task: {name: {waiting_key(task, LEFT, key): b"v", MARKS: time(10 - task) + time(task)}}
        for task, key in keys.items()
    }
    (found,) = split(tmp_path, move, tasks).values()
    assert found[name] == {waiting_key(0, LEFT, keys[0]): b"v", waiting_key(1, LEFT, keys[1]): b"v",
                           MARKS: time(9) + time(0)}  # fmt: skip
    assert waiting_list.earliest([time(3) + time(9), time(5) + time(1)]) == time(3) + time(1)


def test_a_key_that_is_not_where_it_belongs_is_refused(tmp_path: Path) -> None:
    wrong = next(str(number) for number in range(20) if partition_of(str(number).encode(), 2) == 0)
    with pytest.raises(IncompatibleCheckpointError, match="has a key in task 1 that murmur2 does not place there"):
        split(tmp_path, move_of(counted, 2, 4), {1: {"windows": {window(wrong): b"1"}}})


def test_a_record_key_that_fails_is_told(tmp_path: Path) -> None:
    def broken(key: Any) -> Any:
        raise KeyError(key)

    store = Stores.key_value("own", key=str, value=str, record_key=broken)

    class Own(Recent):
        stores = (store,)

    def topology(builder: StreamsBuilder) -> None:
        stream = builder.stream("a", key=str, value=str).repartition(name="spread", partitions=builder_partitions[0])
        stream.process(Own, value=str).to("b")

    with pytest.raises(IncompatibleCheckpointError, match="record_key= of the store 'own' failed for an entry: KeyErr"):
        split(tmp_path, move_of(topology, 1, 2), {0: {"own": {b"x": b"1"}}})


def direct(builder: StreamsBuilder) -> None:
    builder.stream("a", key=str, value=str).group_by_key().count(store="counts").to_delta("counts")


def test_keys_of_a_topic_go_where_its_producers_put_them(tmp_path: Path) -> None:
    plan = Pipeline(name="split", topology=direct).plan()
    (move,) = stage_moves(plan, Widths.of(plan, {"a": 1}), Widths.of(plan, {"a": 3}))
    keys = [str(number).encode() for number in range(50)]
    tasks: dict[int, Contents] = {0: {"counts": dict.fromkeys(keys, time(0) + b"1")}}
    found = split(tmp_path, move, tasks, a="crc32")
    for task, contents in found.items():
        assert set(contents["counts"]) == {key for key in keys if zlib.crc32(key) % 3 == task}
