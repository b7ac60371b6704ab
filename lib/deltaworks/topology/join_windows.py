"""How far apart in time two records may be to join. A value object; the policy is in the factory's name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from deltaworks.topology.durations import milliseconds

__all__ = ["JoinWindows"]


@dataclass(frozen=True)
class JoinWindows:
    """A right record joins a left one if its timestamp is in `[left - before, left + after]`, both inclusive.

    Each bound may be negative, as long as the interval is not: `before=-1 s, after=5 s` joins records that come one to
    five seconds later.

    Source: `JoinWindows`; differs: no.

    >>> JoinWindows.of_time_difference_and_grace(timedelta(minutes=5), timedelta(minutes=1)).before(timedelta(0))
    JoinWindows(before_ms=0, after_ms=300000, grace_ms=60000)
    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> orders, payments = (builder.stream(topic, key=str, value=str) for topic in ("orders", "payments"))
    >>> near = JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=1))
    >>> orders.join(payments, lambda *both: " ".join(both), near, value=str, store="paid").to("paid")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("orders").pipe_input("1", "book", timestamp_ms=0)
    >>> for time in (60_000, 60_001):  # the second one is too far away
    ...     driver.create_input_topic("payments").pipe_input("1", "paid", timestamp_ms=time)
    >>> driver.create_output_topic("paid").read_values_to_list()
    ['book paid']
    """

    before_ms: int
    after_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        if self.before_ms + self.after_ms < 0:
            raise ValueError(
                f"a join window from {-self.before_ms} to {self.after_ms} ms ends before it begins; before plus after"
                " must be 0 or more"
            )
        if self.grace_ms < 0:
            raise ValueError(f"the grace of a join window must not be negative, but is {self.grace_ms} ms")

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: timedelta) -> JoinWindows:
        """At most `difference` apart, in either direction; a record later than its partner's window is too late."""
        return cls.of_time_difference_and_grace(difference, timedelta(0))

    @classmethod
    def of_time_difference_and_grace(cls, difference: timedelta, grace: timedelta) -> JoinWindows:
        """At most `difference` apart; records stay `grace` longer, in stream time, for out-of-order partners."""
        difference_ms = milliseconds(difference, "the time difference of a join")
        if difference_ms < 0:
            raise ValueError(f"the time difference of a join must not be negative, but is {difference_ms} ms")
        return cls(difference_ms, difference_ms, milliseconds(grace, "the grace of a join window"))

    def before(self, difference: timedelta) -> JoinWindows:
        """How much earlier than the left record the right one may be; negative: how much later it must be."""
        return replace(self, before_ms=milliseconds(difference, "the time difference of a join"))

    def after(self, difference: timedelta) -> JoinWindows:
        """How much later than the left record the right one may be; negative: how much earlier it must be."""
        return replace(self, after_ms=milliseconds(difference, "the time difference of a join"))

    @property
    def size_ms(self) -> int:
        """From the earliest to the latest partner."""
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        """How long a join keeps records."""
        return self.size_ms + self.grace_ms
