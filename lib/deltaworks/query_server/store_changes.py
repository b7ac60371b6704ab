"""Follows stores, or a key of a timed one: server-sent events with what each batch has changed.

What a batch has changed is known until the next one begins. So while somebody follows a store, and for a while after,
a task looks at each batch and remembers the last ones. Whoever comes back with the id of the last event goes on behind
it. If a batch is not remembered, an event `gap` says so: then the store has to be read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from deltaworks.errors import DeltaworksError, StoreQueryError
from deltaworks.queries import Changes
from deltaworks.query_server.following import NOTHING_NEW, Watched
from deltaworks.query_server.routes import json_of

Ask = Callable[[int | None], Awaitable[Changes[Any]]]
"""Asks what the last committed batch has changed; gets the first batch that counts."""
Place = tuple[int, int]
"""Batch and number of an event."""


class OneKey(NamedTuple):
    """A key, of whose rows events are."""

    key: Any


_BATCHES = 100
"""Batches that are remembered."""
_KEPT_S = 60.0
"""How long a store is looked at after its last follower has gone."""
_ROWS = 500
"""Rows of an event at most."""


class Batches(Watched):
    """The last batches of a store."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(_KEPT_S)
        self._ask = ask
        self.remembered: deque[Changes[Any]] = deque(maxlen=_BATCHES)

    async def look(self) -> bool:
        self.remembered.append(await self._ask(self.remembered[-1].as_of.batch + 1 if self.remembered else None))
        return True

    def behind(self, place: Place | None, only: OneKey | None = None) -> list[Changes[Any]]:
        """Those with events behind a place; None: the last one. With a key, only its rows are left."""
        if place is None:
            found = list(self.remembered)[-1:]
        else:
            found = [each for each in self.remembered if each.as_of.batch >= place[0]]
        selected = found if only is None else (_rows_of(each, only) for each in found)
        return [each for each in selected if place is None or _last(each) > place]


def place_of(text: str) -> Place:
    """The place of an event, from its id.

    Raises:
        StoreQueryError: it is not the id of an event.
    """
    batch, _, event = text.partition(":")
    if not (text.isascii() and batch.isdecimal() and event.isdecimal()):
        raise StoreQueryError(f"{text!r} is not the id of an event.", hint="leave it out to begin with the last batch")
    return int(batch), int(event)


async def events(batches: Batches, place: Place | None, only: OneKey | None = None) -> AsyncGenerator[bytes, None]:
    """Events with the rows that each batch has changed, up to 500 in one of them.

    Args:
        batches: those of the store.
        place: that of the last event that the client has seen; None: it begins with the last batch.
        only: one key; then a batch that does not change it tells its id and nothing else, which clients keep in mind
            without an event.
    """
    with batches.followed():
        while True:
            try:
                if not await batches.until(partial(batches.behind, place, only)):
                    yield NOTHING_NEW
            except DeltaworksError:
                return  # who asks again is told why
            for changes in batches.behind(place, only):
                seen, place = place, _last(changes)
                batch, rows = changes.as_of.batch, changes.rows
                if rows is None or (seen is not None and batch > seen[0] + 1):
                    yield _event("gap", place, {"as_of": changes.as_of})
                    continue
                if only is not None and not rows:
                    yield b"id: %d:%d\n\n" % place
                    continue
                first = seen[1] + 1 if seen is not None and seen[0] == batch else 0
                for number in range(first, place[1] + 1):
                    part = rows[number * _ROWS : (number + 1) * _ROWS]
                    yield _event("changes", (batch, number), {"rows": part, "as_of": changes.as_of})


def _rows_of(changes: Changes[Any], only: OneKey) -> Changes[Any]:
    rows = changes.rows
    return Changes(
        rows=None if rows is None else tuple(row for row in rows if row.key == only.key), as_of=changes.as_of
    )


def _last(changes: Changes[Any]) -> Place:
    """The place of the last event of a batch; one that has changed nothing has an event, too."""
    return changes.as_of.batch, max(0, (len(changes.rows or ()) - 1) // _ROWS)


def _event(kind: str, place: Place, data: dict[str, Any]) -> bytes:
    return b"event: %s\nid: %d:%d\ndata: %s\n\n" % (kind.encode(), *place, json_of(data))
