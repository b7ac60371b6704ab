"""Without a person's entries a task goes on as before for all other keys, and for theirs as if they were new."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks import (
    BufferConfig,
    OrderedBytes,
    Processor,
    Record,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from deltaworks.erase import entries
from deltaworks.kernel.errors import ErrorPolicy
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.kernel.stores.waiting_list import MARKS
from deltaworks.kernel.task import TASK_STORE
from deltaworks.testing import recorded
from deltaworks.testing.recorded import MicroBatch, Recording, cut, run_recorded
from deltaworks.topology.persons import Person
from tests.properties import cases
from tests.properties.cases import TOPIC, Build, ms

THEIRS, OTHER = b"u-17", b"u-99"
PERSON = Person.of("u-17")
_IN_KEY = re.compile(rb"u-17(?!\d)")
Row = tuple[int, bytes, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Kept:
    """A store of a user's own."""

    def __init__(self, entries: OrderedBytes) -> None:
        self._entries = entries

    def add(self, key: str) -> int:
        count = int.from_bytes(self._entries.get(key.encode()) or b"", "big") + 1
        self._entries.put(key.encode(), count.to_bytes(2, "big"))
        return count


class Keeping(Processor[str, int, str, int]):
    """Writes each kind of store that operators do not have."""

    stores = (
        Stores.custom("kept", Kept),
        Stores.lru("used", key=str, value=int, max_entries=100),
        Stores.window("listed", key=str, value=int, window_size=ms(5), retention=ms(30), retain_duplicates=True),
    )

    def process(self, record: Record[str, int]) -> None:
        kept: Any = self.context.state_store("kept")
        used: Any = self.context.state_store("used")
        listed: Any = self.context.state_store("listed")
        before = used.get(record.key) or 0
        used.put(record.key, before + 1)
        listed.put(record.key, record.value, record.timestamp_ms // 5 * 5)
        of_key = sum(1 for _ in listed.fetch_range(record.key, 0, record.timestamp_ms))
        self.context.forward(record.with_value(kept.add(record.key) * 10_000 + before * 100 + of_key))


def keeping(builder: StreamsBuilder) -> None:
    stream = builder.stream(TOPIC, key=str, value=int).filter(lambda _, value: value is not None)
    stream.process(Keeping, name="keeping").to("kept")


def held_back(builder: StreamsBuilder) -> None:
    """Until windows close. With a time limit, or in a full buffer, who waits depends on what all keys send."""
    stream = builder.stream(TOPIC, key=str, value=int)
    counts = stream.group_by_key().windowed_by(TimeWindows(size=ms(10), grace=ms(3))).count(store="counts")
    counts.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()), store="closing").to_delta("counts")


def by_foreign_key(builder: StreamsBuilder) -> None:
    """Nobody's foreign key is the person's."""
    table = builder.table(TOPIC, key=str, value=int, store="rows")
    joined = table.left_join(
        table,
        lambda one, other: one * 16 + (other or 0),
        foreign_key=lambda _, value: ["b", "u-1", None][value % 3],
        value=int,
        name="by-key",
        store="joined",
    )
    joined.to_stream().to("joined")


TOPOLOGIES: dict[str, Build] = {
    **cases.SINGLE_INPUT,
    "keeping": keeping,
    "held back": held_back,
    "by foreign key": by_foreign_key,
}
del TOPOLOGIES["stores of processors"], TOPOLOGIES["joined streams"]
"""In these, keys depend on each other: a processor looks at all entries; and when an outer join of streams sends what
has found no partner depends on all that waits, as does a joiner that fails on it. (`tests/unit/erase/test_entries.py`
has their stores.)"""


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    now_ms = 0
    result: list[Row] = []
    for _ in range(draw(st.integers(1, 20))):
        now_ms += draw(st.integers(0, 6))
        at_ms = max(0, now_ms - draw(st.sampled_from([0, 0, 0, 1, 3, 9])))
        key = draw(st.sampled_from([THEIRS, THEIRS, b"u-171", b"u-1", b"b"]))
        value = draw(st.one_of(st.none(), st.integers(0, 15).map(cases.encoded)))
        result.append((at_ms, key, value, draw(st.sampled_from([(), (("h", b"v"),)]))))
    return result


def run(name: str, first: Sequence[Row], then: Sequence[Row], *, cache: bool, erasing: bool) -> Recording:
    """Both halves in a micro-batch each, and every task built anew in between."""
    parts = [cases.batch([*first, *then])]
    batches = [MicroBatch(0, records) for records in cut(parts, [[len(first)]])]
    plan = cases.plan(TOPOLOGIES[name], record_cache=cache)
    with pytest.MonkeyPatch.context() as patch:
        if erasing:
            patch.setattr(recorded._RecordedTask, "rebuild", erased(recorded._RecordedTask.rebuild))
        return run_recorded(
            plan, {TOPIC: 1}, batches, errors=ErrorPolicy.of("continue"), restarts=lambda batch, _: batch == 1
        )


def erased(rebuild: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    """Builds a task from its state without the person."""

    def without(task: Any, wall_clock_ms: int) -> None:
        for spec in task.stage.stores:
            stored = list(task.state.reader(spec.name).scan(b"", None))
            task.state.apply({spec.name: StoreChanges(list(entries.changes(task.stage, spec, stored, PERSON)))})
            left = task.state.reader(spec.name).scan(b"", None)
            assert not any(is_theirs(key) for key, _ in left)
        rebuild(task, wall_clock_ms)

    return without


def results(recording: Recording, is_wanted: Callable[[bytes], bool]) -> dict[str, list[Any]]:
    """What came out for some keys, in order, and what the stores hold of them."""
    found: dict[str, list[Any]] = {}
    for (stage, number), task in recording.tasks.items():
        where = f"{stage}-{number}"
        for topic, records in task.topics.items():
            found[f"topic {topic} of {where}"] = [each for each in records if is_wanted(each.key or b"")]
        for table, of_table in task.rows.items():
            mine = [row for row in of_table if row.kind != "close" and is_wanted(repr(row.key).encode())]
            found[f"table {table} of {where}"] = mine
    return {name: of_name for name, of_name in found.items() if of_name}


def stores(
    name: str, recording: Recording, is_wanted: Callable[[bytes], bool], now_ms: int
) -> dict[str, list[tuple[bytes, bytes]]]:
    """What the stores hold of some keys; the times of the task and of its waiting lists are nobody's.

    Entries that are over count for nothing: when a store removes them depends on the newest entry of all keys.
    """
    found: dict[str, list[tuple[bytes, bytes]]] = {}
    specs = {spec.name: spec for spec in cases.plan(TOPOLOGIES[name], record_cache=False).stores}
    for task, of_task in recording.stores.items():
        for store, stored in of_task.items():
            mine = [(key, value) for key, value in stored if key != MARKS and is_wanted(key)]
            spec = specs.get(store)
            if spec is not None and spec.timed and spec.retention_ms is not None:
                end_ms = now_ms - spec.retention_ms
                mine = [(key, value) for key, value in mine if int.from_bytes(key[-8:], "big") >= end_ms]
            if (
                spec is not None and spec.kind == "lru"
            ):  # who was used after whom: the numbers have gaps where others were removed
                mine = [(key, value[8:]) for key, value in sorted(mine, key=lambda entry: entry[1][:8])]
            if mine and store != TASK_STORE:
                found[f"{store} of {task}"] = mine
    return found


def is_theirs(key: bytes) -> bool:
    return _IN_KEY.search(key) is not None


def is_of_others(key: bytes) -> bool:
    return not is_theirs(key) and OTHER not in key


@pytest.mark.parametrize("cache", [False, True], ids=["each update", "record cache"])
@pytest.mark.parametrize("name", TOPOLOGIES)
@settings(max_examples=30, deadline=None)
@given(first=rows(), then=rows())
def test_others_go_on_and_the_person_begins_anew(name: str, cache: bool, first: list[Row], then: list[Row]) -> None:
    renamed = [(at, OTHER if key == THEIRS else key, value, headers) for at, key, value, headers in first]

    without = run(name, first, then, cache=cache, erasing=True)
    unchanged = run(name, first, then, cache=cache, erasing=False)
    before = results(run(name, first, [], cache=cache, erasing=False), is_theirs)
    anew = run(name, renamed, then, cache=cache, erasing=False)

    assert results(without, is_of_others) == results(unchanged, is_of_others)
    now_ms = max(at_ms for at_ms, *_ in (*first, *then))
    assert stores(name, without, is_of_others, now_ms) == stores(name, unchanged, is_of_others, now_ms)
    theirs = {place: found[len(before.get(place, [])) :] for place, found in results(without, is_theirs).items()}
    assert {place: found for place, found in theirs.items() if found} == results(anew, is_theirs)
    assert stores(name, without, is_theirs, now_ms) == stores(name, anew, is_theirs, now_ms)
