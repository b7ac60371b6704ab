"""Windows that an author writes, as `windowed_aggregates.py` needs them: the spans of a record, and which have closed.

Kafka Streams takes all windows to be as long as the longest one when it forwards final results. Here each window is
forwarded at its own end, and kept until then, with `compatible_with_kafka` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from deltaworks.kernel.processors.window_clock import WindowClock
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.kernel.stores.state import NEVER
from deltaworks.kernel.stores.window import WindowStore
from deltaworks.serdes.change import Change
from deltaworks.serdes.windowed import Windowed
from deltaworks.topology.nodes.aggregates import WindowAggregate
from deltaworks.topology.windows import Windows

NO_START_MS = 1 << 63
"""Later than all starts."""
CHECKED_STARTS = 10_000
"""So many ends of windows are remembered."""

Spans = dict[int, tuple[int, int]]
"""Start of a window -> its end, and the start of the next one."""


def spans_of(windows: Windows) -> Callable[[int], Spans]:
    """Asks for the windows of a timestamp, in the order of their starts.

    A store knows a window by its start, so each start is asked for its end once: it must be the same.
    """
    checked: dict[int, int] = {}

    def spans(timestamp_ms: int) -> Spans:
        found = windows.windows_of(timestamp_ms)
        for start_ms, end_ms in found:
            if start_ms not in checked:
                if len(checked) >= CHECKED_STARTS:
                    checked.clear()
                checked[start_ms] = windows.end_of(start_ms)
            if checked[start_ms] != end_ms:
                raise ValueError(
                    f"windows_for({timestamp_ms}) of {windows.name} ends the window at {start_ms} at {end_ms},"
                    f" windows_for({start_ms}) at {checked[start_ms]}"
                )
        following = (*(start_ms for start_ms, _ in found[1:]), NO_START_MS)
        return {start_ms: (end_ms, next_ms) for (start_ms, end_ms), next_ms in zip(found, following, strict=False)}

    return spans


class Closing:
    """Forwards each window once, when `end <= observed time - grace`, by start, then bytes of the key."""

    def __init__(
        self, node: WindowAggregate, windows: Windows, wiring: Wiring, store: WindowStore, clock: WindowClock
    ) -> None:
        self._store, self._clock = store, clock
        self._forward, self._context = wiring.forward(node.name), wiring.context
        self._size_ms, self._grace_ms = windows.size_ms, windows.grace_ms
        self._emitted = wiring.emit_clock(node, final_after_ms=1)
        self._keep_the_others()
        self._open: list[tuple[int, int]] = []
        """`(end, start)` of the windows to be forwarded, a heap."""
        self._known: set[int] = set()
        """The starts of these windows."""
        for start_ms in store.committed_starts():
            self._note(start_ms, windows.end_of(start_ms), self._emitted.emitted_ms)

    def noting(self, spans: Callable[[int], Spans]) -> Callable[[int], Spans]:
        """The same spans; their windows are then forwarded too, unless they have closed already."""

        def noted(timestamp_ms: int) -> Spans:
            found = spans(timestamp_ms)
            closed_ms = self._clock.observed_ms - self._grace_ms
            for start_ms, (end_ms, _) in found.items():
                self._note(start_ms, end_ms, closed_ms)
            return found

        return noted

    def close(self, headers: Headers) -> None:
        """Forwards the windows that have closed since the last call."""
        closed_ms = self._clock.observed_ms - self._grace_ms
        if not self._emitted.due(closed_ms, self._context.wall_clock_ms) or closed_ms <= 0:
            return
        self._emitted.emitted_ms = closed_ms
        ends_ms = {start_ms: end_ms for end_ms, start_ms in self._take(closed_ms)}
        for closed_start_ms in sorted(ends_ms):
            for key, start_ms, value, time_ms in self._store.closed_at(closed_start_ms):
                self._forward(Windowed(key, start_ms, ends_ms[start_ms]), Change(value), time_ms, headers)
        self._keep_the_others()

    def _keep_the_others(self) -> None:
        """A window that is as long as possible, and starts earlier, has been forwarded; so have all shorter ones."""
        emitted_ms = self._emitted.emitted_ms
        self._store.forwarded_before(0 if emitted_ms == NEVER else emitted_ms - self._size_ms + 1)

    def _note(self, start_ms: int, end_ms: int, closed_ms: int) -> None:
        if end_ms > closed_ms and start_ms not in self._known:
            self._known.add(start_ms)
            heappush(self._open, (end_ms, start_ms))

    def _take(self, closed_ms: int) -> Iterator[tuple[int, int]]:
        while self._open and self._open[0][0] <= closed_ms:
            end_ms, start_ms = heappop(self._open)
            self._known.discard(start_ms)
            yield end_ms, start_ms
