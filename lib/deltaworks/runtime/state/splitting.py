"""Spreads the stores of a stage over another number of tasks, each entry to the task that gets the records of its key.

What a task knows beside its entries (`__task__`) goes to all tasks that may get keys of it. Where keys of several tasks
come together, times become the largest of theirs, as if one task had seen all of their records.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

from deltaworks.errors import IncompatibleCheckpointError
from deltaworks.kernel import migration, resend
from deltaworks.kernel.partitioning import hash_of
from deltaworks.kernel.stores import lru, waiting_list
from deltaworks.kernel.stores.keys import inner_key_of
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.kernel.stores.subscriptions import keys_of, with_task
from deltaworks.kernel.task_times import FAILED, SCHEMA, TASK_STORE
from deltaworks.runtime.state.local_store import LocalStore, LocalTransaction, discard, stores_of
from deltaworks.runtime.state.recovery import NOTHING, local_path, next_version
from deltaworks.topology.rescaling import Keys, StageMove, StoreMove, children
from deltaworks.topology.stages import StoreSpec

Hash = Callable[[bytes], int]
"""From the bytes of a key to the number whose remainder, divided by that of partitions, is the partition."""
PARTITIONERS: Mapping[str, Hash] = {"murmur2": hash_of, "crc32": zlib.crc32}
"""How producers choose the partition of a key: Java's and those set to `murmur2`; librdkafka's default."""
DEFAULT = "murmur2"
Seen = Callable[[StoreSpec, bytes, int], None]
"""`(store, bytes of its key without windows, new task)`, called for each entry."""
_BATCH = 2_000


class Splitter:
    """The new stores of one stage.

    ```python
    with Splitter(move, folder, {}) as split:
        for task in range(move.before):
            split.add(task, local_store_of(task))
        split.finish()
    # local_path(folder, stage, task) has the new stores of each task
    ```

    Args:
        move: of the stage.
        folder: for the new stores; those of the stage must not exist.
        partitioners: topic -> the name of its producers' partitioner, where it is not `DEFAULT`.
        seen: hears of each entry with a key.
    """

    def __init__(
        self, move: StageMove, folder: Path, partitioners: Mapping[str, str], seen: Seen = lambda spec, key, task: None
    ) -> None:
        self._move, self._folder, self._seen = move, folder, seen
        self._partitioners = partitioners
        self._times: dict[int, dict[bytes, list[tuple[int, bytes]]]] = defaultdict(lambda: defaultdict(list))
        """New task -> name in `__task__` -> old tasks and what they have."""
        self._marks: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        """Waiting list and new task -> the marks of old tasks."""
        self._used: dict[tuple[str, int], list[tuple[bytes, bytes]]] = defaultdict(list)
        """LRU store and new task -> its entries."""
        self._waiting: dict[tuple[int, str], list[tuple[bytes, bytes | None]]] = defaultdict(list)
        self._stack = ExitStack()
        self._new: list[LocalTransaction] = []

    def __enter__(self) -> Splitter:
        stage, stores = self._move.stage.index, stores_of(self._move.stage)
        for task in range(self._move.after):
            path = local_path(self._folder, stage, task)
            discard(path)
            local = self._stack.enter_context(closing(LocalStore(path, stores)))
            self._new.append(self._stack.enter_context(local.transaction()))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, task: int, local: LocalStore) -> None:
        """Spreads the stores of an old task.

        Raises:
            IncompatibleCheckpointError: a key is not where its partitioner would have put it.
        """
        for key, value in local.reader(TASK_STORE).scan(b"", None):
            for new in self._heirs(key, task):
                self._times[new][key].append((task, value))
        for spec in self._move.stage.stores:
            self._add(self._move.stores[spec.name], task, local.reader(spec.name).scan(b"", None))

    def finish(self) -> None:
        """Makes the new stores last.

        Raises:
            IncompatibleCheckpointError: what the old tasks know cannot be brought together.
        """
        for (name, task), marks in self._marks.items():
            self._put(name, task, waiting_list.MARKS, waiting_list.earliest(marks))
        for (name, task), entries in self._used.items():
            spec = self._move.stores[name].spec
            assert spec.max_entries is not None
            for key, value in lru.last_used(entries, spec.max_entries):
                self._put(name, task, key, value)
        for task, names in self._times.items():
            for key, values in names.items():
                self._put(TASK_STORE, task, key, self._together(key, values))
        for place in list(self._waiting):
            self._flush(place)
        for transaction in self._new:
            transaction.commit(next_version(NOTHING))

    def _add(self, move: StoreMove, task: int, entries: Iterable[tuple[bytes, bytes]]) -> None:
        spec, keys = move.spec, move.keys
        if keys.before == keys.after and move.left is None:
            seen, inner = self._seen, inner_key_of(spec)[0]
            for key, value in entries:
                self._put(spec.name, task, key, value)
                if key != waiting_list.MARKS:
                    seen(spec, inner(key), task)
            return
        place, inner = self._places(keys, spec, task), inner_key_of(spec)[0]
        record_key = self._record_key(move)
        for key, value in entries:
            if spec.kind == "waiting-list" and key == waiting_list.MARKS:
                for new in keys.children(task):
                    self._marks[spec.name, new].append(value)
                continue
            new = place(record_key(key))
            if move.left is not None:
                left = self._hash(move.left)(keys_of(key)[1])
                value = with_task(value, left % move.left.after)
            if spec.kind == "lru":
                self._used[spec.name, new].append((key, value))
                continue
            self._put(spec.name, new, key, value)
            self._seen(spec, inner(key), new)

    def _places(self, keys: Keys, spec: StoreSpec, task: int) -> Callable[[bytes], int]:
        """From the key of a record to its new task; remembers the last one, since entries come in order of keys."""
        if keys.before == keys.after:
            return lambda key: task
        hash_of_key, before, after = self._hash(keys), keys.before, keys.after
        last: tuple[bytes, int] | None = None

        def place(key: bytes) -> int:
            nonlocal last
            if last is None or last[0] != key:
                number = hash_of_key(key)
                if number % before != task:
                    raise self._misplaced(spec, keys, task)
                last = key, number % after
            return last[1]

        return place

    def _record_key(self, move: StoreMove) -> Callable[[bytes], bytes]:
        inner, serde = inner_key_of(move.spec)
        function = move.spec.record_key
        if function is None:
            return inner

        def record_key(key: bytes) -> bytes:
            assert function is not None
            try:
                return move.keys.serde.serialize(function(serde.deserialize(inner(key))))
            except Exception as error:
                raise IncompatibleCheckpointError(
                    f"record_key= of the store '{move.spec.name}' failed for an entry: {type(error).__name__}: {error}",
                    hint="nothing has been changed; correct the function",
                ) from error

        return record_key

    def _hash(self, keys: Keys) -> Hash:
        names = {self._partitioners.get(topic, DEFAULT) for topic in keys.topics} or {DEFAULT}
        if len(names) > 1:
            told = ", ".join(f"'{topic}' {self._partitioners.get(topic, DEFAULT)}" for topic in keys.topics)
            raise IncompatibleCheckpointError(
                f"The producers of these topics place the same key differently ({told}), so a key has state in two "
                "tasks.",
                hint="nothing can bring that together; the pipeline can only start over, with topics that are "
                "partitioned alike",
            )
        return PARTITIONERS[names.pop()]

    def _misplaced(self, spec: StoreSpec, keys: Keys, task: int) -> IncompatibleCheckpointError:
        name = self._partitioners.get(keys.topics[0], DEFAULT) if keys.topics else DEFAULT
        who = f"the producers of {', '.join(keys.topics)} place" if keys.topics else "something has placed"
        return IncompatibleCheckpointError(
            f"The store '{spec.name}' has a key in task {task} that {name} does not place there, with {keys.before} "
            f"partitions: {who} keys in another way, so nothing says where the entry belongs.",
            hint="nothing has been changed. If the producers use another partitioner, name it: --partitioner crc32; "
            "the stream can go on with the partitions that it had",
        )

    def _put(self, store: str, task: int, key: bytes, value: bytes) -> None:
        waiting = self._waiting[task, store]
        waiting.append((key, value))
        if len(waiting) >= _BATCH:
            self._flush((task, store))

    def _flush(self, place: tuple[int, str]) -> None:
        task, store = place
        self._new[task].apply({store: StoreChanges(self._waiting.pop(place))})

    def _heirs(self, key: bytes, task: int) -> Iterable[int]:
        """The new tasks that get what an old one knows under a name."""
        name = key.decode()
        kind, _, rest = name.partition("/")
        if kind in ("observed", "newest", "emitted", "paused", SCHEMA.rstrip("/")):
            store = rest if rest in self._move.stores else rest.rpartition("/")[0]
            if store in self._move.stores:
                return self._move.stores[store].keys.children(task)
        if kind == "partition":
            topic, _, number = rest.rpartition("/")
            if self._move.stage.reads(topic):
                return (int(number),)  # a task reads the partition of its number
        return children(task, self._move.before, self._move.after)

    def _together(self, key: bytes, values: list[tuple[int, bytes]]) -> bytes:
        name, found = key.decode(), [value for _, value in values]
        if len(set(found)) == 1:
            return found[0]
        if name.startswith(SCHEMA):
            return migration.both(found)
        if name.startswith(FAILED):
            return resend.both(found)
        if name.startswith("emitted/"):
            raise IncompatibleCheckpointError(
                f"Tasks that come together have forwarded closed windows of '{name.partition('/')[2]}' up to different "
                "times, so some would be forwarded twice or never.",
                hint="choose a number of partitions that is a multiple of the one before: then tasks are only divided",
            )
        if name.startswith(("punctuator/", "turn/")):
            return min(values)[1]
        return max(found)
