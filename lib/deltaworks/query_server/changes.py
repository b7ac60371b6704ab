"""Follows keys of stores: server-sent events, one for each value that a batch has left."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any

from deltaworks.errors import DeltaworksError, StoreUnavailableError
from deltaworks.query_server.following import NOTHING_NEW, Followers, Watched
from deltaworks.query_server.routes import json_of

LastBatch = Callable[[], int | None]
_AGAIN_S = 0.02


class _Batches(Watched):
    """The batches of a stream."""

    def __init__(self, last_batch: LastBatch) -> None:
        super().__init__()
        self._last_batch = last_batch
        self.last: int | None = None

    async def look(self) -> bool:
        before, self.last = self.last, self._last_batch()
        return self.last != before

    def is_other(self, seen: int | None) -> bool:
        """Whether the last batch is another one than this."""
        return self.last not in (None, seen)


async def changes(
    followers: Followers, name: str, last_batch: LastBatch, ask: Callable[[], Awaitable[Any]], last_id: str | None
) -> AsyncGenerator[bytes, None]:
    """Events with the answer to a question: the one of now, and after each batch that has changed it, the new one.

    The id of an event is its batch and the digest of what it says. Whoever comes back with the id of the last event
    gets the next one when the answer is another one than then. Batches that follow each other faster than they are
    looked at are told together.

    Args:
        followers: all of the server.
        name: of the stream.
        last_batch: the last batch that is committed.
        ask: asks for a value.
        last_id: `Last-Event-ID` of the request.
    """
    known = None if last_id is None else last_id.partition("-")[2]
    seen: int | None = None
    with followers.watched(name, lambda: _Batches(last_batch)).followed() as batches:
        while True:
            try:
                if not await batches.until(partial(batches.is_other, seen)):
                    yield NOTHING_NEW
                    continue
                found = await ask()
            except StoreUnavailableError:
                await asyncio.sleep(_AGAIN_S)
                continue
            except DeltaworksError:
                return  # who asks again is told why
            seen = found.as_of.batch
            digest = hashlib.sha256(json_of(_without_batch(found))).hexdigest()[:16]
            if digest != known:
                known = digest
                yield b"id: %d-%s\ndata: %s\n\n" % (seen, digest.encode(), json_of(found))


def _without_batch(found: Any) -> tuple[Any, ...]:
    return tuple(getattr(found, field) for field in found.__struct_fields__ if field != "as_of")
