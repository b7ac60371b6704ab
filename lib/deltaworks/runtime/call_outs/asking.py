"""Asks other systems: several calls at a time, with time-out, retries, rate limit, circuit breaker and cache.

One event loop per process, in a thread of its own, so that clients which belong to a loop last from batch to batch.
Plain functions get a thread for each call, since a call that hangs cannot be interrupted.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from typing import Any

import msgspec

from deltaworks import clock
from deltaworks.breaker import CircuitBreaker
from deltaworks.errors import CallOutError
from deltaworks.kernel.call_outs import Answer, Call, of_error, of_result
from deltaworks.topology.nodes import CallOut

_ATTEND_EVERY_S = 1.0
_LOOK_EVERY_S = 0.5
"""At most so long nobody looks whether the breaker has closed."""


class Asker:
    """Asks for all tasks of this process.

    Args:
        ticks_s: the clock of breakers and rate limits.
        changed: told when the breaker of an operator is in another state: its name, and the breaker.
    """

    def __init__(
        self,
        ticks_s: Callable[[], float] = clock.ticks_s,
        changed: Callable[[str, CircuitBreaker], None] = lambda name, breaker: None,
    ) -> None:
        self._ticks_s, self._changed = ticks_s, changed
        self._systems: dict[str, _System] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def remembered(self, call: Call, digest: bytes) -> Answer | None:
        """An answer to the same question that is still good."""
        return self._system(call.node).remembered(call, digest) if call.node.asking.cache else None

    def ask(self, calls: Sequence[tuple[Call, bytes]], attend: Callable[[], None] = lambda: None) -> list[Answer]:
        """Asks all questions, and waits for the last answer.

        Args:
            calls: with the digests of the questions.
            attend: called every second meanwhile; what it raises ends the waiting.

        Returns:
            The answers, in the order of the questions.
        """
        future: Future[list[Answer]] = asyncio.run_coroutine_threadsafe(self._all(calls), self._running())
        try:
            while True:
                try:
                    return future.result(timeout=_ATTEND_EVERY_S)
                except NotYet:
                    if future.done():
                        raise
                    attend()
        finally:
            future.cancel()

    def close(self) -> None:
        """Ends the loop and its calls; plain functions that are under way are left alone."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None
            self._systems.clear()

    async def _all(self, calls: Sequence[tuple[Call, bytes]]) -> list[Answer]:
        return await asyncio.gather(*(self._system(call.node).answer(call, digest) for call, digest in calls))

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name="call-outs", daemon=True)
            self._thread.start()
        return self._loop

    def _system(self, node: CallOut) -> _System:
        found = self._systems.get(node.name)
        if found is None:
            found = self._systems[node.name] = _System(node, self._ticks_s, self._changed)
        return found


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Runs a loop until it is stopped, then closes it."""
    loop.run_forever()
    if left := asyncio.all_tasks(loop):
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left))
    loop.close()


class _System:
    """What one operator asks."""

    def __init__(
        self, node: CallOut, ticks_s: Callable[[], float], changed: Callable[[str, CircuitBreaker], None]
    ) -> None:
        self._node, self._asking, self._ticks_s, self._changed = node, node.asking, ticks_s, changed
        self._breaker = CircuitBreaker(node.asking.breaker, ticks_s)
        self._told = self._breaker.state
        self._slots = asyncio.Semaphore(node.asking.at_once)
        self._next_s = 0.0
        """When the next call may begin."""
        self._cache: OrderedDict[bytes, tuple[int, Answer]] = OrderedDict()
        """Digest of a question -> time of the record that asked, and the answer."""

    def remembered(self, call: Call, digest: bytes) -> Answer | None:
        found = self._cache.get(digest)
        if found is None:
            return None
        at_ms, answer = found
        limit = self._asking.cache_for
        if limit is not None and abs(call.timestamp_ms - at_ms) > limit.total_seconds() * 1000:
            return None
        self._cache.move_to_end(digest)
        return msgspec.structs.replace(answer, about=call.about)

    async def answer(self, call: Call, digest: bytes) -> Answer:
        async with self._slots:
            answer = await self._answered(call)
        if self._asking.cache and answer.failure is None and not answer.skipped:
            self._cache[digest] = call.timestamp_ms, answer
            self._cache.move_to_end(digest)
            while len(self._cache) > self._asking.cache:
                self._cache.popitem(last=False)
        return answer

    async def _answered(self, call: Call) -> Answer:
        asking, failures = self._asking, 0
        while True:
            permit = self._breaker.permit()
            self._tell()
            if permit is None:
                if asking.when_down == "wait":
                    await asyncio.sleep(min(max(self._breaker.pause_s(), 0.01), _LOOK_EVERY_S))
                    failures = 0
                    continue
                return self._while_down(call)
            try:
                await self._pace()
                result = await asyncio.wait_for(_called(call), asking.timeout.total_seconds())
            except asking.retry_on as error:
                self._breaker.failed(permit)
                self._tell()
                failures += 1
                if failures <= asking.retries:
                    await asyncio.sleep(self._backoff_s(failures))
                elif self._breaker.state == "closed":
                    return of_error(call, _shown(error, asking.timeout.total_seconds()))
            except Exception as error:
                self._breaker.succeeded(permit)
                self._tell()
                return of_error(call, error)
            except BaseException:
                self._breaker.gave_up(permit)
                raise
            else:
                self._breaker.succeeded(permit)
                self._tell()
                return of_result(call, result)

    def _while_down(self, call: Call) -> Answer:
        if self._asking.when_down == "fail":
            return of_error(call, CallOutError("the system counts as down, so it was not asked"))
        try:
            instead = None if self._node.instead is None else self._node.instead(call.key, call.value)
        except Exception as error:
            return of_error(call, error)
        return of_result(call, instead, skipped=True)

    def _backoff_s(self, failures: int) -> float:
        """A little less at random, so that callers do not come all at once."""
        longest = min(self._asking.backoff * 2 ** min(failures - 1, 30), self._asking.max_backoff)
        return float(longest.total_seconds() * random.uniform(0.7, 1.0))

    async def _pace(self) -> None:
        if self._asking.per_second is None:
            return
        now = self._ticks_s()
        begins = max(self._next_s, now)
        self._next_s = begins + 1 / self._asking.per_second
        await asyncio.sleep(begins - now)

    def _tell(self) -> None:
        state = self._breaker.state
        if state != self._told:
            self._told = state
            self._changed(self._node.name, self._breaker)


async def _called(call: Call) -> Any:
    function = call.node.function
    result = function(call.key, call.value) if call.node.is_async else await _in_thread(function, call)
    return await result if inspect.isawaitable(result) else result


def _in_thread(function: Callable[[Any, Any], Any], call: Call) -> Awaitable[Any]:
    """Calls a function in a thread of its own, which does not keep the process alive."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = function(call.key, call.value)
        except StopIteration as error:  # which no future takes
            failure = RuntimeError(f"StopIteration: {error}")
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed, so nobody waits for it
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name=f"call-out {call.node.name}", daemon=True).start()
    return future


def _shown(error: BaseException, timeout_s: float) -> BaseException:
    """A time-out says nothing by itself."""
    is_mute = isinstance(error, TimeoutError) and not str(error)
    return TimeoutError(f"no answer within {timeout_s:g} s") if is_mute else error
