# ruff: noqa: E501 (the texts are as users see them)
"""What users get wrong most, and what they are told: what is wrong, where, what is valid, what to do.

Each case is the mistaken code and the exact text. The line that ends in `# here` is the user's line: it is in the text,
or else the traceback leads through it.
"""

from __future__ import annotations

import inspect
import textwrap
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import deltaworks
from deltaworks import (
    BufferConfig,
    EmitStrategy,
    FixedKeyProcessor,
    JoinWindows,
    Materialized,
    Pipeline,
    Processor,
    PunctuationType,
    Record,
    SerializationError,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    StreamsError,
    String,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyError,
    UnlimitedWindows,
    WallclockTimestampExtractor,
    Windowed,
    Windows,
)
from deltaworks.dsl import kafka_names
from deltaworks.testing import TopologyTestDriver
from tests.support.calendar_days import Days

SECOND = timedelta(seconds=1)
SECONDS = TimeWindows(size=SECOND, grace=timedelta(0))
NEAR = JoinWindows(difference=SECOND, grace=timedelta(0))
SESSIONS = SessionWindows(gap=SECOND, grace=timedelta(0))
COUNTS = Stores.key_value("counts", key=str, value=int)
FILE = str(Path(__file__)).removeprefix(f"{Path.cwd()}/")
ASIDE = 'Hint: Pipeline(..., on_error="continue") sets such records aside as dead letters and goes on.'


class Shop:
    """What a user has at hand; without types, so that mypy lets the mistakes pass."""

    def __init__(self) -> None:
        self.builder: Any = StreamsBuilder("shop")
        self.orders: Any = self.builder.stream("orders", key=str, value=str)
        self.users: Any = self.builder.table("users", key=str, value=str, store="users")

    def run(self, key: Any, value: Any, topic: str = "orders") -> Any:
        """One record through the topology."""
        driver: Any = TopologyTestDriver(self.builder.build())
        driver.create_input_topic(topic).pipe_input(key, value)
        return driver


@dataclass(frozen=True)
class Mistake:
    code: Callable[[Shop], object]
    error: type[Exception]
    text: str


MISTAKES: dict[str, Mistake] = {}


def told(text: str, error: type[Exception] = TopologyError) -> Callable[[Callable[[Shop], object]], None]:
    """Adds a case.

    Args:
        text: `{here}` stands for file and line of the mistake, `{first}` for those of an earlier call that matters,
            `{aside}` for the hint of every failed record.
        error: it is raised as.
    """

    def add(code: Callable[[Shop], object]) -> None:
        MISTAKES[code.__name__] = Mistake(code, error, textwrap.dedent(text).strip())

    return add


class Counting(Processor[str, str, str, int]):
    def process(self, record: Record[str, str]) -> None:
        counts = self.context.state_store("counts")
        counts.put(record.key, (counts.get(record.key) or 0) + 1)


@told(
    """
    KStream has no operator 'mapValues'.
        at {here}
        Hint: map_values(...)
    """,
    AttributeError,
)
def names_are_written_as_in_java(shop: Shop) -> None:
    shop.orders.mapValues(str.upper)  # here


@told(
    """
    deltaworks has no 'Consumed'. Use instead: stream(..., key=..., value=..., timestamp_extractor=..., offset_reset=..., name='...')
    """,
    ImportError,
)
def a_class_that_only_kafka_streams_has(shop: Shop) -> None:
    exec("from deltaworks import Consumed")  # here


@told(
    """
    KStream has no operator 'windowed_by'.
        at {here}
        Hint: group_by_key().windowed_by(...)
    """,
    AttributeError,
)
def windows_without_a_group(shop: Shop) -> None:
    shop.orders.windowed_by(SECONDS)  # here


@told(
    """
    KTable has no operator 'to'.
        at {here}
        Hint: to_stream().to(...)
    """,
    AttributeError,
)
def a_sink_on_a_table(shop: Shop) -> None:
    shop.users.to("out")  # here


@told(
    """
    KGroupedStream has no operator 'to'.
        at {here}
        Hint: count(store='...').to_stream().to(...)
    """,
    AttributeError,
)
def a_sink_on_a_group(shop: Shop) -> None:
    shop.orders.group_by_key().to("out")  # here


@told(
    """
    TimeWindowedKStream has no operator 'filter'.
        at {here}
        Hint: count(store='...').filter(...)
    """,
    AttributeError,
)
def an_operator_on_windows(shop: Shop) -> None:
    shop.orders.group_by_key().windowed_by(SECONDS).filter(lambda key, count: count > 1)  # here


@told(
    """
    KTable has no operator 'group_by_key'.
        at {here}
        Hint: group_by(lambda key, value: (key, value)): a table is grouped by a function
    """,
    AttributeError,
)
def a_table_grouped_as_a_stream(shop: Shop) -> None:
    shop.users.group_by_key()  # here


@told(
    """
    outer_join joins a stream with another stream only, but got a KTable.
      at {here}
      Hint: left_join(other, joiner)
    """,
)
def an_outer_join_with_a_table(shop: Shop) -> None:
    shop.orders.outer_join(shop.users, lambda order, user: order)  # here


@told(
    """
    GlobalKTable has no operator 'to_stream'.
        at {here}
        Hint: a global table can only be joined: stream.join(global_table, joiner, selector=lambda key, value: key)
    """,
    AttributeError,
)
def a_global_table_used_as_a_table(shop: Shop) -> None:
    cities = shop.builder.global_table("cities", key=str, value=str, store="cities")
    cities.to_stream()  # here


@told(
    """
    BranchedKStream has no operator 'to'.
        at {here}
        Hint: end the split with default_branch() or no_default_branch(), then take a branch: branches['name']
    """,
    AttributeError,
)
def an_operator_on_a_split_that_is_open(shop: Shop) -> None:
    shop.orders.split("sizes").branch(lambda key, order: True, name="big").to("big")  # here


@told(
    """
    join with a KStream needs the argument windows.
      at {here}
      Hint: join(other, joiner, JoinWindows(difference=timedelta(minutes=5), grace=timedelta(0)))
    """,
)
def a_stream_joined_as_a_table(shop: Shop) -> None:
    payments = shop.builder.stream("payments", key=str, value=str)
    shop.orders.join(payments, lambda order, payment: order).to("out")  # here


@told(
    """
    join with a KTable takes no argument windows, but got a JoinWindows.
      at {here}
      Hint: join(other, joiner)
    """,
)
def a_table_joined_as_a_stream(shop: Shop) -> None:
    shop.orders.join(shop.users, lambda order, user: order, NEAR, store="j").to("out")  # here


@told(
    """
    join with a GlobalKTable needs the argument selector.
      at {here}
      Hint: join(other, joiner, selector=lambda key, value: key)
    """,
)
def a_global_table_joined_by_the_key(shop: Shop) -> None:
    cities = shop.builder.global_table("cities", key=str, value=str, store="cities")
    shop.orders.join(cities, lambda order, city: order)  # here


@told(
    """
    join with a KTable takes no argument selector, but got a function.
      at {here}
      Hint: select_key(selector).join(other, joiner)
    """,
)
def a_table_joined_as_a_global_one(shop: Shop) -> None:
    shop.orders.join(shop.users, lambda order, user: order, selector=lambda key, order: order)  # here


@told(
    """
    join takes the joiner second, and the selector as a keyword.
      at {here}
      Hint: join(other, joiner, selector=lambda key, value: key)
    """,
)
def a_global_table_joined_in_the_order_of_java(shop: Shop) -> None:
    cities = shop.builder.global_table("cities", key=str, value=str, store="cities")
    shop.orders.join(cities, lambda key, order: order, lambda order, city: city)  # here


@told(
    """
    left_join takes the joiner second, and the foreign key as a keyword.
      at {here}
      Hint: left_join(other, joiner, foreign_key=lambda key, value: value)
    """,
)
def a_foreign_key_in_the_order_of_java(shop: Shop) -> None:
    shop.users.left_join(shop.users, lambda key, user: user, lambda user, other: other)  # here


@told(
    """
    join needs a KTable, but got a KStream.
      at {here}
      Hint: stream.join(table, joiner) joins its rows; stream.to_table(store='...') makes a table
    """,
)
def a_table_joined_with_a_stream(shop: Shop) -> None:
    shop.users.join(shop.orders, lambda user, order: order)  # here


@told(
    """
    KStream has no operator 'joinStream'.
        at {here}
        Hint: join(other, joiner, windows)
    """,
    AttributeError,
)
def a_join_with_a_stream_by_a_name_of_its_own(shop: Shop) -> None:
    shop.orders.joinStream(shop.orders, lambda left, right: left, NEAR)  # here


@told(
    """
    cogroup needs a KGroupedStream, but got a KStream.
      at {here}
      Hint: stream.group_by_key() groups it
    """,
)
def a_stream_that_is_not_grouped_in_a_cogroup(shop: Shop) -> None:
    refunds = shop.builder.stream("refunds", key=str, value=str)
    totals = shop.orders.group_by_key().cogroup(lambda key, order, total: total + 1, value=int)
    totals.cogroup(refunds, lambda key, refund, total: total - 1)  # here


@told(
    """
    join: the table belongs to another builder.
      at {here}
      Hint: use one builder for both
    """,
)
def a_table_of_another_builder(shop: Shop) -> None:
    other = Shop()
    shop.orders.join(other.users, lambda order, user: order, value=str)  # here


@told(
    """
    cogroup: the streams belong to several builders.
      at {here}
      Hint: use one builder for all of them
    """,
)
def streams_of_several_builders_in_a_cogroup(shop: Shop) -> None:
    count = lambda key, order, total: total + 1  # noqa: E731
    totals = shop.orders.group_by_key().cogroup(count, value=int).cogroup(Shop().orders.group_by_key(), count)
    totals.aggregate(lambda: 0, store="totals")  # here


@told(
    """
    the size of a window must be a timedelta, such as timedelta(milliseconds=60000), not 60000
    """,
    TypeError,
)
def a_number_as_the_size_of_a_window(shop: Shop) -> None:
    size: Any = 60_000
    TimeWindows(size=size, grace=timedelta(0))  # here


@told(
    """
    the inactivity gap of a session must be a timedelta, such as timedelta(minutes=5), not '30m'
    """,
    TypeError,
)
def a_text_as_a_duration(shop: Shop) -> None:
    gap: Any = "30m"
    SessionWindows(gap=gap, grace=timedelta(0))  # here


@told(
    """
    the history of a store must be a timedelta, such as timedelta(milliseconds=500), not 500
    """,
    TypeError,
)
def a_number_as_the_history_of_a_table(shop: Shop) -> None:
    history: Any = 500
    shop.builder.table("cities", key=str, value=str, store=Materialized("cities", history=history))  # here


@told(
    """
    count: retention must be a timedelta, such as timedelta(milliseconds=5000), not 5000.
      at {here}
    """,
)
def a_number_as_the_retention_of_windows(shop: Shop) -> None:
    shop.orders.group_by_key().windowed_by(SECONDS).count(store="counts", retention=5_000)  # here


@told(
    """
    a window of 1000 ms can advance by 1 to 1000 ms, not by 2000 ms
    """,
    ValueError,
)
def a_window_that_advances_by_more_than_its_size(shop: Shop) -> None:
    TimeWindows(size=SECOND, grace=timedelta(0), advance=2 * SECOND)  # here


@told(
    """
    a join window from 2000 to 1000 ms ends before it begins; before plus after must be 0 or more
    """,
    ValueError,
)
def a_join_window_that_ends_before_it_begins(shop: Shop) -> None:
    JoinWindows(before=-2 * SECOND, after=SECOND, grace=timedelta(0))  # here


@told(
    """
    the start of a window must have a time zone, 2026-01-01 00:00:00 has none
    """,
    ValueError,
)
def an_instant_without_a_time_zone(shop: Shop) -> None:
    UnlimitedWindows(start=datetime(2026, 1, 1))  # here


@told(
    """
    windowed_by needs TimeWindows or SlidingWindows or SessionWindows or UnlimitedWindows or Windows, but got a JoinWindows.
      at {here}
      Hint: windowed_by(TimeWindows(size=timedelta(minutes=5), grace=timedelta(0)))
    """,
)
def windows_of_joins_for_groups(shop: Shop) -> None:
    shop.orders.group_by_key().windowed_by(NEAR)  # here


@told(
    """
    join needs JoinWindows, but got a timedelta.
      at {here}
      Hint: join(other, joiner, JoinWindows(difference=timedelta(minutes=5), grace=timedelta(0)))
    """,
)
def a_duration_in_place_of_join_windows(shop: Shop) -> None:
    shop.orders.join(shop.orders, lambda left, right: left, SECOND, store="j")  # here


@told(
    """
    count: store 'counts' keeps 1000 ms, but its windows need 2000 ms (2 * time difference plus grace).
      at {here}
      Hint: retention=timedelta(milliseconds=2000) or more, or leave it out
    """,
)
def a_retention_shorter_than_the_windows(shop: Shop) -> None:
    windows = SlidingWindows(difference=SECOND, grace=timedelta(0))
    shop.orders.group_by_key().windowed_by(windows).count(store="counts", retention=SECOND)  # here


@told(
    """
    emit_strategy: unlimited windows never close, so nothing would ever be forwarded.
      at {here}
      Hint: leave out emit_strategy(EmitStrategy.ON_WINDOW_CLOSE), or use TimeWindows
    """,
)
def results_at_the_end_of_windows_that_never_end(shop: Shop) -> None:
    forever = shop.orders.group_by_key().windowed_by(UnlimitedWindows())
    forever.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="counts")  # here


@told(
    """
    TimeWindows needs grace: for how long, in stream time, records may be late.
        Hint: TimeWindows(size=timedelta(seconds=1), grace=timedelta(0)) drops late records; TimeWindows(size=timedelta(seconds=1), grace=timedelta(minutes=1)) takes those that are up to a minute late
    """,
    TypeError,
)
def windows_that_do_not_say_what_becomes_of_late_records(shop: Shop) -> None:
    kind: Any = TimeWindows
    kind(size=SECOND)  # here


@told(
    """
    TimeWindows has no attribute 'ofSizeWithNoGrace'.
        Hint: TimeWindows(size=timedelta(minutes=5), grace=timedelta(0))
    """,
    AttributeError,
)
def windows_made_as_in_java(shop: Shop) -> None:
    kind: Any = TimeWindows
    kind.ofSizeWithNoGrace(SECOND)  # here


@told(
    """
    JoinWindows has no attribute 'of_time_difference_and_grace'.
        Hint: JoinWindows(difference=timedelta(minutes=5), grace=timedelta(minutes=1))
    """,
    AttributeError,
)
def windows_of_joins_made_by_a_factory(shop: Shop) -> None:
    kind: Any = JoinWindows
    kind.of_time_difference_and_grace(SECOND, SECOND)  # here


@told(
    """
    JoinWindows needs both before and after.
        Hint: JoinWindows(before=timedelta(seconds=1), after=timedelta(0), grace=timedelta(0))
    """,
    TypeError,
)
def a_join_window_with_one_bound(shop: Shop) -> None:
    kind: Any = JoinWindows
    kind(before=SECOND, grace=timedelta(0))  # here


@told(
    """
    TimeWindows cannot be subclassed: what Days adds would be ignored.
        Hint: class Days(Windows), with windows_for(self, timestamp_ms), returns the windows of a timestamp
    """,
    TypeError,
)
def windows_of_the_kernel_with_another_meaning(shop: Shop) -> None:
    kind: Any = TimeWindows
    type("Days", (kind,), {})  # here


@told(
    """
    Days needs grace: for how long, in stream time, records may be late.
        Hint: Days(zone='Europe/Berlin', grace=timedelta(0)) drops late records; Days(zone='Europe/Berlin', grace=timedelta(minutes=1)) takes those that are up to a minute late
    """,
    TypeError,
)
def own_windows_that_do_not_say_what_becomes_of_late_records(shop: Shop) -> None:
    kind: Any = Days
    kind(zone="Europe/Berlin")  # here


@told(
    """
    Days has windowsFor, which is called windows_for here.
        Hint: def windows_for(self, timestamp_ms): return [(start_ms, end_ms)]
    """,
    TypeError,
)
def own_windows_written_as_in_java(shop: Shop) -> None:
    kind: Any = Windows
    type("Days", (kind,), {"windowsFor": lambda self, timestamp_ms: {}})  # here


@told(
    """
    windowed_by needs TimeWindows or SlidingWindows or SessionWindows or UnlimitedWindows or Windows, but got the class Days.
      at {here}
      Hint: windowed_by(TimeWindows(size=timedelta(minutes=5), grace=timedelta(0)))
    """,
)
def the_class_of_own_windows(shop: Shop) -> None:
    shop.orders.group_by_key().windowed_by(Days)  # here


@told(
    """
    emit_strategy needs EmitStrategy, but got 'on_window_close'.
      at {here}
      Hint: emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    """,
)
def a_text_as_the_emit_strategy(shop: Shop) -> None:
    shop.orders.group_by_key().windowed_by(SECONDS).emit_strategy("on_window_close")  # here


@told(
    """
    suppress until windows close: this table is not made from windows, so none ever closes.
      at {here}
      Hint: suppress a table of windowed_by(...), or use Suppressed.until_time_limit(...)
    """,
)
def a_table_without_windows_suppressed_until_they_close(shop: Shop) -> None:
    shop.users.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()), name="final")  # here


@told(
    """
    until_window_closes cannot emit early, because the result would not be final; use BufferConfig.unbounded(), or .shut_down_when_full()
    """,
    ValueError,
)
def final_results_that_are_emitted_early(shop: Shop) -> None:
    Suppressed.until_window_closes(BufferConfig.of_max_records(1_000))  # here


@told(
    """
    join: a grace period needs a versioned table, but store 'users' keeps only the latest rows.
      at {here}
      Hint: store=Materialized('users', history=...) for the table, or leave grace out
    """,
)
def a_grace_period_on_a_table_without_history(shop: Shop) -> None:
    shop.orders.join(shop.users, lambda order, user: order, value=str, grace=SECOND, name="j")  # here


@told(
    """
    join: the grace period is 2000 ms, but store 'cities' keeps versions for 1000 ms; the history must be at least the grace period.
      at {here}
      Hint: history=timedelta(milliseconds=2000) or more
    """,
)
def a_grace_period_longer_than_the_history(shop: Shop) -> None:
    cities = shop.builder.table("cities", key=str, value=str, store=Materialized("cities", history=SECOND))
    shop.orders.join(cities, lambda order, city: order, value=str, grace=2 * SECOND, name="j")  # here


@told(
    """
    StreamsBuilder.stream() missing 2 required keyword-only arguments: 'key' and 'value'
    """,
    TypeError,
)
def a_stream_without_types(shop: Shop) -> None:
    shop.builder.stream("payments")  # here


@told(
    """
    to('lengths') needs the type of the value, but map_values at {here} does not say what its function returns.
      at {here}
      Hint: map_values(..., value=int)
    """,
)
def a_lambda_whose_type_nobody_knows(shop: Shop) -> None:
    shop.orders.map_values(lambda order: len(order)).to("lengths")  # here


@told(
    """
    to('halves') needs the type of the value, but map_values at {first} does not say what its function returns.
      at {here}
      Hint: def half(...) -> str: ..., with the type that it returns; or map_values(..., value=str)
    """,
)
def a_function_without_a_return_annotation(shop: Shop) -> None:
    def half(order):  # type: ignore[no-untyped-def]
        return order[: len(order) // 2]

    halves = shop.orders.map_values(half)  # first
    halves.to("halves")  # here
    halves.to("copies")
    halves.group_by_key().reduce(lambda old, new: new, store="last").to_stream().to("last")
    halves.merge(shop.orders).to("all")


@told(
    """
    to('out') needs the type of the value, but map_values at {here} does not say what its function returns.
      at {here}
      Hint: map_values(..., value=str), with the type that it returns
    """,
)
def a_builtin_whose_result_depends_on_its_arguments(shop: Shop) -> None:
    shop.orders.map_values(max).to("out")  # here


@told(
    """
    to('out') needs the type of the value, but map_values at {here} has a function that returns None.
      at {here}
      Hint: return the value from that function
    """,
)
def a_mapper_that_returns_nothing(shop: Shop) -> None:
    def note(order: str) -> None:
        print(order)

    shop.orders.map_values(note).to("out")  # here


@told(
    """
    to('out') needs the type of the value, but map_values at {here} makes complex, for which there is no serde.
      at {here}
      Hint: map_values(..., value=...): give a msgspec.Struct, a dataclass, a builtin type, or a serde of your own
    """,
)
def a_result_that_no_serde_can_write(shop: Shop) -> None:
    shop.orders.map_values(complex).to("out")  # here


@told(
    """
    map_values: value=int, but its function returns str.
      at {here}
      Hint: value=str, or leave value= out
    """,
)
def a_type_that_contradicts_the_annotation(shop: Shop) -> None:
    shop.orders.map_values(str.upper, value=int).to("out")  # here


@told(
    """
    process: value=str, but its class declares int.
      at {here}
      Hint: value=int, or leave value= out
    """,
)
def a_type_that_contradicts_the_class_of_a_processor(shop: Shop) -> None:
    shop.orders.process(Counting, value=str).to("out")  # here


@told(
    """
    map_values: the mapper must be a function, but is 'upper'.
      at {here}
      Hint: lambda value: ...
    """,
)
def a_text_as_a_mapper_whose_type_is_missing_too(shop: Shop) -> None:
    shop.orders.map_values("upper").to("out")  # here


@told(
    """
    process could not make a Processor: NameError: name 'Countin' is not defined.
      at {here}
      Hint: class Name(Processor[...]): ..., then process(Name); with arguments: lambda: Name(...)
    """,
)
def a_supplier_that_fails(shop: Shop) -> None:
    shop.orders.process(lambda: Countin()).to("out")  # type: ignore[name-defined]  # noqa: F821  # here


@told(
    """
    stream: there is no serde for key=Windowed[str].
      at {here}
      Hint: TimeWindowed(serde_for(str), windows) for keys of time windows, SessionWindowed(serde_for(str)) for those of sessions
    """,
)
def a_windowed_key_of_a_topic(shop: Shop) -> None:
    shop.builder.stream("hourly", key=Windowed[str], value=int).to("out")  # here


@told(
    """
    stream: key=String is the class of a serde, not a serde.
      at {here}
      Hint: key=String(...)
    """,
)
def the_class_of_a_serde(shop: Shop) -> None:
    shop.builder.stream("payments", key=String, value=str).to("out")  # here


@told(
    """
    stream: there is no serde for value='json'.
      at {here}
      Hint: give a msgspec.Struct, a dataclass, a builtin type, or a serde of your own
    """,
)
def a_text_as_a_type(shop: Shop) -> None:
    shop.builder.stream("payments", key=str, value="json").to("out")  # here


@told(
    """
    to('out') needs the type of the value, but merge at {here} joins streams of different types.
      at {here}
      Hint: bring both streams to one type first, with map_values(...) or map(...)
    """,
)
def two_streams_of_different_types_merged(shop: Shop) -> None:
    numbers = shop.builder.stream("numbers", key=str, value=int)
    shop.orders.merge(numbers).to("out")  # here


@told(
    """
    join: keys of the stream are string, keys of the table of store 'cities' are long; a join needs keys of one type.
      at {here}
      Hint: select_key(...) to the type of the table's keys first
    """,
)
def keys_of_different_types_joined(shop: Shop) -> None:
    cities = shop.builder.table("cities", key=int, value=str, store="cities")
    shop.orders.join(cities, lambda order, city: order, value=str)  # here


@told(
    """
    join: keys of the left stream are string, keys of the right one are long; a join needs keys of one type.
      at {here}
      Hint: select_key(...) to one type first
    """,
)
def streams_with_keys_of_different_types_joined(shop: Shop) -> None:
    visits = shop.builder.stream("visits", key=int, value=str)
    shop.orders.join(visits, lambda order, visit: order, NEAR, value=str, store="j")  # here


@told(
    """
    join: the foreign key is long, keys of the other table are string; they must be of one type.
      at {here}
      Hint: return what the other table has as its key (string)
    """,
)
def a_foreign_key_of_another_type(shop: Shop) -> None:
    def number(key: str, user: str) -> int:
        return len(user)

    cities = shop.builder.table("cities", key=str, value=str, store="cities")
    shop.users.join(cities, lambda user, city: city, foreign_key=number, value=str, name="fk")  # here


@told(
    """
    count has no name for its store; names are state, so they are not made up.
      at {here}
      Hint: count(..., store='...')
    """,
)
def a_store_without_a_name(shop: Shop) -> None:
    shop.orders.group_by_key().count()  # here


@told(
    """
    two stores are named 'counts'; the first is at {first}.
      at {here}
      Hint: give each stateful operator a store of its own; to read one twice, keep the KTable in a variable
    """,
)
def one_store_for_two_aggregates(shop: Shop) -> None:
    group = shop.orders.group_by_key()
    group.count(store="counts")  # first
    group.reduce(max, store="counts")  # here


@told(
    """
    store= takes a name, such as store='counts', or a Materialized, but got a StoreBuilder
    """,
    TypeError,
)
def a_declared_store_as_that_of_an_operator(shop: Shop) -> None:
    shop.orders.group_by_key().count(store=Stores.key_value("counts", key=str, value=int))  # here


@told(
    """
    map_values calls its mapper with (value), but got a lambda that takes (key, order).
      at {here}
      Hint: map_values_with_key(...) calls it with (key, value)
    """,
)
def a_mapper_that_wants_the_key_too(shop: Shop) -> None:
    shop.orders.map_values(lambda key, order: order, value=str)  # here


@told(
    """
    filter calls its predicate with (key, value), but got a lambda that takes (order).
      at {here}
      Hint: lambda key, value: ...
    """,
)
def a_predicate_that_wants_the_value_only(shop: Shop) -> None:
    shop.orders.filter(lambda order: order != "")  # here


@told(
    """
    join calls its joiner with (value, row), but got a lambda that takes (key, order, user).
      at {here}
      Hint: join_with_key(...) calls it with (key, value, row)
    """,
)
def a_joiner_that_wants_the_key_too(shop: Shop) -> None:
    shop.orders.join(shop.users, lambda key, order, user: order, value=str)  # here


@told(
    """
    aggregate calls its aggregator with (key, value, aggregate), but got a lambda that takes (total, order).
      at {here}
      Hint: lambda key, value, aggregate: ...
    """,
)
def an_aggregator_in_another_order(shop: Shop) -> None:
    shop.orders.group_by_key().aggregate(lambda: 0, lambda total, order: total + 1, value=int, store="totals")  # here


@told(
    """
    aggregate: the initializer must be a function, but is 0.
      at {here}
      Hint: lambda: 0
    """,
)
def an_initializer_that_is_a_value(shop: Shop) -> None:
    shop.orders.group_by_key().aggregate(0, lambda key, order, total: total + 1, value=int, store="totals")  # here


@told(
    """
    SessionWindowedKStream.aggregate() missing 1 required positional argument: 'merger'
    """,
    TypeError,
)
def a_session_aggregate_without_a_merger(shop: Shop) -> None:
    sessions = shop.orders.group_by_key().windowed_by(SESSIONS)
    sessions.aggregate(lambda: 0, lambda key, order, total: total + 1, store="totals")  # here


@told(
    """
    to needs the name of a topic, but got a function.
      at {here}
      Hint: to_extracted(...) asks a function for the topic of each record
    """,
)
def a_function_in_place_of_the_name_of_a_topic(shop: Shop) -> None:
    shop.orders.to(lambda key, order, context: order)  # here


@told(
    """
    stream needs the name of a topic, but got a list.
      at {here}
      Hint: stream('payments', 'refunds', ...): one argument for each topic
    """,
)
def a_list_of_topics(shop: Shop) -> None:
    shop.builder.stream(["payments", "refunds"], key=str, value=str)  # here


@told(
    """
    stream has both topic names and a pattern.
      at {here}
      Hint: give the names, or pattern='sensor-.*'
    """,
)
def topics_and_a_pattern(shop: Shop) -> None:
    shop.builder.stream("sensor-1", pattern="sensor-.*", key=str, value=str)  # here


@told(
    """
    topic 'cities' is read twice; the first time at {first}.
      at {here}
      Hint: a global table has its topic to itself; keep it in a variable and join it twice
    """,
)
def a_topic_read_twice(shop: Shop) -> None:
    shop.builder.global_table("cities", key=str, value=str, store="cities")  # first
    shop.builder.stream("cities", key=str, value=str)  # here


@told(
    """
    stream: timestamp_extractor=WallclockTimestampExtractor is a class, not an extractor.
      at {here}
      Hint: timestamp_extractor=WallclockTimestampExtractor()
    """,
)
def the_class_of_a_timestamp_extractor(shop: Shop) -> None:
    clock = WallclockTimestampExtractor
    shop.builder.stream("visits", key=str, value=str, timestamp_extractor=clock)  # here


@told(
    """
    repartition calls its partitioner with (topic, key, value, partitions), but got a lambda that takes (order, partitions).
      at {here}
      Hint: lambda topic, key, value, partitions: ...
    """
)
def a_partitioner_that_takes_other_arguments(shop: Shop) -> None:
    shop.orders.repartition(partitioner=lambda order, partitions: order % partitions)  # here


@told(
    """
    to('out'): the partitioner must be a function, but is 3.
      at {here}
      Hint: lambda topic, key, value, partitions: ...
    """
)
def a_partition_in_place_of_a_partitioner(shop: Shop) -> None:
    shop.orders.to("out", partitioner=3)  # here


@told(
    """
    to('out'): partitioner=ByStore is a class, not a partitioner.
      at {here}
      Hint: partitioner=ByStore()
    """
)
def the_class_of_a_partitioner(shop: Shop) -> None:
    class ByStore:
        def __call__(self, topic: str, key: str, value: str, partitions: int) -> int:
            return len(key) % partitions

    shop.orders.to("out", partitioner=ByStore)  # here


@told(
    """
    the split 'sizes-' is not ended, so its branches do not exist.
      at {here}
      Hint: end it with .default_branch() or .no_default_branch()
    """,
)
def a_split_that_is_not_ended(shop: Shop) -> None:
    shop.orders.split("sizes").branch(lambda key, order: len(order) > 9, name="big")  # here


@told(
    """
    split has two branches named 'big'.
      at {here}
      Hint: name each branch differently
    """,
)
def two_branches_of_one_name(shop: Shop) -> None:
    sizes = shop.orders.split("sizes").branch(lambda key, order: len(order) > 9, name="big")
    sizes.branch(lambda key, order: True, name="big").no_default_branch()  # here


@told(
    """
    the split has no branch 'sizes-big'; it has: 'big', 'default'
    """,
    KeyError,
)
def a_branch_by_its_name_in_kafka_streams(shop: Shop) -> None:
    sizes = shop.orders.split("sizes-").branch(lambda key, order: len(order) > 9, name="big").default_branch()
    sizes["sizes-big"].to("big")  # here


@told(
    """
    process needs a supplier that makes a Processor, but got a Counting: each task has its own.
      at {here}
      Hint: process(Counting), the class itself, or a function that returns a new one
    """,
)
def a_processor_in_place_of_its_class(shop: Shop) -> None:
    shop.builder.add_state_store(COUNTS)
    shop.orders.process(Counting(), "counts").to("out")  # here


@told(
    """
    process could not make a Processor: TypeError: a_function_in_place_of_a_processor.<locals>.process() missing 1 required positional argument: 'record'.
      at {here}
      Hint: class Name(Processor[...]): ..., then process(Name); with arguments: lambda: Name(...)
    """,
)
def a_function_in_place_of_a_processor(shop: Shop) -> None:
    def process(record: Any) -> None: ...

    shop.orders.process(process).to("out")  # here


@told(
    """
    process needs a supplier that makes a Processor, but got one that makes a Lengths.
      at {here}
      Hint: class Lengths(Processor[...])
    """,
)
def a_fixed_key_processor_that_may_change_keys(shop: Shop) -> None:
    class Lengths(FixedKeyProcessor[str, str, int]):
        def process(self, record: Any) -> None: ...

    shop.orders.process(Lengths).to("out")  # here


@told(
    """
    process: the supplier returns the same object each time; tasks cannot share a processor.
      at {here}
      Hint: return a new Counting from each call
    """,
)
def one_processor_for_all_tasks(shop: Shop) -> None:
    counting = Counting()
    shop.builder.add_state_store(COUNTS)
    shop.orders.process(lambda: counting, "counts", key=str, value=int).to("out")  # here


@told(
    """
    'counting' names the store 'counts', but there is none of that name.
      at {here}
      Hint: add_state_store(...) adds one; there are: users
    """,
)
def a_store_that_nobody_added(shop: Shop) -> None:
    shop.orders.process(Counting, "counts", name="counting").to("out")  # here


@told(
    """
    process: a store is given by its name or its declaration, but got the class Counting.
      at {here}
      Hint: process(..., Stores.key_value('counts', key=str, value=int))
    """,
)
def a_store_that_is_none(shop: Shop) -> None:
    store: Any = Counting
    shop.orders.process(Counting, store).to("out")  # here


@told(
    """
    a store to be added must be a StoreBuilder, but is 'counts'.
      at {here}
      Hint: Stores.key_value('counts', key=str, value=int)
    """,
)
def a_name_added_as_a_store(shop: Shop) -> None:
    store: Any = "counts"
    shop.builder.add_state_store(store)  # here


@told(
    """
    Stores has no method 'persistentKeyValueStore'.
        at {here}
        Hint: Stores.key_value('name', key=str, value=int)
    """,
    AttributeError,
)
def a_supplier_of_stores_of_kafka_streams(shop: Shop) -> None:
    stores: Any = Stores
    stores.persistentKeyValueStore("counts")  # here


@told(
    """
    'counting': its parent 'order' is not added yet.
      at {here}
      Hint: add the parent first
    """,
)
def an_unknown_parent(shop: Shop) -> None:
    topology = Topology("low").add_source("orders", "orders", key=str, value=str)
    topology.add_processor("counting", Counting, "order")  # here
    topology.build()


@told(
    """
    topology= is None, not a function that builds one.
      Hint: def topology(builder: StreamsBuilder) -> None: ..., then topology=topology, without ()
    """
)
def a_topology_that_has_been_called(shop: Shop) -> None:
    build: Any = lambda builder: builder.stream("payments", key=str, value=str).to("out")  # noqa: E731
    Pipeline(name="payments", topology=build(shop.builder)).plan()  # here


@told(
    """
    topics=(...) holds 'orders', not a Topic.
      Hint: topics=(Topic('orders'),)
    """
)
def names_in_place_of_topics(shop: Shop) -> None:
    topics: Any = ("orders",)
    Pipeline(name="payments", topology=lambda builder: None, topics=topics).plan()  # here


@told(
    """
    the test driver runs a Pipeline or a Plan, but got a StreamsBuilder; give what its build() returns
    """,
    TypeError,
)
def a_builder_in_the_test_driver(shop: Shop) -> None:
    TopologyTestDriver(shop.builder)  # here


@told(
    """
    the topology has no input topic 'order'; it has: orders, users
    """,
    KeyError,
)
def a_topic_that_is_not_read(shop: Shop) -> None:
    TopologyTestDriver(shop.builder.build()).create_input_topic("order")  # here


@told(
    """
    the topology has no output topic 'output'; it has: out
    """,
    KeyError,
)
def a_topic_that_is_not_written(shop: Shop) -> None:
    shop.orders.to("out")
    TopologyTestDriver(shop.builder.build()).create_output_topic("output")  # here


@told(
    """
    the topology has no store 'user'; it has: users
    """,
    KeyError,
)
def a_store_that_is_not_there(shop: Shop) -> None:
    TopologyTestDriver(shop.builder.build()).store("user")  # here


@told(
    """
    the topology has no table 'orders'; it has: none
    """,
    KeyError,
)
def a_table_that_is_not_there(shop: Shop) -> None:
    TopologyTestDriver(shop.builder.build()).table("orders")  # here


@told(
    """
    topic 'orders' has string as its key: a value of type int cannot be written as string
      Hint: write what the topology reads, or create_input_topic(..., key=...)
    """,
    SerializationError,
)
def a_key_of_the_wrong_type_in_a_test(shop: Shop) -> None:
    shop.run(7, "book")  # here


@told(
    """
    timestamp_ms= takes milliseconds, at= takes an instant, but got '2026-01-01'
    """,
    TypeError,
)
def a_text_as_a_timestamp(shop: Shop) -> None:
    driver: Any = TopologyTestDriver(shop.builder.build())
    driver.create_input_topic("orders").pipe_input("ann", "book", timestamp_ms="2026-01-01")  # here


@told(
    """
    no record left in topic 'out'; 0 have been read.
      Hint: the operator may have dropped the record, or its window is still open; see driver.metrics.
    """,
    LookupError,
)
def more_results_are_read_than_there_are(shop: Shop) -> None:
    shop.orders.filter(lambda key, order: False).to("out")
    shop.run("ann", "book").create_output_topic("out").read_value()  # here


@told(
    """
    a record failed: ValueError: invalid literal for int() with base 10: 'book'
      at orders-0 offset 0 (timestamp 0), operator KSTREAM-MAPVALUES-0000000003 from {here}
      {aside}
    """,
    StreamsError,
)
def a_function_that_raises(shop: Shop) -> None:
    shop.orders.map_values(lambda order: int(order), value=int).to("out")  # here
    shop.run("ann", "book")


@told(
    """
    a record failed: AttributeError: 'NoneType' object has no attribute 'upper'
      at orders-0 offset 0 (timestamp 0), operator KSTREAM-MAPVALUES-0000000003 from {here}
      {aside}
    """,
    StreamsError,
)
def a_null_value_where_none_is_expected(shop: Shop) -> None:
    shop.orders.map_values(lambda order: order.upper(), value=str).to("out")  # here
    shop.run("ann", None)


@told(
    """
    a record failed: AttributeError: 'NoneType' object has no attribute 'upper'
      at orders-0 offset 0 (timestamp 0), operator join from {here}
      {aside}
    """,
    StreamsError,
)
def no_row_in_a_left_join(shop: Shop) -> None:
    shop.orders.left_join(shop.users, lambda order, user: user.upper(), value=str, name="join").to("out")  # here
    shop.run("ann", "book")


@told(
    """
    a record failed: TypeError: the function returned one str, not a pair (key, value)
      at orders-0 offset 0 (timestamp 0), operator KSTREAM-MAP-0000000003 from {here}
      {aside}
    """,
    StreamsError,
)
def a_mapper_that_returns_no_pair(shop: Shop) -> None:
    shop.orders.map(lambda key, order: order, key=str, value=str).to("out")  # here
    shop.run("ann", "book")


@told(
    """
    a record failed: TypeError: the function returned one str, not a pair (key, value)
      at users-0 offset 0 (timestamp 0), operator KTABLE-SELECT-0000000003 from {here}
      {aside}
    """,
    StreamsError,
)
def a_group_that_is_no_pair(shop: Shop) -> None:
    by_city = shop.users.group_by(lambda name, city: city, key=str, value=str)  # here
    by_city.count(store="counts")
    shop.run("ann", "Utrecht", "users")


@told(
    """
    a record failed: TypeError: the function returned one str, not several results; return a list, such as [value]
      at orders-0 offset 0 (timestamp 0), operator KSTREAM-FLATMAPVALUES-0000000003 from {here}
      {aside}
    """,
    StreamsError,
)
def a_text_in_place_of_several_results(shop: Shop) -> None:
    shop.orders.flat_map_values(lambda order: order.strip(), value=str).to("out")  # here
    shop.run("ann", "book")


@told(
    """
    a record has a result that cannot be written: deltaworks.errors.SerializationError: a value of type int cannot be written as string
      at orders-0 offset 0 (timestamp 0), operator KSTREAM-SINK-0000000004 from {here}
      {aside}
    """,
    StreamsError,
)
def a_result_of_another_type(shop: Shop) -> None:
    shop.orders.map_values(lambda order: len(order), value=str).to("out")  # here
    shop.run("ann", "book")


@told(
    """
    store 'lengths' of 'KSTREAM-AGGREGATE-0000000003' from {here} cannot keep a value that it was given: a value of type int cannot be written as string
      Hint: declare the store with the type of its values, or put only values of the declared type
    """,
    StreamsError,
)
def an_aggregate_of_another_type(shop: Shop) -> None:
    lengths = shop.orders.group_by_key()
    lengths.aggregate(lambda: 0, lambda key, order, total: total + len(order), value=str, store="lengths")  # here
    shop.run("ann", "book")


@told(
    """
    a record has a result that cannot be written: deltaworks.errors.SerializationError: a value of type int cannot be written as string
      at users-0 offset 0 (timestamp 0), operator fk-subscription-registration-sink from {here}
      {aside}
    """,
    StreamsError,
)
def a_foreign_key_of_another_type_than_the_table(shop: Shop) -> None:
    cities = shop.builder.table("cities", key=str, value=str, store="cities")
    shop.users.join(cities, lambda *_: "", foreign_key=lambda key, user: len(user), value=str, name="fk")  # here
    shop.run("ann", "Utrecht", "users")


@told(
    """
    a record failed: KeyError: "there is no store 'counts' for 'counting'; it can use: none. A store is added with add_state_store(...) and named where the processor is added: .process(..., 'counts')"
      at orders-0 offset 0 (timestamp 0), operator counting from {here}
      {aside}
    """,
    StreamsError,
)
def a_store_that_is_not_connected(shop: Shop) -> None:
    shop.builder.add_state_store(COUNTS)
    shop.orders.process(Counting, name="counting").to("out")  # here
    shop.run("ann", "book")


@told(
    """
    a record failed: AttributeError: 'Upper' object has no attribute 'context': its init has to call super().init(context), which keeps it
      at orders-0 offset 0 (timestamp 0), operator upper from {here}
      {aside}
    """,
    StreamsError,
)
def an_init_that_forgets_the_context(shop: Shop) -> None:
    class Upper(Processor[str, str, str, str]):
        def init(self, context: Any) -> None: ...

        def process(self, record: Record[str, str]) -> None:
            self.context.forward(record)

    shop.orders.process(Upper, name="upper").to("out")  # here
    shop.run("ann", "book")


@told(
    """
    a record failed: TypeError: forward takes a Record, such as record.with_value(...), but got a str
      at orders-0 offset 0 (timestamp 0), operator upper from {here}
      {aside}
    """,
    StreamsError,
)
def a_value_forwarded_in_place_of_a_record(shop: Shop) -> None:
    class Upper(Processor[str, str, str, str]):
        def process(self, record: Any) -> None:
            self.context.forward(record.value)

    shop.orders.process(Upper, name="upper").to("out")  # here
    shop.run("ann", "book")


@told(
    """
    'ticking' from {here} cannot start: TypeError: the interval of a punctuator must be a timedelta, such as timedelta(milliseconds=1000), not 1000
      Hint: its init runs whenever a task is built; it gets stores and schedules, and forwards nothing
    """,
    StreamsError,
)
def a_number_as_the_interval_of_a_punctuator(shop: Shop) -> None:
    class Ticking(Counting):
        def init(self, context: Any) -> None:
            context.schedule(1_000, PunctuationType.STREAM_TIME, print)

    shop.orders.process(Ticking, name="ticking").to("out")  # here
    shop.run("ann", "book")


@told(
    """
    a record failed: TypeError: the extractor of topic names returned None, which is not a name
      at orders-0 offset 0 (timestamp 0), operator out from {here}
      {aside}
    """,
    StreamsError,
)
def a_topic_that_a_function_does_not_name(shop: Shop) -> None:
    shop.orders.to_extracted(lambda key, order, context: None, name="out")  # here
    shop.run("ann", "book")


@told(
    """
    a timestamp extractor failed: TypeError: it returned None, not a timestamp in milliseconds
      at visits-0 offset 0 (timestamp 0), operator KSTREAM-SOURCE-0000000003 from {here}
      Hint: an extractor has to answer for every record; a negative timestamp drops it
    """,
    StreamsError,
)
def an_extractor_that_returns_no_timestamp(shop: Shop) -> None:
    visits = shop.builder.stream("visits", key=str, value=str, timestamp_extractor=lambda visit, time: None)  # here
    visits.to("out")
    shop.run("ann", "home", "visits")


@told(
    """
    a record failed: BufferError: the buffer of suppress is full: it holds 1 of 0 records
      at orders-0 offset 0 (timestamp 0), operator final from {here}
      {aside}
    """,
    StreamsError,
)
def a_buffer_that_is_too_small(shop: Shop) -> None:
    counts = shop.orders.group_by_key().windowed_by(SECONDS).count(store="counts")
    small = BufferConfig.of_max_records(0).shut_down_when_full()
    counts.suppress(Suppressed.until_window_closes(small), name="final").to_stream().to("out")  # here
    shop.run("ann", "book")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_line_and_what_to_do(name: str) -> None:
    mistake = MISTAKES[name]
    expected = mistake.text.replace("{aside}", ASIDE)
    for marked in ("here", "first"):
        expected = expected.replace("{" + marked + "}", f"{FILE}:{checkpoint_of(mistake.code, marked)}")

    with pytest.raises(mistake.error) as caught:
        shop = Shop()
        mistake.code(shop)
        shop.builder.build()

    assert type(caught.value) is mistake.error
    assert shown(caught.value) == expected
    if "{here}" not in mistake.text:
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert checkpoint_of(mistake.code, "here") in [frame.lineno for frame in frames if frame.filename == __file__]


def checkpoint_of(code: Callable[[Shop], object], marked: str) -> int | None:
    lines, first = inspect.getsourcelines(code)
    return next((first + number for number, line in enumerate(lines) if line.rstrip().endswith(f"# {marked}")), None)


def shown(error: Exception) -> str:
    """Without the first line of a `TopologyError`, which counts the problems."""
    if isinstance(error, TopologyError):
        return textwrap.dedent(str(error).partition("\n")[2])
    return str(error.args[0]) if isinstance(error, KeyError) else str(error)


def test_no_class_of_ours_is_said_to_be_missing() -> None:
    assert not kafka_names.INSTEAD.keys() & {*deltaworks.__all__}
    assert not any(hasattr(deltaworks, name) for name in kafka_names.INSTEAD)


def test_there_are_texts_for_the_most_likely_mistakes() -> None:
    assert len(MISTAKES) >= 30


def test_a_topology_tells_all_its_mistakes_at_once() -> None:
    shop = Shop()
    shop.orders.filter(lambda order: True)
    shop.orders.group_by_key().count()
    shop.orders.split("sizes").branch(lambda key, order: True, name="big")

    with pytest.raises(TopologyError, match=r"^3 problems in topology 'shop'"):
        shop.builder.build()


def test_what_was_wrong_before_is_told_with_the_mistake_that_ends_it() -> None:
    shop = Shop()
    shop.orders.filter(lambda order: True)

    with pytest.raises(TopologyError, match=r"^2 problems in topology 'shop'"):
        shop.orders.join(shop.orders, lambda left, right: left)


def test_functions_that_take_what_they_get_are_no_mistake() -> None:
    class Upper:
        def __call__(self, value: str, *, loudly: bool = False) -> str:
            return value.upper()

    shop = Shop()
    shop.orders.map_values(str.upper).map_values(Upper()).filter(lambda *_: True).peek(print).map_values(str)
    shop.orders.group_by_key().aggregate(str, lambda key, order, all_orders, limit=9: all_orders + order, store="all")
    shop.builder.build()
