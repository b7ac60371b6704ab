"""What queries cost: `python -m tests.benchmarks.queries [ENTRIES]`.

Point reads and pages per CPU second, of a store of two tasks whose newest batch is only published. What publishing adds
to a batch: the same changes are appended to a task's state with it and without, in turns, in one process.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from deltaworks.kernel.partitioning import partition_of
from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.runtime.state import changelog, published
from deltaworks.runtime.state.local_store import EMPTY, LocalStore
from deltaworks.runtime.state.recovery import NOTHING, append, next_version
from tests.support.in_memory import temporary_folder
from tests.support.task_state import TaskState
from tests.unit.queries.test_any_question import TASKS, Task, stream_of

_READS, _ROUNDS = 20_000, 15
_NEWEST = 1_000
_PAGE = 100


def main(entries: int) -> None:
    json.dump({"reads": reads(entries), "publishing": publishing()}, sys.stdout, indent=1)
    print()


def reads(entries: int) -> dict[str, float]:
    """Reads per CPU second."""
    value = (7).to_bytes(TIME_BYTES, "big") + b"v" * 40
    keys = [b"user-%09d" % number for number in range(entries)]
    parts: list[dict[bytes, bytes]] = [{} for _ in range(TASKS)]
    for key in keys:
        parts[partition_of(key, TASKS)][key] = value
    newest = set(random.Random(2).sample(keys, _NEWEST))
    tasks = [Task(dict(part), {key: value for key in part if key in newest}, is_applied=False) for part in parts]
    wanted = random.Random(1).choices(keys, k=_READS)
    with stream_of("rows", tasks) as stream:
        rows = stream.store("rows")
        rows.get(keys[0])

        def points() -> None:
            for key in wanted:
                rows.get(key)

        def pages() -> None:
            for key in wanted[:200]:
                rows.range(key, None, limit=_PAGE)

        return {
            "entries": entries,
            "point_reads_per_cpu_second": round(_READS / cpu_s(points)),
            "rows_in_pages_per_cpu_second": round(200 * _PAGE / cpu_s(pages)),
        }


def publishing() -> list[dict[str, float]]:
    """Milliseconds of CPU per task and batch: appending the changes, and the same with publishing."""
    found = []
    for size in (10, 1_000, 50_000):
        with temporary_folder("publishing-") as folder:
            path = Path(folder) / "0-0"
            LocalStore(path, {"rows": False}).close()
            seconds: dict[bool, list[float]] = {False: [], True: []}
            for turn in range(2 * _ROUNDS):
                seconds[turn % 2 == 1].append(cpu_s(partial(_batch, path, size, turn)))
            without, with_it = (1_000 * statistics.median(seconds[is_published]) for is_published in (False, True))
            found.append({"changes": size, "without_ms": round(without, 3), "with_ms": round(with_it, 3)})
    return found


def _batch(path: Path, size: int, turn: int) -> None:
    changes = {"rows": StoreChanges([(b"user-%09d" % number, b"v" * 48) for number in range(size)])}
    chunks, version = changelog.encode(changes), next_version(NOTHING)
    append(TaskState(), NOTHING, version, changes, chunks)
    if turn % 2 == 1:
        published.write(path, turn, "0" * 64, (EMPTY, version), chunks)


def cpu_s(what: Callable[[], None]) -> float:
    """CPU seconds of this process."""
    begin = time.process_time()
    what()
    return time.process_time() - begin


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
