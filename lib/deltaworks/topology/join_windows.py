"""How far apart in time two records may be to join. A value object, made with keywords; `grace` is always said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, final, overload

from deltaworks.topology.durations import milliseconds
from deltaworks.topology.keywords import Keywords, call

__all__ = ["JoinWindows"]


@final
@dataclass(frozen=True, init=False, repr=False)
class JoinWindows(Keywords):
    """A right record joins a left one if its timestamp is in `[left - before, left + after]`, both inclusive.

    Give either `difference`, or both `before` and `after`.

    Args:
        difference: at most so far apart, in either direction.
        before: how much earlier than the left record the right one may be; negative: how much later it must be.
        after: how much later than the left record the right one may be; negative: how much earlier it must be. The
            interval itself must not be negative: `before=-1 s, after=5 s` joins records that come one to five seconds
            later.
        grace: for how much longer, in stream time, records wait for out-of-order partners; `timedelta(0)`: a record
            later than its partner's window is too late.

    Source: `JoinWindows`; differs: keywords in place of factories.

    >>> JoinWindows(before=timedelta(0), after=timedelta(minutes=5), grace=timedelta(minutes=1))
    JoinWindows(before=timedelta(0), after=timedelta(minutes=5), grace=timedelta(minutes=1))
    >>> from deltaworks import StreamsBuilder
    >>> from deltaworks.testing import TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> orders, payments = (builder.stream(topic, key=str, value=str) for topic in ("orders", "payments"))
    >>> near = JoinWindows(difference=timedelta(minutes=1), grace=timedelta(0))
    >>> orders.join(payments, lambda *both: " ".join(both), near, value=str, store="paid").to("paid")
    >>> driver = TopologyTestDriver(builder.build())
    >>> driver.create_input_topic("orders").pipe_input("1", "book", timestamp_ms=0)
    >>> for time in (60_000, 60_001):  # the second one is too far away
    ...     driver.create_input_topic("payments").pipe_input("1", "paid", timestamp_ms=time)
    >>> driver.create_output_topic("paid").read_values_to_list()
    ['book paid']
    """

    before: timedelta
    after: timedelta
    grace: timedelta

    _example: ClassVar[Mapping[str, str]] = {"difference": "timedelta(minutes=5)", "grace": "timedelta(0)"}
    _replaced: ClassVar[Mapping[str, str]] = {
        "of": "JoinWindows(difference=timedelta(minutes=5), grace=timedelta(hours=24))",
        "of_time_difference_with_no_grace": "JoinWindows(difference=timedelta(minutes=5), grace=timedelta(0))",
        "of_time_difference_and_grace": "JoinWindows(difference=timedelta(minutes=5), grace=timedelta(minutes=1))",
        "grace_period_ms": "windows.grace",
    }
    _instead_of_a_subclass = "filter(...) after the join keeps the pairs that {name} would join"

    @overload
    def __init__(self, *, difference: timedelta, grace: timedelta) -> None: ...

    @overload
    def __init__(self, *, before: timedelta, after: timedelta, grace: timedelta) -> None: ...

    def __init__(
        self,
        *,
        difference: timedelta | None = None,
        before: timedelta | None = None,
        after: timedelta | None = None,
        grace: timedelta,
    ) -> None:
        if difference is not None:
            if before is not None or after is not None:
                one, other = (difference if bound is None else bound for bound in (before, after))
                raise TypeError(
                    "JoinWindows takes either difference, or before and after."
                    f"\n    Hint: {call('JoinWindows', {'before': one, 'after': other, 'grace': grace})}"
                )
            difference_ms = milliseconds(difference, "the time difference of a join")
            if difference_ms < 0:
                raise ValueError(f"the time difference of a join must not be negative, but is {difference_ms} ms")
            before = after = difference
        if before is None or after is None:
            one, other = (timedelta(0) if bound is None else bound for bound in (before, after))
            needs = "difference, or before and after" if before is after else "both before and after"
            both = call("JoinWindows", {"before": one, "after": other, "grace": grace})
            near = call("JoinWindows", {"difference": timedelta(minutes=5), "grace": grace})
            raise TypeError(f"JoinWindows needs {needs}.\n    Hint: {near if before is after else both}")
        before_ms = milliseconds(before, "the time difference of a join")
        after_ms = milliseconds(after, "the time difference of a join")
        grace_ms = milliseconds(grace, "the grace of a join window")
        if before_ms + after_ms < 0:
            raise ValueError(
                f"a join window from {-before_ms} to {after_ms} ms ends before it begins; before plus after must be 0"
                " or more"
            )
        if grace_ms < 0:
            raise ValueError(f"the grace of a join window must not be negative, but is {grace_ms} ms")
        object.__setattr__(self, "before", before)
        object.__setattr__(self, "after", after)
        object.__setattr__(self, "grace", grace)

    @property
    def before_ms(self) -> int:
        """How much earlier than the left record the right one may be, in milliseconds."""
        return milliseconds(self.before, "the time difference of a join")

    @property
    def after_ms(self) -> int:
        """How much later than the left record the right one may be, in milliseconds."""
        return milliseconds(self.after, "the time difference of a join")

    @property
    def grace_ms(self) -> int:
        """The grace in milliseconds."""
        return milliseconds(self.grace, "the grace of a join window")

    @property
    def size_ms(self) -> int:
        """From the earliest to the latest partner."""
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        """How long a join keeps records."""
        return self.size_ms + self.grace_ms

    def __repr__(self) -> str:
        bounds = {"before": self.before, "after": self.after}
        if self.before == self.after:
            bounds = {"difference": self.before}
        return call("JoinWindows", {**bounds, "grace": self.grace})
