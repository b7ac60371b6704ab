"""A machine whose network does not reach everything: processes connect through relays, each of which can be cut.

A line that is cut loses nothing and ends nothing, as when a cable is pulled: what is sent waits, connections stay open
on both sides, new ones are not answered. Once it is mended, what waits arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import native

_SOURCE = Path(__file__).parent / "native" / "lines.c"
_CHUNK = 1 << 16


@dataclass
class _Line:
    """To one port; of the thread with the relays."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    server: asyncio.Server | None = None
    connections: int = 0
    held: int = 0
    """Bytes and connections that waited."""


class Lines:
    """The lines from one machine to servers.

    Args:
        folder: for a library, which all users must be able to read.
        servers: the name of a server -> its ports on 127.0.0.1.
    """

    def __init__(self, folder: Path, servers: Mapping[str, Sequence[int]]) -> None:
        self._servers = servers
        self._library = folder / "lines.so"
        self._lines: dict[int, _Line] = {}
        self._relays: dict[int, int] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def environment(self) -> dict[str, str]:
        """Of processes of the machine."""
        relays = ",".join(f"{port}={relay}" for port, relay in self._relays.items())
        return {"LD_PRELOAD": str(self._library), "TESTS_LINES": relays}

    def __enter__(self) -> Lines:
        if not self._library.exists():
            native.build(_SOURCE, self._library)
            self._library.chmod(0o755)
        self._thread.start()
        for port in (port for ports in self._servers.values() for port in ports):
            self._relays[port] = self._call(self._relay(port))
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def connections(self, server: str) -> int:
        """How often somebody of the machine has connected to a server."""
        return sum(self._lines[port].connections for port in self._servers[server])

    @contextmanager
    def cut(self, server: str, *, silent: bool = False) -> Iterator[None]:
        """The machine does not reach a server during the block, nor the server the machine.

        Args:
            server: its name.
            silent: perhaps nobody wants anything of it meanwhile.

        Raises:
            AssertionError: the machine has never reached it, or wanted nothing of it meanwhile: the cut shows nothing.
        """
        assert self.connections(server), f"nobody has reached {server}"
        lines = [self._lines[port] for port in self._servers[server]]
        for line in lines:
            line.held = 0
            self._loop.call_soon_threadsafe(line.open.clear)
        try:
            yield
        finally:
            held = sum(line.held for line in lines)
            for line in lines:
                self._loop.call_soon_threadsafe(line.open.set)
        assert held or silent, f"nobody wanted anything of {server}"

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)

    async def _relay(self, port: int) -> int:
        line = self._lines[port] = _Line()
        line.open.set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            line.connections += 1
            try:
                await self._through(line, b"")
                there, to = await asyncio.open_connection("127.0.0.1", port)
                try:
                    await asyncio.gather(self._pass_on(line, reader, to), self._pass_on(line, there, writer))
                finally:
                    to.transport.abort()
            except OSError:  # the server is not there
                pass
            finally:
                writer.transport.abort()

        line.server = await asyncio.start_server(connected, "127.0.0.1", 0)
        found: int = line.server.sockets[0].getsockname()[1]
        return found

    async def _pass_on(self, line: _Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one side ends; the other side hears of it when the line is open."""
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._through(line, data)
                writer.write(data)
                await writer.drain()
        await self._through(line, b"")
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _through(self, line: _Line, data: bytes) -> None:
        if not line.open.is_set():
            line.held += max(1, len(data))
            await line.open.wait()

    async def _close(self) -> None:
        for line in self._lines.values():
            assert line.server is not None
            line.server.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # so that transports can end
