"""What requests to its stores cost a stream: `python -m tests.benchmarks.queries_beside [--repeats 7]`.

One stream gets a steady flow, in turns with requests and without: 500 per second for keys of a table, through
`deltaworks store serve`. The CPU of the stream counts, not that of the server, of the clients and of the broker.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deltaworks.settings import Settings
from deltaworks.stack.ports import free_ports
from tests.benchmarks.queries import answered
from tests.benchmarks.run import broker, broker_settings, describe_machine, say
from tests.benchmarks.start import Clone, Driver, Sample, home

_JOB, _STORE = "orders", "users"
_FIRST, _PER_S = 20_000, 1_000
_REQUESTS_PER_S, _CONNECTIONS = 500, 4
_HOST = "127.0.0.1"


class Clients:
    """Connections that ask one key after the other, at a steady rate."""

    def __init__(self, port: int, keys: Sequence[str]) -> None:
        self._port, self._keys = port, keys
        self._enough = threading.Event()
        self.times_s: list[float] = []

    @contextmanager
    def asking(self) -> Iterator[None]:
        """They ask until the end of the block."""
        self._enough.clear()
        thread = threading.Thread(target=lambda: asyncio.run(self._all()), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._enough.set()
            thread.join()

    async def _all(self) -> None:
        await asyncio.gather(*(self._one(number) for number in range(_CONNECTIONS)))

    async def _one(self, number: int) -> None:
        reader, writer = await asyncio.open_connection(_HOST, self._port)
        begun = time.perf_counter()
        for turn, key in enumerate(itertools.cycle(self._keys[number::_CONNECTIONS])):
            if self._enough.is_set():
                break
            await asyncio.sleep(begun + turn * _CONNECTIONS / _REQUESTS_PER_S - time.perf_counter())
            path = f"/pipelines/{_JOB}/stores/{_STORE}/keys/{urllib.parse.quote(key, safe='')}"
            asked = time.perf_counter()
            head = await answered(reader, writer, f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
            if head.startswith(b"HTTP/1.1 200"):
                self.times_s.append(time.perf_counter() - asked)
        writer.close()


@contextmanager
def serving(clone: Clone, settings: Settings) -> Iterator[int]:
    """The server's port."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "deltaworks.cli", "store", "serve", "--port", str(port)]
    environment = clone.environment(settings)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert str(port) in server.stdout.readline()
        try:
            yield port
        finally:
            server.terminate()


def _keys(port: int) -> list[str]:
    address = f"http://{_HOST}:{port}/pipelines/{_JOB}/stores/{_STORE}/entries?limit=1000"
    with urllib.request.urlopen(address, timeout=30) as answer:
        return [row["key"] for row in json.load(answer)["rows"]]


def measure(settings: Settings, repeats: int, fed_s: float) -> list[tuple[float, float]]:
    """CPU seconds of the stream per record, without requests and with them, in pairs."""
    sample = Sample.of(settings, _JOB)
    sample.more(_FIRST)
    clone = Clone(name="this", root=settings.project)
    driver = Driver(clone, settings, _JOB)

    def fed() -> float:
        before, records = driver.cpu_s, round(_PER_S * fed_s)
        sample.more(records, _PER_S)
        driver.until(lambda: driver.caught_up(settings.bootstrap, snapshots=False))
        return (driver.cpu_s - before) / records

    try:
        driver.until(lambda: driver.caught_up(settings.bootstrap))
        found = []
        with serving(clone, settings) as port:
            clients = Clients(port, _keys(port))
            fed()  # classes, compiled code
            for number in range(repeats):
                if number % 2:
                    with clients.asking():
                        asked_s = fed()
                    alone_s = fed()
                else:
                    alone_s = fed()
                    with clients.asking():
                        asked_s = fed()
                found.append((alone_s, asked_s))
                say(f"CPU per record: {1e6 * alone_s:.0f} us alone, {1e6 * asked_s:.0f} us with requests")
        times_s = sorted(clients.times_s)
        say(
            f"{len(times_s)} answers, p50 {1e3 * times_s[len(times_s) // 2]:.1f} ms, "
            f"p99 {1e3 * times_s[len(times_s) * 99 // 100]:.1f} ms"
        )
        return found
    finally:
        driver.end()


def main(arguments: Sequence[str]) -> int:
    """Measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="deltaworks-bench-") as folder:
        settings = broker_settings(Path(folder), None)
        with broker(settings), home(settings, "asked") as own:
            found = measure(own, options.repeats, options.seconds)
    print(describe_machine())
    ratios = [asked / alone for alone, asked in found]
    print(
        f"{_JOB}, {_PER_S} records/s: CPU per record with {_REQUESTS_PER_S} requests/s is "
        f"{statistics.median(ratios):.3f} of that without, median of {len(ratios)} pairs "
        f"({min(ratios):.3f} - {max(ratios):.3f})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
