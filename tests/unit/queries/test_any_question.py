"""Any entries of any tasks, in the local store or only published, and any question: what a plain list would give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltaworks import Pipeline, SessionWindows, StreamsBuilder, TimeWindows
from deltaworks.control.checkpoint import CheckpointPlan, write_plan
from deltaworks.control.intents import Intent, Intents
from deltaworks.control.paths import PipelinePaths
from deltaworks.files import files_in
from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.kernel.task_times import TASK_STORE
from deltaworks.queries.answers import Page
from deltaworks.queries.kinds import Stream
from deltaworks.runtime.state import changelog, published
from deltaworks.runtime.state.local_store import EMPTY, LocalStore, StateVersion, stores_of
from deltaworks.runtime.state.recovery import local_path
from deltaworks.settings import Settings
from tests.support.in_memory import temporary_folder

TASKS = 2
BASE, NEWEST = StateVersion(1, b"base"), StateVersion(2, b"newest")
SIZE = timedelta(milliseconds=10)
RETENTION_MS = 60


def topology(builder: StreamsBuilder) -> None:
    def newest(_key: bytes, value: bytes, _found: bytes) -> bytes:
        return value

    builder.table("rows", key=bytes, value=bytes, store="rows")
    events = builder.stream("events", key=bytes, value=bytes).group_by_key()
    retention = timedelta(milliseconds=RETENTION_MS)
    windows, sessions = TimeWindows(size=SIZE, grace=timedelta(0)), SessionWindows(gap=SIZE, grace=timedelta(0))
    events.windowed_by(windows).aggregate(bytes, newest, value=bytes, store="windows", retention=retention)
    events.windowed_by(sessions).aggregate(
        bytes, newest, lambda _key, left, right: left + right, value=bytes, store="sessions", retention=retention
    )


pipeline = Pipeline(name="any", topology=topology)
Changed = dict[bytes, bytes | None]
"""Key -> value; None: deleted."""


@dataclass(frozen=True)
class Task:
    """The entries of a store in a task."""

    base: Changed
    newest: Changed
    is_applied: bool
    """Whether what is published is in the local store, too."""

    @property
    def entries(self) -> dict[bytes, bytes]:
        return {key: value for key, value in (self.base | self.newest).items() if value is not None}


@contextmanager
def stream_of(store: str, tasks: list[Task], newest_ms: int = 0) -> Iterator[Stream]:
    """A stream with one batch, whose store has these entries; `newest_ms` of a timed store is the same in all tasks."""
    with temporary_folder("queries-") as folder:
        home = Path(folder)
        made = replace(Settings.from_environment({}), home=home)
        plan, paths = pipeline.plan(), PipelinePaths.of(made, pipeline.name)
        partitions = {"rows": TASKS, "events": TASKS}
        write_plan(
            paths.current.plan,
            CheckpointPlan(
                lineage="", query_id="", fingerprint=plan.fingerprint(), partitions=partitions,
                tasks=plan.tasks(partitions), shards=1,
            ),
        )  # fmt: skip
        intent = Intent(
            batch=0, lineage="", query="", generation=1, code="", clock_ms=5, tick=False, ranges=[], end={},
            previous="",
        )  # fmt: skip
        Intents(files_in(paths.current.intents)).put(intent)
        commits = paths.current.spark / "commits"
        commits.mkdir(parents=True)
        (commits / "0").touch()
        (stage,) = [stage for stage in plan.stages if store in {spec.name for spec in stage.stores}]
        for number, task in enumerate(tasks):
            path = local_path(paths.current.local, stage.index, number)
            local = LocalStore(path, stores_of(stage))
            times = StoreChanges([(f"newest/{store}".encode(), newest_ms.to_bytes(TIME_BYTES, "big"))])
            local.commit({store: StoreChanges(sorted(task.base.items())), TASK_STORE: times}, BASE, EMPTY)
            changes = {store: StoreChanges(sorted(task.newest.items()))}
            if task.is_applied:
                local.commit(changes, NEWEST, BASE)
            local.close()
            published.write(path, 0, intent.digest, (BASE, NEWEST), changelog.encode(changes))
        stream = Stream(pipeline, made, patience=timedelta(0))
        try:
            yield stream
        finally:
            stream.close()


LONG = b"k" * 470
KEYS = st.one_of(
    st.binary(min_size=1, max_size=3),
    st.sampled_from([b"a", b"ab", b"a\xff", b"a\xff\xff", b"\xff\xff", b"b"]),
    st.binary(max_size=3).map(lambda end: LONG + end),
    st.binary(max_size=2).map(lambda end: b"k" * 452 + end),
)
"""Some are longer than a key of LMDB."""
TIMES = st.integers(0, 100)


def timestamped(value: int) -> bytes:
    return (7).to_bytes(TIME_BYTES, "big") + bytes([value])


def tasks_of(keys: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Task]]:
    base = st.dictionaries(keys, st.integers(0, 255).map(timestamped), max_size=12)
    newest = st.dictionaries(keys, st.one_of(st.none(), st.integers(0, 255).map(timestamped)), max_size=8)
    return st.lists(st.builds(Task, base, newest, st.booleans()), min_size=TASKS, max_size=TASKS)


def paged(page: Callable[[str | None], Page[Any]]) -> list[Any]:
    rows: list[Any] = []
    after = None
    while True:
        found = page(after)
        rows += found.rows
        if (after := found.next) is None:
            return rows
        assert found.rows, "a page that is not the last one has rows"


@settings(max_examples=80, deadline=None)
@given(tasks=tasks_of(KEYS), bounds=st.tuples(KEYS, KEYS), limit=st.integers(1, 9), reverse=st.booleans())
@example(  # keys that differ only behind what LMDB takes of them
    tasks=[
        Task({LONG + bytes([n]): timestamped(n) for n in range(9)}, {LONG + b"\3": timestamped(77)}, is_applied=False),
        Task({LONG + b"\4x": timestamped(5)}, {}, is_applied=True),
    ],
    bounds=(LONG + b"\2", LONG + b"\7"),
    limit=2,
    reverse=True,
)
def test_ranges_of_keys(tasks: list[Task], bounds: tuple[bytes, bytes], limit: int, reverse: bool) -> None:
    expected = sorted((key, n, value[-1:]) for n, task in enumerate(tasks) for key, value in task.entries.items())
    first, last = sorted(bounds)
    with stream_of("rows", tasks) as stream:
        rows = stream.store("rows")

        def shown(wanted: Callable[[bytes], bool]) -> list[tuple[bytes, bytes]]:
            found = [(key, value) for key, _, value in expected if wanted(key)]
            return found[::-1] if reverse else found

        def asked(method: Callable[..., Page[Any]], *arguments: Any) -> list[tuple[bytes, bytes]]:
            found = paged(lambda after: method(*arguments, limit=limit, after=after, reverse=reverse))
            return [(row.key, row.value) for row in found]

        assert asked(rows.all) == shown(lambda _: True)
        assert asked(rows.range, first, last) == shown(lambda key: first <= key <= last)
        assert asked(rows.range, None, last) == shown(lambda key: key <= last)
        assert asked(rows.range, first, None) == shown(lambda key: key >= first)
        assert asked(rows.prefix, first) == shown(lambda key: key.startswith(first))
        assert rows.stats().entries == len(expected)
        for key in {first, last, *(key for key, _, _ in expected[:5])}:
            values = [value for other, _, value in expected if other == key]
            found = rows.get(key).value
            assert found in values if values else found is None


def windows_of(keys: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.builds(lambda key, start_ms: key + (10 * start_ms).to_bytes(TIME_BYTES, "big"), keys, st.integers(0, 10))


@settings(max_examples=60, deadline=None)
@given(
    tasks=tasks_of(windows_of(KEYS)), span=st.tuples(TIMES, TIMES), keys=st.tuples(KEYS, KEYS), limit=st.integers(1, 9)
)
@example(  # the index by time has these keys by their digests
    tasks=[
        Task({LONG + bytes([n, *bytes(7), 90]): timestamped(n) for n in range(9)}, {}, is_applied=False),
        Task({}, {LONG + bytes([n, *bytes(7), 90]): timestamped(n) for n in range(9)}, is_applied=False),
    ],
    span=(0, 100),
    keys=(LONG, LONG + b"\5"),
    limit=2,
)
def test_windows(tasks: list[Task], span: tuple[int, int], keys: tuple[bytes, bytes], limit: int) -> None:
    newest_ms = 100
    (from_ms, to_ms), (first, last) = sorted(span), sorted(keys)
    expected = sorted(
        (int.from_bytes(data[-TIME_BYTES:], "big"), data, n, value[-1:])
        for n, task in enumerate(tasks)
        for data, value in task.entries.items()
        if int.from_bytes(data[-TIME_BYTES:], "big") > newest_ms - RETENTION_MS
    )
    with stream_of("windows", tasks, newest_ms) as stream:
        windows = stream.store("windows")

        def asked(method: Callable[..., Page[Any]], *arguments: Any, **named: Any) -> list[tuple[int, bytes, bytes]]:
            found = paged(lambda after: method(*arguments, **named, limit=limit, after=after))
            assert all(row.end_ms == row.start_ms + 10 for row in found)
            return [(row.start_ms, row.key, row.value) for row in found]

        def shown(wanted: Callable[[int, bytes], bool]) -> list[tuple[int, bytes, bytes]]:
            rows = [(start_ms, data[:-TIME_BYTES], value) for start_ms, data, _, value in expected]
            return [row for row in rows if wanted(*row[:2])]

        assert asked(windows.fetch_all) == shown(lambda *_: True)
        assert asked(windows.fetch_all, from_ms, to_ms) == shown(lambda start, _: from_ms <= start <= to_ms)
        assert asked(windows.fetch_all, from_key=first, to_key=last) == shown(lambda _, key: first <= key <= last)
        for key in {first, *(data[:-TIME_BYTES] for _, data, _, _ in expected[:4])}:
            assert asked(windows.fetch, key, from_ms, to_ms) == shown(
                lambda start, other, key=key: other == key and from_ms <= start <= to_ms  # type: ignore[misc]
            )
        for start_ms, key, _ in shown(lambda *_: True)[:4]:
            values = {value for start, other, value in shown(lambda *_: True) if (start, other) == (start_ms, key)}
            assert windows.get(key, start_ms).value in values


def sessions_of(keys: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    def made(key: bytes, times: tuple[int, int]) -> bytes:
        return key + b"".join(time_ms.to_bytes(TIME_BYTES, "big") for time_ms in sorted(times))

    return st.builds(made, keys, st.tuples(TIMES, TIMES))


@settings(max_examples=60, deadline=None)
@given(tasks=tasks_of(sessions_of(KEYS)), span=st.tuples(TIMES, TIMES), limit=st.integers(1, 9))
def test_sessions(tasks: list[Task], span: tuple[int, int], limit: int) -> None:
    newest_ms = 100
    from_ms, to_ms = sorted(span)
    expected = sorted(
        (end_ms, start_ms, key, value)
        for task in tasks
        for data, value in task.entries.items()
        for key, start_ms, end_ms in [
            (data[:-16], int.from_bytes(data[-16:-8], "big"), int.from_bytes(data[-8:], "big"))
        ]
        if end_ms > newest_ms - RETENTION_MS
    )
    with stream_of("sessions", tasks, newest_ms) as stream:
        sessions = stream.store("sessions")

        def asked(method: Callable[..., Page[Any]], *arguments: Any) -> list[Any]:
            found = paged(lambda after: method(*arguments, limit=limit, after=after))
            return [(row.end_ms, row.start_ms, row.key, row.value) for row in found]

        assert sorted(asked(sessions.fetch_all)) == expected
        assert [row[0] for row in asked(sessions.fetch_all)] == [row[0] for row in expected]
        assert sorted(asked(sessions.fetch_all, from_ms, to_ms)) == [
            row for row in expected if from_ms <= row[0] <= to_ms
        ]
        for key in {key for _, _, key, _ in expected[:4]}:
            mine = [row for row in expected if row[2] == key]
            assert sorted(asked(sessions.fetch, key)) == mine
            assert [row[:2] for row in asked(sessions.fetch, key)] == [row[:2] for row in mine]
            assert sorted(asked(sessions.fetch, key, from_ms, to_ms)) == [
                row for row in mine if row[0] >= from_ms and row[1] <= to_ms
            ]
        for end_ms, start_ms, key, _ in expected[:4]:
            values = {row[3] for row in expected if row[:3] == (end_ms, start_ms, key)}
            assert sessions.get(key, start_ms, end_ms).value in values
