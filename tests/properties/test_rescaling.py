"""A task that gets a part of another one's keys goes on with them as that one would, if it had only their records.

Whatever the times of records, and whatever windows are open: nothing of a key's results depends on the split.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.kernel.partitioning import partition_of
from deltaworks.kernel.stores.keys import inner_key_of
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.kernel.stores.waiting_list import MARKS
from deltaworks.kernel.task_times import TASK_STORE
from deltaworks.runtime.state.local_store import LocalStore, stores_of
from deltaworks.runtime.state.recovery import local_path
from deltaworks.runtime.state.splitting import Splitter
from deltaworks.testing import recorded
from deltaworks.testing.recorded import MicroBatch, Recording, cut, run_recorded
from deltaworks.topology.rescaling import StageMove, Widths, stage_moves
from tests.properties import cases
from tests.properties.cases import TOPIC, Build
from tests.properties.test_erasing import held_back

Row = tuple[int, bytes, bytes | None, tuple[tuple[str, bytes | None], ...]]
KEYS = [b"a", b"b", b"c", b"d", b"e", b"f"]
TOPOLOGIES: dict[str, Build] = {**cases.SINGLE_INPUT, "held back": held_back}
del TOPOLOGIES["stores of processors"], TOPOLOGIES["punctuated"], TOPOLOGIES["joined streams"]
"""Processors do not say which records their entries belong to, and are refused. When an outer join of streams sends
what has found no partner depends on all that waits."""


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    now_ms = 0
    result: list[Row] = []
    for _ in range(draw(st.integers(1, 25))):
        now_ms += draw(st.integers(0, 6))
        at_ms = max(0, now_ms - draw(st.sampled_from([0, 0, 0, 1, 3, 9])))
        value = draw(st.one_of(st.none(), st.integers(0, 15).map(cases.encoded)))
        result.append((at_ms, draw(st.sampled_from(KEYS)), value, draw(st.sampled_from([(), (("h", b"v"),)]))))
    return result


def move_of(name: str, tasks: int) -> StageMove:
    plan = cases.plan(TOPOLOGIES[name], record_cache=False)
    (move,) = stage_moves(plan, Widths.of(plan, {TOPIC: 1}), Widths.of(plan, {TOPIC: tasks}))
    return move


def run(
    name: str, first: Sequence[Row], then: Sequence[Row], *, cache: bool, part: tuple[int, int] | None
) -> Recording:
    """Both halves in a micro-batch each, and the task built anew in between; as which of how many parts."""
    records = [cases.batch([*first, *then])]
    batches = [MicroBatch(0, batch) for batch in cut(records, [[len(first)]])]
    with pytest.MonkeyPatch.context() as patch:
        if part is not None:
            patch.setattr(recorded._RecordedTask, "rebuild", only(move_of(name, part[1]), part[0]))
        return run_recorded(
            cases.plan(TOPOLOGIES[name], record_cache=cache),
            {TOPIC: 1},
            batches,
            errors=ErrorPolicy.of("continue"),
            restarts=lambda batch, _: batch == 1,
        )


def only(move: StageMove, number: int) -> Callable[[Any, int], None]:
    """Builds a task from the part of its state that one of several new tasks gets."""
    rebuild = recorded._RecordedTask.rebuild

    def of_part(task: Any, wall_clock_ms: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with Splitter(move, Path(folder), {}) as split:
                split.add(0, task.state)
                split.finish()
            state = MemoryState()
            with closing(LocalStore(local_path(Path(folder), 0, number), stores_of(move.stage))) as local:
                for store in stores_of(move.stage):
                    state.apply({store: StoreChanges(list(local.reader(store).scan(b"", None)))})
            # All records are of one partition here, whose time each part goes on with.
            times = task.state.reader(TASK_STORE).scan(b"partition/", b"partition0")
            state.apply({TASK_STORE: StoreChanges(list(times))})
        task.state = state
        rebuild(task, wall_clock_ms)

    return of_part


def results(recording: Recording, is_wanted: Callable[[bytes], bool]) -> dict[str, list[Any]]:
    """What came out for some keys, in order."""
    (task,) = recording.tasks.values()
    found: dict[str, list[Any]] = {}
    for topic, records in task.topics.items():
        found[f"topic {topic}"] = [each for each in records if is_wanted((each.key or b"")[:1])]
    for table, of_table in task.rows.items():
        found[f"table {table}"] = [row for row in of_table if row.kind != "close" and is_wanted(str(row.key).encode())]
    letters = [letter for letter in task.dead_letters if is_wanted(letter.key or b"")]
    found["dead letters"] = [(each.operator, each.message, each.timestamp_ms) for each in letters]
    return {place: of_place for place, of_place in found.items() if of_place}


def stores(name: str, recording: Recording, is_wanted: Callable[[bytes], bool]) -> dict[str, list[tuple[bytes, bytes]]]:
    """What the stores hold of some keys."""
    (of_task,) = recording.stores.values()
    specs = {spec.name: inner_key_of(spec)[0] for spec in move_of(name, 2).stage.stores}
    found = {
        store: [(key, value) for key, value in entries if key != MARKS and is_wanted(specs[store](key))]
        for store, entries in of_task.items()
        if store in specs
    }
    return {store: entries for store, entries in found.items() if entries}


@pytest.mark.parametrize("cache", [False, True], ids=["each update", "record cache"])
@pytest.mark.parametrize("name", TOPOLOGIES)
@settings(max_examples=10, deadline=None)
@given(first=rows(), then=rows(), part=st.sampled_from([(0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]))
def test_a_part_goes_on_as_the_whole_would(
    name: str, cache: bool, first: list[Row], then: list[Row], part: tuple[int, int]
) -> None:
    number, tasks = part

    def is_mine(key: bytes) -> bool:
        return partition_of(key, tasks) == number

    mine = [row for row in then if is_mine(row[1])]
    split = run(name, first, mine, cache=cache, part=part)
    whole = run(name, first, mine, cache=cache, part=None)

    assert results(split, is_mine) == results(whole, is_mine)
    assert stores(name, split, is_mine) == stores(name, whole, is_mine)
    assert not mine or stores(name, split, lambda key: not is_mine(key)) == {}, "nothing is left of others"
