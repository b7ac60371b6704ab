"""How an operator asks another system: what the author says about time, retries, concurrency and the cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, get_args

from deltaworks.breaker import Breaker
from deltaworks.errors import ConfigurationError

WhenDown = Literal["wait", "skip", "fail"]


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How a call-out asks.

    A call fails if it raises one of `retry_on`, or takes too long. It is tried again, and counts for the breaker. Any
    other exception is an answer that says no: it is not tried again, and the pipeline's error policy decides at once.

    Raises:
        ConfigurationError: a number is out of its range.
    """

    timeout: timedelta = timedelta(seconds=10)
    """For each call. A plain function cannot be interrupted: its thread goes on, and what it returns is dropped."""
    retries: int = 4
    """Further calls after one that has failed."""
    backoff: timedelta = timedelta(milliseconds=200)
    """The pause before the first of them; each is twice as long as the one before."""
    max_backoff: timedelta = timedelta(seconds=10)
    retry_on: tuple[type[Exception], ...] = (OSError,)
    """`OSError` covers `TimeoutError`, `ConnectionError` and the errors of urllib and requests."""
    at_once: int = 16
    """Calls at the same time, in each worker process."""
    per_second: float | None = None
    """Calls that begin in a second, in each worker process; None: as many as come."""
    cache: int = 0
    """Answers that each worker process remembers for further records with the same question; 0: none."""
    cache_for: timedelta | None = None
    """A remembered answer is good for records whose time is at most so far from that of the record that asked, in
    either direction; None: as long as it is remembered. A replay does not need the cache: it has every answer."""
    breaker: Breaker = field(default_factory=Breaker)
    when_down: WhenDown = "wait"
    """What happens while the breaker is open. `wait`: the stream waits, and nothing is lost. `skip`: records go on with
    the answer that `instead` makes. `fail`: the pipeline's error policy decides, so that they can be dead letters."""

    def __post_init__(self) -> None:
        zero = timedelta(0)
        for wrong, what, valid in (
            (self.timeout <= zero, f"timeout={self.timeout}", "a time above 0"),
            (self.retries < 0, f"retries={self.retries}", "0 or more"),
            (self.backoff < zero, f"backoff={self.backoff}", "0 or more"),
            (self.max_backoff < zero, f"max_backoff={self.max_backoff}", "0 or more"),
            (self.at_once < 1, f"at_once={self.at_once}", "1 or more"),
            (self.per_second is not None and self.per_second <= 0, f"per_second={self.per_second}", "above 0"),
            (self.cache < 0, f"cache={self.cache}", "0 or more"),
            (self.cache_for is not None and self.cache_for < zero, f"cache_for={self.cache_for}", "0 or more"),
            (self.when_down not in get_args(WhenDown), f"when_down={self.when_down!r}", "'wait', 'skip' or 'fail'"),
        ):
            if wrong:
                raise ConfigurationError(f"Asking({what}): it is {valid}.", hint="leave it out for the default")
