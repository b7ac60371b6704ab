"""The times that a task remembers across batches, in the reserved store `__task__`.

`stream` (of the task), `partition/<topic>/<number>`, `observed/<store>` (the largest timestamp that the aggregate
of a store has seen), `newest/<store>` (the newest time ever put into a window or session store); with an idle timeout,
`active` (the wall clock when the last record came) and `active/stream` (the stream time then); for aggregates that
forward when windows close, `emitted/<store>` (the time up to which closed windows have been forwarded) and
`paused/<store>` (the wall clock before which they do not look for others). Each stream of a cogroup but the first is
`<store>/<number>`. For punctuators, `punctuator/<node>/<number>` is the next time, `turn/<node>/<number>` the place in
the queue.
Kafka Streams forgets the observed times at a restart; remembering them keeps lateness the same wherever a batch ends.
"""

from __future__ import annotations

from deltaworks.kernel.stores.entries import TIME_BYTES
from deltaworks.kernel.stores.state import NEVER, StateReader, StoreChanges

TASK_STORE = "__task__"
STREAM = "stream"
ACTIVE = "active"
STREAM_WHEN_ACTIVE = "active/stream"
SCHEMA = "schema/"
"""Entries of another kind, see `migration.py`."""
FAILED = "failed/"
"""Entries of another kind, see `resend.py`."""
_OBSERVED = "observed/"
_EMITTED = "emitted/"
_PAUSED = "paused/"


class TaskTimes:
    """Named times in milliseconds; `NEVER` until set."""

    def __init__(self, reader: StateReader) -> None:
        entries = ((key.decode(), data) for key, data in reader.scan(b"", None))
        self._committed = {
            name: int.from_bytes(data, "big") for name, data in entries if not name.startswith((SCHEMA, FAILED))
        }
        self._current = dict(self._committed)

    def get(self, name: str) -> int:
        return self._current.get(name, NEVER)

    def advance(self, name: str, time_ms: int) -> None:
        """Sets a time, unless it would go back."""
        if time_ms > self.get(name):
            self._current[name] = time_ms

    def set(self, name: str, time_ms: int) -> None:
        """Sets a time that is not a clock."""
        self._current[name] = time_ms

    def observed(self) -> dict[str, int]:
        """Store of an aggregate -> the largest timestamp the aggregate has seen."""
        return {
            name.removeprefix(_OBSERVED): time for name, time in self._current.items() if name.startswith(_OBSERVED)
        }

    def emitted(self, clock: str) -> tuple[int, int]:
        """The time up to which closed windows have been forwarded; the wall clock before which there is no check."""
        return self.get(_EMITTED + clock), self.get(_PAUSED + clock)

    def advance_emitted(self, clock: str, emitted_ms: int, pause_until_ms: int) -> None:
        """The counterpart of `emitted`."""
        self.advance(_EMITTED + clock, emitted_ms)
        self.advance(_PAUSED + clock, pause_until_ms)

    def take_changes(self) -> StoreChanges | None:
        """The times that have advanced since the last call."""
        changed = [
            (name.encode(), time.to_bytes(TIME_BYTES, "big"))
            for name, time in sorted(self._current.items())
            if self._committed.get(name) != time
        ]
        self._committed = dict(self._current)
        return StoreChanges(list(changed)) if changed else None
