"""What queries cost: `python -m tests.benchmarks.queries [ENTRIES]`.

Point reads and pages per CPU second, of a store of two tasks whose newest batch is only published; the same keys over
HTTP, asked one by one and many at once. What publishing adds
to a batch: the same changes are appended to a task's state with it and without, in turns, in one process.
"""

from __future__ import annotations

import asyncio
import base64
import json
import multiprocessing
import random
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import uvicorn

from deltaworks.kernel.partitioning import partition_of
from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.queries import Stream
from deltaworks.query_server.access import Access
from deltaworks.query_server.app import application
from deltaworks.query_server.streams import Streams
from deltaworks.runtime.state import changelog, published
from deltaworks.runtime.state.local_store import EMPTY, LocalStore
from deltaworks.runtime.state.recovery import NOTHING, append, next_version
from tests.benchmarks.measure import CpuClock
from tests.support.in_memory import temporary_folder
from tests.support.task_state import TaskState
from tests.unit.queries.test_any_question import TASKS, Task, stream_of

_READS, _ROUNDS = 20_000, 15
_NEWEST = 1_000
_PAGE = 100
_REQUESTS, _MANY = 2_000, 50
_HOST = "127.0.0.1"


def main(entries: int) -> None:
    found = {"reads": reads(entries), "http": over_http(entries), "publishing": publishing()}
    json.dump(found, sys.stdout, indent=1)
    print()


@contextmanager
def filled(entries: int) -> Iterator[tuple[Stream, list[bytes]]]:
    """A stream with a store of so many entries, and the keys of it that are asked for."""
    value = (7).to_bytes(TIME_BYTES, "big") + b"v" * 40
    keys = [b"user-%09d" % number for number in range(entries)]
    parts: list[dict[bytes, bytes]] = [{} for _ in range(TASKS)]
    for key in keys:
        parts[partition_of(key, TASKS)][key] = value
    newest = set(random.Random(2).sample(keys, _NEWEST))
    tasks = [Task(dict(part), {key: value for key in part if key in newest}, is_applied=False) for part in parts]
    wanted = random.Random(1).choices(keys, k=_READS)
    with stream_of("rows", tasks) as stream:
        yield stream, wanted


def reads(entries: int) -> dict[str, float]:
    """Reads per CPU second."""
    with filled(entries) as (stream, wanted):
        rows = stream.store("rows")
        rows.get(wanted[0])

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


def over_http(entries: int) -> list[dict[str, float]]:
    """Requests to a server in a process of its own, of several connections at once, on the cores of all."""
    context = multiprocessing.get_context("spawn")
    told, telling = context.Pipe(duplex=False)
    server = context.Process(target=_serve, args=(entries, telling), daemon=True)
    server.start()
    try:
        port, wanted = told.recv()
        return [asyncio.run(_asked(port, server.pid or 0, wanted, *kind)) for kind in ((1, 1), (8, 1), (4, _MANY))]
    finally:
        server.terminate()
        server.join()


def _serve(entries: int, telling: Connection) -> None:
    with filled(entries) as (stream, wanted), socket.create_server((_HOST, 0)) as listener:
        streams = Streams(lambda: ["bench"], lambda _: stream, patience_s=0)
        config = uvicorn.Config(application(streams, Access()), log_level="warning", access_log=False)
        telling.send((listener.getsockname()[1], [key.hex() for key in wanted]))
        uvicorn.Server(config).run([listener])


async def _asked(port: int, server: int, wanted: list[str], connections: int, keys: int) -> dict[str, float]:
    """Requests for so many keys each."""
    times_s: list[float] = []
    clock, begin = CpuClock(server), time.perf_counter()
    before = clock.seconds()
    await asyncio.gather(*(_connection(port, wanted, keys, times_s) for _ in range(connections)))
    took_s, cpu = time.perf_counter() - begin, clock.seconds() - before
    times_s.sort()
    return {
        "connections": connections,
        "keys_per_request": keys,
        "requests_per_second": round(len(times_s) / took_s),
        "keys_per_second": round(keys * len(times_s) / took_s),
        "keys_per_cpu_second_of_the_server": round(keys * len(times_s) / cpu),
        "p50_ms": round(1_000 * times_s[len(times_s) // 2], 2),
        "p99_ms": round(1_000 * times_s[len(times_s) * 99 // 100], 2),
    }


async def _connection(port: int, wanted: list[str], keys: int, times_s: list[float]) -> None:
    reader, writer = await asyncio.open_connection(_HOST, port)
    path = "/pipelines/bench/stores/rows/keys"
    for number in range(_REQUESTS if keys == 1 else _REQUESTS // 5):
        if keys == 1:
            request = f"GET {path}/{wanted[number % len(wanted)]} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
        else:
            body = json.dumps([base64.b64encode(bytes.fromhex(key)).decode() for key in wanted[number : number + keys]])
            request = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        begin = time.perf_counter()
        head = await answered(reader, writer, request)
        assert head.startswith(b"HTTP/1.1 200"), head
        times_s.append(time.perf_counter() - begin)
    writer.close()


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    """Sends a request and reads the answer; its head."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    return head


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
