"""Follows whole stores: server-sent events with what each batch has changed.

What a batch has changed is known until the next one begins. So while somebody follows a store, and for a while after,
a task looks at each batch and remembers the last ones. Whoever comes back with the id of the last event goes on behind
it. If a batch is not remembered, an event `gap` says so: then the store has to be read again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

from deltaworks import clock
from deltaworks.errors import DeltaworksError, StoreQueryError, StoreUnavailableError
from deltaworks.queries import Changes
from deltaworks.query_server.routes import json_of

Ask = Callable[[int | None], Changes[Any, Any]]
"""Asks what the last committed batch has changed; gets the first batch that counts."""
Place = tuple[int, int]
"""Batch and number of an event."""
_LOOK_S = 0.02
_SILENCE_S = 15.0
_BATCHES = 100
"""Batches that are remembered."""
_KEPT_S = 60.0
"""How long a store is looked at after its last follower has gone."""
_ROWS = 500
"""Rows of an event at most."""


class StoreFollowers:
    """The stores that are followed."""

    def __init__(self) -> None:
        self._watched: dict[tuple[str, str], _Watched] = {}

    @property
    def number(self) -> int:
        """Of requests that follow a store."""
        return sum(watched.followers for watched in self._watched.values())

    def watched(self, pipeline: str, store: str, ask: Ask) -> _Watched:
        """The batches of a store, from now on if nobody looks at it yet."""
        found = self._watched.get((pipeline, store))
        if found is None or found.task.done():
            found = self._watched[pipeline, store] = _Watched(ask)
        return found

    async def close(self) -> None:
        """Ends all looking."""
        tasks = [watched.task for watched in self._watched.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Watched:
    """A store at which a task looks."""

    def __init__(self, ask: Ask) -> None:
        self.told = asyncio.Condition()
        self.batches: deque[Changes[Any, Any]] = deque(maxlen=_BATCHES)
        self.failed: DeltaworksError | None = None
        self.followers = 0
        self._left_s = clock.ticks_s()
        self.task = asyncio.create_task(self._watch(ask))

    def leave(self) -> None:
        """A follower goes."""
        self.followers -= 1
        self._left_s = clock.ticks_s()

    async def after(self, place: Place | None) -> list[Changes[Any, Any]]:
        """The remembered batches with events behind a place (None: the last batch); waits for one, but not for long.

        Raises:
            DeltaworksError: the store cannot be read any more.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_SILENCE_S), self.told:
                await self.told.wait_for(lambda: self.failed or self._behind(place))
        if self.failed is not None:
            raise self.failed
        return self._behind(place)

    def _behind(self, place: Place | None) -> list[Changes[Any, Any]]:
        if place is None:
            return list(self.batches)[-1:]
        return [each for each in self.batches if _last(each) > place]

    async def _watch(self, ask: Ask) -> None:
        while self.failed is None and (self.followers or clock.ticks_s() < self._left_s + _KEPT_S):
            try:
                changes = ask(self.batches[-1].as_of.batch + 1 if self.batches else None)
            except StoreUnavailableError:
                await asyncio.sleep(_LOOK_S)
                continue
            except DeltaworksError as error:
                self.failed = error
            else:
                self.batches.append(changes)
            async with self.told:
                self.told.notify_all()


def place_of(text: str) -> Place:
    """The place of an event, from its id.

    Raises:
        StoreQueryError: it is not the id of an event.
    """
    batch, _, event = text.partition(":")
    if not (text.isascii() and batch.isdecimal() and event.isdecimal()):
        raise StoreQueryError(f"{text!r} is not the id of an event.", hint="leave it out to begin with the last batch")
    return int(batch), int(event)


async def events(watched: _Watched, place: Place | None) -> AsyncGenerator[bytes, None]:
    """Events with the rows that each batch has changed, up to 500 in one of them.

    Args:
        watched: the store.
        place: that of the last event that the client has seen; None: it begins with the last batch.
    """
    watched.followers += 1
    try:
        while True:
            try:
                found = await watched.after(place)
            except DeltaworksError:
                return  # who asks again is told why
            if not found:
                yield b":\n\n"
            for changes in found:
                seen, place = place, _last(changes)
                batch, rows = changes.as_of.batch, changes.rows
                if rows is None or (seen is not None and batch > seen[0] + 1):
                    yield _event("gap", place, {"as_of": changes.as_of})
                    continue
                first = seen[1] + 1 if seen is not None and seen[0] == batch else 0
                for number in range(first, place[1] + 1):
                    part = rows[number * _ROWS : (number + 1) * _ROWS]
                    yield _event("changes", (batch, number), {"rows": part, "as_of": changes.as_of})
    finally:
        watched.leave()


def _last(changes: Changes[Any, Any]) -> Place:
    """The place of the last event of a batch; one that has changed nothing has an event, too."""
    return changes.as_of.batch, max(0, (len(changes.rows or ()) - 1) // _ROWS)


def _event(kind: str, place: Place, data: dict[str, Any]) -> bytes:
    return b"event: %s\nid: %d:%d\ndata: %s\n\n" % (kind.encode(), *place, json_of(data))
