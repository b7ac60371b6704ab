"""Follows keys of stores: server-sent events, one for each value that a batch has left."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

from deltaworks.errors import DeltaworksError, StoreUnavailableError
from deltaworks.query_server.routes import json_of

LastBatch = Callable[[], int | None]
_LOOK_S = 0.02
_SILENCE_S = 15.0
"""After so long without a change a comment is sent, so that both sides notice when the other one is gone."""


class Followers:
    """Those who wait for the batches of streams: for each stream one task looks, and all are told.

    Attributes:
        number: of those who wait; nobody looks while there are none.
    """

    def __init__(self) -> None:
        self.number = 0
        self._watched: dict[str, _Watched] = {}

    async def next_batch(self, name: str, last_batch: LastBatch, seen: int | None) -> int | None:
        """Waits for another batch than `seen`; None: there was none for a while.

        Raises:
            DeltaworksError: the stream cannot be read any more.
        """
        watched = self._watched.get(name)
        if watched is None or watched.task.done():
            watched = self._watched[name] = _Watched(self, last_batch)
        with suppress(TimeoutError):
            async with asyncio.timeout(_SILENCE_S), watched.told:
                await watched.told.wait_for(lambda: watched.failed or watched.last not in (None, seen))
                if watched.failed is not None:
                    raise watched.failed
                return watched.last
        return None

    async def close(self) -> None:
        """Ends all looking."""
        tasks = [watched.task for watched in self._watched.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Watched:
    """A stream at which a task looks."""

    def __init__(self, followers: Followers, last_batch: LastBatch) -> None:
        self.told = asyncio.Condition()
        self.last: int | None = None
        self.failed: DeltaworksError | None = None
        self.task = asyncio.create_task(self._watch(followers, last_batch))

    async def _watch(self, followers: Followers, last_batch: LastBatch) -> None:
        while followers.number and self.failed is None:
            try:
                last = last_batch()
            except DeltaworksError as error:
                last, self.failed = None, error
            if last != self.last or self.failed is not None:
                self.last = last
                async with self.told:
                    self.told.notify_all()
            await asyncio.sleep(_LOOK_S)


async def changes(
    followers: Followers, name: str, last_batch: LastBatch, ask: Callable[[], Any], last_id: str | None
) -> AsyncGenerator[bytes, None]:
    """Events with the answer to a question: the one of now, and after each batch that has changed it, the new one.

    The id of an event is its batch and the digest of what it says. Whoever comes back with the id of the last event
    gets the next one when the answer is another one than then. Batches that follow each other faster than they are
    looked at are told together.

    Args:
        followers: of all streams.
        name: of the stream.
        last_batch: the last batch that is committed.
        ask: asks for a value.
        last_id: `Last-Event-ID` of the request.
    """
    followers.number += 1
    try:
        known = None if last_id is None else last_id.partition("-")[2]
        seen: int | None = None
        while True:
            try:
                if await followers.next_batch(name, last_batch, seen) is None:
                    yield b":\n\n"
                    continue
                found = ask()
            except StoreUnavailableError:
                await asyncio.sleep(_LOOK_S)
                continue
            except DeltaworksError:
                return  # who asks again is told why
            seen = found.as_of.batch
            digest = hashlib.sha256(json_of(_without_batch(found))).hexdigest()[:16]
            if digest != known:
                known = digest
                yield b"id: %d-%s\ndata: %s\n\n" % (seen, digest.encode(), json_of(found))
    finally:
        followers.number -= 1


def _without_batch(found: Any) -> tuple[Any, ...]:
    return tuple(getattr(found, field) for field in found.__struct_fields__ if field != "as_of")
