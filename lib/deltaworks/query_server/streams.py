"""The streams that a server has open, and questions to them that wait without holding up others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

from deltaworks import clock, queries
from deltaworks.control import jobs
from deltaworks.errors import NoSuchStoreError, StoreUnavailableError
from deltaworks.names import hint_of
from deltaworks.queries.kinds import Stream
from deltaworks.settings import Settings

R = TypeVar("R")
_POLL_S = 0.002
_THREADS = 32
"""Questions that wait for other machines at once."""


class Streams:
    """The streams of a project, opened at the first question.

    Args:
        names: the pipelines of the project.
        open_stream: opens the stream of a pipeline, without patience.
        patience_s: how long a question waits for a batch, or for a store that is being filled.
    """

    def __init__(
        self, names: Callable[[], list[str]], open_stream: Callable[[str], Stream], *, patience_s: float
    ) -> None:
        self.names, self._open_stream, self._patience_s = names, open_stream, patience_s
        self._open: dict[str, Stream] = {}
        self._opening = asyncio.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="elsewhere")

    @classmethod
    def of(cls, settings: Settings, *, patience_s: float) -> Streams:
        """Those of a project."""
        return cls(
            lambda: jobs.names(settings),
            lambda name: queries.open(name, settings, patience=timedelta(0)),
            patience_s=patience_s,
        )

    async def stream(self, name: str) -> Stream:
        """A stream.

        Raises:
            NoSuchStoreError: there is no such pipeline.
            ConfigurationError: it has never run, or its stores are on other machines.
            IncompatibleCheckpointError: it runs other code than this project has.
        """
        if name not in self._open:
            async with self._opening:
                if name not in self._open:
                    if name not in (names := self.names()):
                        hint = hint_of(name, names, "pipelines")
                        raise NoSuchStoreError(f"There is no pipeline {name!r}.", hint=hint)
                    self._open[name] = await asyncio.to_thread(self._open_stream, name)
        return self._open[name]

    async def answer(self, name: str, question: Callable[[], R]) -> R:
        """The answer to a question, which is asked again while the store cannot be read.

        Args:
            name: of the pipeline.
            question: asks one of its stores.

        Raises:
            StoreUnavailableError: for longer than the patience lasts.
        """
        deadline_s: float | None = None
        while True:
            try:
                return await self.once(name, question)
            except StoreUnavailableError:
                now_s = clock.ticks_s()
                deadline_s = now_s + self._patience_s if deadline_s is None else deadline_s
                if now_s >= deadline_s:
                    raise
            await asyncio.sleep(_POLL_S)

    async def once(self, name: str, question: Callable[[], R]) -> R:
        """The answer to a question, or why there is none. One that waits for other machines is asked by a thread.

        Raises:
            StoreUnavailableError: the store cannot be read now.
        """
        if (await self.stream(name)).is_elsewhere:
            return await asyncio.get_running_loop().run_in_executor(self._threads, question)
        return question()

    def close(self) -> None:
        """Lets go of all stores."""
        for stream in self._open.values():
            stream.close()
        self._open.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)
