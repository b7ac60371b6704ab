"""What is followed: a task looks at it again and again while somebody follows, and tells all who wait."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from deltaworks import clock
from deltaworks.errors import DeltaworksError, StoreUnavailableError

_LOOK_S = 0.02
_SILENCE_S = 15.0
NOTHING_NEW = b":\n\n"
"""A comment, sent after so long without an event that both sides notice when the other one is gone."""


class Watched(ABC):
    """Something at which a task looks, while it has followers and for a while after.

    Args:
        kept_s: the while, in seconds.
    """

    def __init__(self, kept_s: float = 0.0) -> None:
        self.followers = 0
        self._kept_s, self._left_s = kept_s, clock.ticks_s()
        self._told = asyncio.Condition()
        self._failed: DeltaworksError | None = None
        self.task = asyncio.create_task(self._watch())

    @abstractmethod
    async def look(self) -> bool:
        """Whether there is something new.

        Raises:
            StoreUnavailableError: it cannot be seen now.
            DeltaworksError: it cannot be seen any more.
        """

    @contextmanager
    def followed(self) -> Iterator[Self]:
        """One follower more, within the block."""
        self.followers += 1
        try:
            yield self
        finally:
            self.followers -= 1
            self._left_s = clock.ticks_s()

    async def until(self, fact: Callable[[], object]) -> bool:
        """Waits for a fact, but not for long; says whether it came.

        Raises:
            DeltaworksError: it cannot be seen any more.
        """
        try:
            async with asyncio.timeout(_SILENCE_S), self._told:
                await self._told.wait_for(lambda: self._failed or fact())
        except TimeoutError:
            return False
        if self._failed is not None:
            raise self._failed
        return True

    async def _watch(self) -> None:
        while self._failed is None and (self.followers or clock.ticks_s() < self._left_s + self._kept_s):
            try:
                is_new = await self.look()
            except StoreUnavailableError:
                is_new = False
            except DeltaworksError as error:
                is_new, self._failed = True, error
            if is_new:
                async with self._told:
                    self._told.notify_all()
            await asyncio.sleep(0 if is_new else _LOOK_S)


W = TypeVar("W", bound=Watched)


class Followers:
    """All that is followed."""

    def __init__(self) -> None:
        self._watched: dict[Hashable, Any] = {}

    @property
    def number(self) -> int:
        """Of followers."""
        return sum(watched.followers for watched in self._watched.values())

    def watched(self, name: Hashable, make: Callable[[], W]) -> W:
        """What has a name; made if nobody looks at it yet.

        Args:
            name: of one kind of things only.
            make: makes it.
        """
        found: W | None = self._watched.get(name)
        if found is None or found.task.done():
            found = self._watched[name] = make()
        return found

    async def close(self) -> None:
        """Ends all looking."""
        tasks = [watched.task for watched in self._watched.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
