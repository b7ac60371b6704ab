"""A circuit breaker: whether it makes sense to ask another system now.

It knows no system, no thread and no event loop: whoever asks takes a permit, and says how the call ended.

```python
breaker = CircuitBreaker(Breaker(failures=3))
if (permit := breaker.permit()) is None:
    ...                       # it is open: ask again after breaker.pause_s() seconds
elif works():
    breaker.succeeded(permit)
else:
    breaker.failed(permit)
```
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from deltaworks import clock
from deltaworks.errors import ConfigurationError

State = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """When a system counts as down, and how long it is left alone then.

    Raises:
        ConfigurationError: a number is out of its range.
    """

    failures: int = 5
    """So many calls in a row have failed."""
    rate: float | None = None
    """Or this share of the last `window` calls has failed, above 0 and at most 1; None: only calls in a row count."""
    window: int = 20
    """The number of calls for `rate`; fewer never open it."""
    wait: timedelta = timedelta(seconds=30)
    """So long nobody asks. Then a single call is tried; if it succeeds, all may ask again."""

    def __post_init__(self) -> None:
        for wrong, what, valid in (
            (self.failures < 1, f"failures={self.failures}", "1 or more"),
            (self.rate is not None and not 0 < self.rate <= 1, f"rate={self.rate}", "above 0 and at most 1"),
            (self.window < 1, f"window={self.window}", "1 or more"),
            (self.wait <= timedelta(0), f"wait={self.wait}", "a time above 0"),
        ):
            if wrong:
                raise ConfigurationError(f"Breaker({what}): it is {valid}.", hint="leave it out for the default")


class CircuitBreaker:
    """The state of one breaker; threads may share it.

    Closed, it lets everybody ask. Open, nobody. When it has been open long enough, it is half-open: one call is tried,
    which closes it or opens it again. A call that began before the last change of state no longer counts.

    Args:
        settings: when it opens.
        ticks_s: a clock that never goes back, in seconds.
    """

    def __init__(self, settings: Breaker, ticks_s: Callable[[], float] = clock.ticks_s) -> None:
        self._settings, self._ticks_s = settings, ticks_s
        self._lock = threading.Lock()  # guards what follows
        self._state: State = "closed"
        self._turn = 0
        """Counts the changes of state; a permit is the turn in which it was given."""
        self._probing = False
        self._opened_s = 0.0
        self._in_a_row = 0
        self._last: deque[bool] = deque(maxlen=settings.window)

    @property
    def state(self) -> State:
        """`closed`, `open` or `half-open`."""
        with self._lock:
            return self._now()

    def permit(self) -> int | None:
        """Leave to make one call, whose end is to be told; None: the system is not to be asked now."""
        with self._lock:
            match self._now():
                case "closed":
                    return self._turn
                case "half-open" if not self._probing:
                    self._probing = True
                    return self._turn
                case _:
                    return None

    def succeeded(self, permit: int) -> None:
        """A call has got an answer, even one that the caller cannot use."""
        with self._lock:
            if permit != self._turn:
                return
            if self._state == "half-open":
                self._become("closed")
                return
            self._in_a_row = 0
            self._last.append(True)

    def failed(self, permit: int) -> None:
        """A call has failed."""
        with self._lock:
            if permit != self._turn:
                return
            self._in_a_row += 1
            self._last.append(False)
            if self._state == "half-open" or self._is_down():
                self._become("open")
                self._opened_s = self._ticks_s()

    def gave_up(self, permit: int) -> None:
        """A call was ended before anybody could know how it ends."""
        with self._lock:
            if permit == self._turn:
                self._probing = False

    def pause_s(self) -> float:
        """In how many seconds a call may be tried; 0: now."""
        with self._lock:
            left = self._opened_s + self._settings.wait.total_seconds() - self._ticks_s()
            return max(left, 0.0) if self._now() == "open" else 0.0

    def _now(self) -> State:
        if self._state == "open" and self._ticks_s() - self._opened_s >= self._settings.wait.total_seconds():
            self._become("half-open")
        return self._state

    def _is_down(self) -> bool:
        settings, last = self._settings, self._last
        if self._in_a_row >= settings.failures:
            return True
        return (
            settings.rate is not None
            and len(last) == settings.window
            and last.count(False) >= settings.rate * len(last)
        )

    def _become(self, state: State) -> None:
        self._state = state
        self._turn += 1
        self._probing = False
        self._in_a_row = 0
        self._last.clear()
