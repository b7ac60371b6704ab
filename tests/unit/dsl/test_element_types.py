"""Element types flow through the DSL: mypy finds a wrong attribute in a lambda before anything runs.

The snippets are checked in one run of mypy; a line with `# error: <text>` must give an error with that
text, and every other line none.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PREAMBLE = """
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Optional

import msgspec

from deltaworks import BufferConfig, EmitStrategy, JoinWindows, Json, KStream, KTable, SessionWindows, SlidingWindows
from deltaworks import KeyValueStore, StoreBuilder, Stores
from deltaworks import StreamsBuilder, String, Suppressed, TimeWindowed, TimeWindows, UnlimitedWindows
from deltaworks import ValueTransformer, Windowed, Windows


class User(msgspec.Struct, frozen=True):
    name: str


class Order(msgspec.Struct, frozen=True):
    order_id: str
    amount: Decimal


class Enriched(Order, frozen=True):
    user: str


def enrich(order: Order, user: User) -> Enriched:
    return Enriched(order.order_id, order.amount, user.name)


builder = StreamsBuilder()
users = builder.table("users", key=str, value=User, store="users")
orders = builder.stream("orders", key=str, value=Json(Order))
enriched = orders.join(users, enrich)
hourly = TimeWindows(size=timedelta(hours=1), grace=timedelta(0))
sessions = SessionWindows(gap=timedelta(minutes=30), grace=timedelta(0))
"""

SNIPPETS = {
    "numbers of grouped streams and tables": """
grouped, hours, visits = orders.group_by_key(), orders.group_by_key().windowed_by(hourly), orders.group_by_key()
revenue: KTable[str, Decimal] = grouped.sum(lambda order: order.amount, value=Decimal, store="a")
grouped.sum(lambda order: order.amuont, store="a")  # error: no attribute "amuont"
per_hour: KTable[Windowed[str], Decimal] = hours.max(lambda order: order.amount, store="b")
grouped.sum(store="c")  # error: Missing positional argument "selector"
grouped.mean(store="c")  # error: No overload
first: KTable[str, str] = grouped.min(lambda order: order.order_id, store="d")
grouped.min(lambda order: order, store="d")  # error: has incompatible type
lengths: KTable[str, Decimal] = grouped.mean(lambda order: len(order.order_id), value=int, store="e")
halves: KTable[str, float] = grouped.mean(lambda order: 0.5, value=float, store="f")
numbers = builder.stream("numbers", key=str, value=int).group_by_key()
totals: KTable[str, int] = numbers.sum(store="g")
wrong: KTable[str, int] = numbers.mean(store="h")  # error: Incompatible types in assignment
in_sessions: KTable[Windowed[str], Decimal] = numbers.windowed_by(sessions).mean(store="i")
regrouped = users.group_by(lambda _, user: (user.name, user), key=str, value=User)
users.group_by(lambda _, user: (user.name, 1), key=str, value=int).sum(store="l").filter(lambda _, n: n > 0)
letters: KTable[str, int] = regrouped.sum(lambda user: len(user.name), value=int, store="j")
regrouped.max(lambda user: user.name, store="k")  # error: no attribute "max"
regrouped.sum(lambda user: 0.5, value=float, store="k")  # error: cannot be "float"
""",
    "null values": """
builder.stream("nulls", key=str, value=Order, on_null="skip").map_values(lambda order: order.amount)
builder.stream("nulls", key=str, value=Order, on_null="drop")  # error: incompatible type "Literal['drop']"
""",
    "joins of streams and global tables": """
near = JoinWindows(difference=timedelta(seconds=1), grace=timedelta(0))
orders.join(orders, lambda one, two: one.amount + two.amount, near, store="a").filter(lambda _, n: n > 0)
orders.join(orders, lambda one, two: one.amuont, near, store="a")  # error: no attribute "amuont"
orders.left_join(orders, lambda one, two: two.amount, near, store="a")  # error: Item "None" of
orders.outer_join(orders, lambda one, two: one.amount, near, store="a")  # error: Item "None" of
places = builder.global_table("users", key=str, value=User, store="places")
orders.join(places, lambda order, user: user.name, selector=lambda _, order: order.order_id).map_values(str.upper)
orders.left_join(places, lambda order, user: user.name, selector=lambda key, _: key)  # error: Item "None" of
orders.join(places, enrich, selector=lambda _, order: order.amount)  # error: Argument "selector" to "join"
orders.left_join(users, lambda order, user: user.name, grace=timedelta(1))  # error: Item "None" of
""",
    "filter": """
orders.filter(lambda _, order: order.amount > 0)
orders.filter(lambda _, order: order.amuont > 0)  # error: no attribute "amuont"
orders.filter_not(lambda key, _: key.amount)  # error: no attribute "amount"
""",
    "map_values": """
orders.map_values(lambda order: order.amount).filter(lambda _, amount: amount.is_signed())
orders.map_values(lambda order: order.user)  # error: no attribute "user"
orders.map_values(lambda order: order.amount).map_values(lambda a: a.amount)  # error: no attribute "amount"
orders.map_values(lambda order: order.amount, value=Decimal).to("amounts")
""",
    "map": """
swapped: KStream[Decimal, str] = orders.map(lambda key, order: (order.amount, key))
swapped.filter(lambda amount, key: amount > 0 and key.isupper())
swapped.filter(lambda amount, key: key.is_signed())  # error: no attribute "is_signed"
""",
    "flat_map": """
def each(key: str, order: Order) -> Iterator[tuple[int, User]]:
    yield 1, User(key)

orders.flat_map(each).filter(lambda number, user: number > 0 and user.name != "")
orders.flat_map(each).filter(lambda number, user: user.amount > 0)  # error: no attribute "amount"
orders.flat_map_values(lambda order: [order.amount]).filter(lambda _, a: a.amount)  # error: no attribute "amount"
""",
    "join": """
enriched.filter(lambda _, order: order.user != "")
enriched.filter(lambda _, order: order.name != "")  # error: no attribute "name"
orders.join(users, lambda order, user: user.name + order.order_id)
orders.join(users, lambda order, user: user.nmae)  # error: no attribute "nmae"
orders.left_join(users, lambda order, user: user.name)  # error: Item "None" of "User | None" has no attribute "name"
orders.left_join_with_key(users, lambda key, order, user: key if user is None else user.name)
""",
    "tables": """
pairs = users.join(users.map_values(lambda user: len(user.name)), lambda user, length: (user.name, length))
pairs.filter(lambda _, pair: pair[1] > len(pair[0]))
pairs.filter(lambda _, pair: pair[0] > pair[1])  # error: Unsupported operand types
users.left_join(users, lambda user, other: other.name)  # error: Item "None" of "User | None" has no attribute "name"
users.outer_join(users, lambda user, other: user.name)  # error: Item "None" of "User | None" has no attribute "name"
by_length = users.group_by(lambda key, user: (len(key), user.name))
by_length.count(store="n").filter(lambda length, n: length > n)
by_length.reduce(lambda old, new: old + new, lambda old, new: old.nmae, store="r")  # error: no attribute "nmae"
sums = by_length.aggregate(lambda: 0, lambda n, name, s: s + n, lambda n, name, s: s - len(name), store="a")
sums.map_values(lambda s: s.name)  # error: no attribute "name"


class Length(ValueTransformer[str, User | None, int]):
    def transform(self, key: str, value: User | None) -> int:
        return 0 if value is None else len(value.name)


users.transform_values(Length).filter(lambda _, length: length > 1)
users.transform_values(Length).filter(lambda _, length: length.name)  # error: no attribute "name"
""",
    "types or None": """
def named_user(order: Order) -> User | None:
    return None

by_user = orders.map_values(named_user, value=Optional[User])
by_user.filter(lambda _, user: user.name != "")  # error: Item "None" of "User | None" has no attribute "name"
orders.map_values(named_user, value=User)  # error: Argument 1 to "map_values"
orders.map_values(str, value=Optional[User])  # error: Argument "value" to "map_values"
keyed = Stores.key_value("w", key=Windowed[str], value=int)
typed: StoreBuilder[KeyValueStore[Windowed[str], int]] = keyed
other: StoreBuilder[KeyValueStore[str, int]] = keyed  # error: Incompatible types in assignment
""",
    "select_key": """
orders.select_key(lambda _, order: order.amount).filter(lambda amount, _: amount > 0)
orders.select_key(lambda _, order: order.amount).filter(lambda a, _: a.order_id)  # error: no attribute "order_id"
orders.group_by(lambda _, order: order.amount, key=Decimal).count(store="n").filter(lambda amount, n: amount > n)
""",
    "split": """
branches = orders.split("size").branch(lambda _, order: order.amount > 9, name="big").default_branch()
branches["big"].filter(lambda _, order: order.user)  # error: no attribute "user"
orders.split().branch(lambda _, order: order.user, name="x")  # error: no attribute "user"
""",
    "aggregates": """
counts: KTable[str, int] = orders.group_by_key().count(store="a")
per_hour: KTable[Windowed[str], int] = orders.group_by_key().windowed_by(hourly).count(store="b")
per_hour.filter(lambda key, count: key.key.isupper() and key.start_ms > count)
per_hour.filter(lambda key, count: key.isupper())  # error: no attribute "isupper"
total = orders.group_by_key().aggregate(lambda: Decimal(0), lambda _, order, sum: sum + order.amount, store="c")
total.filter(lambda _, amount: amount.is_signed())
total.filter(lambda _, amount: amount.order_id)  # error: no attribute "order_id"
orders.group_by_key().reduce(lambda old, new: new.newer, store="d")  # error: no attribute "newer"
per_session = orders.group_by_key().windowed_by(sessions).aggregate(
    lambda: 0, lambda _, order, n: n + 1, lambda _, left, right: left + right, store="e"
)
per_session.to_stream().map_values_with_key(lambda key, n: key.end_ms - n)
""",
    "topics and stores of a test": """
from datetime import UTC, datetime
from deltaworks.testing import TestInputTopic, TestOutputTopic, TestSessionStore, TopologyTestDriver

driver = TopologyTestDriver(builder.build(), initial_wall_clock=datetime(2026, 1, 31, tzinfo=UTC))
TopologyTestDriver(builder.build(), initial_wall_clock=5)  # error: Argument "initial_wall_clock"
given: TestInputTopic[str, Order] = driver.create_input_topic("orders", key=str, value=Json(Order))
given.pipe_input("ann", Order("1", Decimal(5)), at=datetime(2026, 1, 31, tzinfo=UTC))
given.pipe_input("ann", User("Ann"))  # error: Argument 2 to "pipe_input"
given.pipe_key_value_list([("ann", User("Ann"))])  # error: List item 0 has incompatible type
driver.create_input_topic("orders", start=datetime.now(UTC), advance=timedelta(1))
driver.create_input_topic("orders", key=str, value=Order, start=5)  # error: No overload variant
counts: TestOutputTopic[Windowed[str], int] = driver.create_output_topic("counts", key=Windowed[str], value=int)
sums: dict[Windowed[str], int | None] = counts.read_key_values_to_map()
counts.read_record().key.isupper()  # error: has no attribute "isupper"
driver.create_output_topic("counts").read_record().key.anything()  # error: Item "None" of "Any | None"
driver.key_value_store("users", key=str, value=User).put("ann", User("Ann"))
driver.key_value_store("users", key=str, value=User).get("ann").name  # error: Item "None" of "User | None"
driver.key_value_store("users", key=str, value=User).get(5)  # error: Argument 1 to "get"
driver.window_store("hours", key=str, value=int).fetch_all(0, 1)[0][0].key.isupper()
driver.window_store("hours", key=str, value=int).all()[0][1].isupper()  # error: no attribute "isupper"
driver.versioned_store("users", key=str, value=User).all_keys()[0].name  # error: no attribute "name"
session_counts: TestSessionStore[str, int] = driver.session_store("visits", key=str, value=int)
session_counts.fetch("ann")[0][0].end_ms.isupper()  # error: no attribute "isupper"
driver.store("users").anything()
""",
    "process": """
from deltaworks import FixedKeyProcessor, FixedKeyRecord, KeyValueStore, Processor, Record, Stores


class Amounts(Processor[str, Order, int, Decimal]):
    def process(self, record: Record[str, Order]) -> None:
        self.context.forward(record.with_key(len(record.key)).with_value(record.value.amount))
        self.context.forward(record.with_value(record.value.amount))  # error: Argument 1 to "forward"
        record.value.user  # error: no attribute "user"


class Names(FixedKeyProcessor[str, User, str]):
    def process(self, record: FixedKeyRecord[str, User]) -> None:
        names: KeyValueStore[str, str] = self.context.state_store("names")
        names.put(record.key, record.value.name)
        names.put(record.key, 1)  # error: Argument 2 to "put"
        self.context.forward(record.with_value(record.value.name))
        record.with_key("other")  # error: no attribute "with_key"


orders.process(Amounts).filter(lambda key, amount: key > 1 and amount.is_signed())
orders.process(Amounts).filter(lambda key, amount: key.isupper())  # error: no attribute "isupper"
orders.process(lambda: Amounts()).map_values(lambda amount: amount.is_signed())
orders.process(partial(Amounts)).filter(lambda key, amount: key.isupper())  # error: no attribute "isupper"
orders.process_values(Names)  # error: Argument 1 to "process_values"
users.to_stream().process_values(Names, "names").map_values(lambda name: name.upper())
users.to_stream().process_values(Names).map_values(lambda name: name.amount)  # error: no attribute "amount"
enriched.process(Amounts)
store = Stores.lru("s", key=str, value=Order, max_entries=5)
builder.add_global_store(store, "t", Amounts, key=str, value=User)  # error: Argument 3 to "add_global_store"
""",
    "stream-stream joins": """
shipments = builder.stream("shipments", key=str, value=User)
near = JoinWindows(difference=timedelta(hours=1), grace=timedelta(0))
shipped = orders.join(shipments, enrich, near, store="j")
shipped.filter(lambda _, order: order.user != "")
shipped.filter(lambda _, order: order.name != "")  # error: "Enriched" has no attribute "name"
orders.join(shipments, lambda order, shipment: shipment.nmae, near)  # error: "User" has no attribute "nmae"
left = orders.left_join(shipments, lambda order, shipment: (order.amount, shipment), near, store="l")
left.filter(lambda _, pair: pair[1] is None or pair[1].name != "")
left.filter(lambda _, pair: pair[1].name != "")  # error: Item "None" of "User | None" has no attribute "name"
orders.outer_join(shipments, lambda order, _: order.amount, near)  # error: Item "None" of "Order | None"
orders.outer_join_with_key(shipments, lambda key, order, shipment: key if order is None else "", near)
orders.left_join_with_key(shipments, lambda key, order, user: user.name, near)  # error: Item "None"
orders.join(users, enrich, near)  # error: No overload variant of "join" of "KStreamJoins"
orders.join(shipments, enrich, timedelta(1))  # error: No overload variant of "join" of "KStreamJoins"
numbers = builder.stream("numbers", key=int, value=User)
orders.join(numbers, enrich, near)  # error: Argument 1 to "join" of "KStreamJoins"
""",
    "global joins": """
cities = builder.global_table("cities", key=int, value=User, store="cities")
found = orders.join(cities, enrich, selector=lambda key, order: len(order.order_id))
found.filter(lambda _, order: order.user != "")
found.filter(lambda _, order: order.name != "")  # error: "Enriched" has no attribute "name"
orders.join(cities, enrich, selector=lambda key, order: order.order_id)  # error: Incompatible return value type
orders.left_join(cities, lambda order, city: city.name, selector=lambda key, _: None)  # error: Item "None"
orders.left_join_with_key(cities, lambda key, _, city: key if city is None else "", selector=lambda key, _: len(key))
orders.join(cities, enrich)  # error: No overload variant of "join" of "KStreamJoins"
""",
    "results of joins": """
from typing import assert_type

near = JoinWindows(difference=timedelta(hours=1), grace=timedelta(0))
shipments = builder.stream("shipments", key=str, value=User)
cities = builder.global_table("cities", key=int, value=User, store="cities")
accounts = builder.table("accounts", key=int, value=Order, store="accounts")

def both(order: Order | None, user: User | None) -> int:
    return 1

def keyed(key: str, order: Order | None, user: User | None) -> Decimal:
    return Decimal(1)

def mine(user: User, order: Order | None) -> bool:
    return True

def number(key: str, order: Order) -> int:
    return len(key)

assert_type(orders.join(users, enrich, grace=timedelta(1), name="j"), KStream[str, Enriched])
assert_type(orders.join(shipments, enrich, near, store="j"), KStream[str, Enriched])
assert_type(orders.join(shipments, enrich, windows=near), KStream[str, Enriched])
assert_type(orders.join(cities, enrich, selector=number), KStream[str, Enriched])
assert_type(orders.join_with_key(users, keyed), KStream[str, Decimal])
assert_type(orders.join_with_key(shipments, keyed, near), KStream[str, Decimal])
assert_type(orders.join_with_key(cities, keyed, selector=number), KStream[str, Decimal])
assert_type(orders.left_join(users, both), KStream[str, int])
assert_type(orders.left_join(shipments, both, near), KStream[str, int])
assert_type(orders.left_join(cities, both, selector=number), KStream[str, int])
assert_type(orders.left_join_with_key(users, keyed), KStream[str, Decimal])
assert_type(orders.left_join_with_key(shipments, keyed, near), KStream[str, Decimal])
assert_type(orders.left_join_with_key(cities, keyed, selector=number), KStream[str, Decimal])
assert_type(orders.outer_join(shipments, both, near), KStream[str, int])
assert_type(orders.outer_join_with_key(shipments, keyed, near), KStream[str, Decimal])
assert_type(users.join(users, lambda user, other: len(user.name + other.name)), KTable[str, int])
assert_type(users.join(accounts, mine, foreign_key=lambda key, user: len(user.name)), KTable[str, bool])
assert_type(users.left_join(accounts, mine, foreign_key=lambda key, user: None), KTable[str, bool])
assert_type(orders.join(users, lambda order, user: user.name, value=str), KStream[str, str])
orders.join(users, lambda order, user: user.name, value=int)  # error: Incompatible return value type
orders.left_join(shipments, enrich, near)  # error: Argument 2 to "left_join" of "KStreamJoins"
orders.outer_join_with_key(shipments, lambda key, order, user: user.name, near)  # error: Item "None" of "User | None"
""",
    "joins of what does not go together": """
near = JoinWindows(difference=timedelta(hours=1), grace=timedelta(0))
shipments = builder.stream("shipments", key=str, value=User)
cities = builder.global_table("cities", key=str, value=User, store="cities")
accounts = builder.table("accounts", key=int, value=Order, store="accounts")

def key_of(key: str, value: Order) -> str:
    return key

def keyed(key: str, order: Order | None, user: User | None) -> int:
    return 1

def mine(user: User, order: Order) -> int:
    return 1

def both(order: Order | None, user: User | None) -> int:
    return 1

orders.join(users, enrich, near)  # error: No overload variant of "join"
orders.join(users, enrich, selector=key_of)  # error: No overload variant of "join"
orders.join(users, enrich, store="j")  # error: No overload variant of "join"
orders.join(shipments, enrich)  # error: No overload variant of "join"
orders.join(shipments, enrich, selector=key_of)  # error: No overload variant of "join"
orders.join(shipments, enrich, near, grace=timedelta(1))  # error: No overload variant of "join"
orders.join(cities, enrich)  # error: No overload variant of "join"
orders.join(cities, enrich, near)  # error: No overload variant of "join"
orders.join(cities, key_of, enrich)  # error: No overload variant of "join"
orders.join(cities, enrich, selector=key_of, grace=timedelta(1))  # error: No overload variant of "join"
orders.join_with_key(shipments, keyed)  # error: No overload variant of "join_with_key"
orders.join_with_key(users, keyed, selector=key_of)  # error: No overload variant of "join_with_key"
orders.left_join(users, both, near)  # error: No overload variant of "left_join"
orders.left_join(shipments, both)  # error: No overload variant of "left_join"
orders.left_join(cities, both)  # error: No overload variant of "left_join"
orders.left_join_with_key(cities, keyed)  # error: No overload variant of "left_join_with_key"
orders.outer_join(users, both)  # error: No overload variant of "outer_join"
orders.outer_join(users, both, near)  # error: No overload variant of "outer_join"
orders.outer_join(cities, both, selector=key_of)  # error: Unexpected keyword argument "selector"
orders.outer_join(shipments, both)  # error: No overload variant of "outer_join"
orders.outer_join_with_key(shipments, keyed)  # error: No overload variant of "outer_join_with_key"
users.join(orders, mine)  # error: No overload variant of "join" of "KTable"
users.join(accounts, mine)  # error: Argument 1 to "join" of "KTable"
users.join(accounts, lambda key, user: 1, mine)  # error: No overload variant of "join" of "KTable"
users.outer_join(accounts, mine, foreign_key=lambda key, user: 1)  # error: Unexpected keyword argument "foreign_key"
orders.join_stream(shipments, enrich, near)  # error: has no attribute "join_stream"
orders.join_global(cities, key_of, enrich)  # error: has no attribute "join_global"
users.join_foreign_key(accounts, lambda key, user: 1, mine)  # error: has no attribute "join_foreign_key"
""",
    "foreign keys": """
accounts = builder.table("accounts", key=int, value=Order, store="accounts")
named = users.join(accounts, lambda user, order: order.amount, foreign_key=lambda key, user: len(key), name="fk")
named.filter(lambda key, amount: key.isupper() and amount.is_signed())
named.filter(lambda key, amount: amount.name)  # error: "Decimal" has no attribute "name"
users.join(accounts, lambda user, order: order, foreign_key=lambda key, user: user.name)  # error: Incompatible return
users.left_join(accounts, lambda user, order: order.amount, foreign_key=lambda *_: 1)  # error: Item "None" of
users.left_join(accounts, lambda user, _: user, foreign_key=lambda key, user: None).filter(lambda _, u: u.name == "")
""",
    "cogroups": """
payments = builder.stream("payments", key=str, value=Decimal).group_by_key()
totals = payments.cogroup(lambda _, amount, total: total + amount, value=Decimal)
both = totals.cogroup(orders.group_by_key(), lambda _, order, total: total - order.amount)
both.cogroup(orders.group_by_key(), lambda _, order, total: total - order.name)  # error: no attribute "name"
both.aggregate(Decimal, store="both").filter(lambda key, total: total.is_signed() and key.isupper())
both.aggregate(Decimal, store="both").filter(lambda key, total: total.name)  # error: "Decimal" has no attribute "name"
both.aggregate(lambda: "", store="both")  # error: Incompatible return value type
both.windowed_by(hourly).aggregate(Decimal, store="h").filter(lambda key, total: key.start_ms > total)
both.windowed_by(hourly).aggregate(Decimal, store="h").filter(lambda key, _: key.isupper())  # error: "isupper"
visits = both.windowed_by(sessions).aggregate(Decimal, lambda _, left, right: left + right, store="s")
visits.to_stream().map_values_with_key(lambda key, total: key.key.upper() + total.to_eng_string())
both.windowed_by(sessions).aggregate(Decimal, store="s")  # error: Missing positional argument "merger"

def collect(key: str, order: Order, ids: list[str]) -> list[str]:
    return [*ids, order.order_id]

orders.group_by_key().cogroup(collect).aggregate(list, store="ids").filter(lambda _, ids: ids[0].isupper())
""",
    "calls of windows": """
hour = timedelta(hours=1)
TimeWindows(size=hour, grace=hour, advance=hour)
TimeWindows(size=hour)  # error: Missing named argument "grace"
TimeWindows(size=3_600_000, grace=hour)  # error: Argument "size" to "TimeWindows" has incompatible type "int"
TimeWindows(hour, hour)  # error: Too many positional arguments for "TimeWindows"
TimeWindows.of_size_with_no_grace(hour)  # error: "type[TimeWindows]" has no attribute "of_size_with_no_grace"
SlidingWindows(difference=hour)  # error: Missing named argument "grace"
SessionWindows(gap=hour, grace=hour, max_duration=hour)
SessionWindows(gap=hour)  # error: Missing named argument "grace"
UnlimitedWindows(start=5)  # error: Argument "start" to "UnlimitedWindows" has incompatible type "int"
JoinWindows(before=hour, after=hour, grace=hour)
JoinWindows(difference=hour)  # error: No overload variant of "JoinWindows" matches
JoinWindows(before=hour, grace=hour)  # error: No overload variant of "JoinWindows" matches
JoinWindows(difference=hour, after=hour, grace=hour)  # error: No overload variant of "JoinWindows" matches
TimeWindowed(String(), hour)
TimeWindowed(String(), hourly)
TimeWindowed(String(), 3_600_000)  # error: Argument 2 to "TimeWindowed" has incompatible type "int"
""",
    "windows of an author": """
@dataclass(frozen=True, kw_only=True)
class Shifts(Windows):
    hours: int
    size: timedelta = timedelta(hours=12)

    def windows_for(self, timestamp_ms: int) -> list[tuple[int, int]]:
        return [(timestamp_ms // self.hours, timestamp_ms)]

class Unfinished(Windows):
    pass

class Texts(Windows):
    def windows_for(self, timestamp_ms: int) -> list[str]:  # error: Return type "list[str]" of "windows_for"
        return []

class Longer(TimeWindows):  # error: Cannot inherit from final class "TimeWindows"
    pass

grouped = orders.group_by_key()
shifts = Shifts(hours=8, grace=timedelta(0))
grouped.windowed_by(shifts).count(store="a").filter(lambda key, count: key.end_ms - key.start_ms > count)
grouped.windowed_by(shifts).count(store="a").filter(lambda key, count: key.isupper())  # error: "isupper"
grouped.cogroup(lambda _, order, n: n + 1, value=int).windowed_by(shifts).aggregate(int, store="b")
TimeWindowed(String(), shifts)
Shifts(hours=8)  # error: Missing named argument "grace"
Unfinished(size=timedelta(1), grace=timedelta(0))  # error: Cannot instantiate abstract class "Unfinished"
""",
    "windows": """
grouped = orders.group_by_key()
sliding = SlidingWindows(difference=timedelta(hours=1), grace=timedelta(0))
grouped.windowed_by(sliding).count(store="a").filter(lambda key, count: key.end_ms - key.start_ms > count)
grouped.windowed_by(UnlimitedWindows()).count(store="b").filter(lambda key, _: key.key.isupper())
grouped.windowed_by(UnlimitedWindows()).count(store="b").filter(lambda key, _: key.isupper())  # error: "isupper"
grouped.windowed_by(sessions).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="c")
grouped.windowed_by(sliding).emit_strategy("close")  # error: Argument 1 to "emit_strategy"
grouped.windowed_by(timedelta(hours=1))  # error: No overload variant of "windowed_by"
reduced: KTable[Windowed[str], Order] = grouped.windowed_by(hourly).reduce(lambda old, new: new, store="d")
summed = grouped.windowed_by(sliding).aggregate(lambda: 0, lambda key, order, n: n + len(order.order_id), store="e")
summed.to_stream().map_values(lambda n: n.name)  # error: "int" has no attribute "name"
grouped.windowed_by(hourly).aggregate(lambda: 0, lambda key, order, n: order, value=int)  # error: Incompatible return
keys = summed.to_stream().select_key(lambda key, _: key.key)
keys.filter(lambda key, _: key.isupper())
keys.filter(lambda key, _: key.start_ms > 0)  # error: "str" has no attribute "start_ms"
""",
    "suppress": """
per_hour = orders.group_by_key().windowed_by(hourly).count(store="a")
final = per_hour.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()), name="final")
final.filter(lambda key, count: key.start_ms > count)
final.filter(lambda key, count: key.isupper())  # error: "isupper"
users.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))  # error: Argument 1 to "suppress" of "KTable"
calm = users.suppress(Suppressed.until_time_limit(timedelta(minutes=1), BufferConfig.of_max_records(9)), name="calm")
calm.filter(lambda key, user: key.isupper() and user.name != "")
per_hour.suppress(Suppressed.until_time_limit(timedelta(minutes=1), BufferConfig.unbounded()), name="limit")
Suppressed.until_time_limit(60, BufferConfig.unbounded())  # error: Argument 1 to "until_time_limit" of "Suppressed"
""",
    "stores": """
from deltaworks import ProcessorContext, SessionStore, TimestampedKeyValueStore, TimestampedWindowStore
from deltaworks import VersionedKeyValueStore, WindowStore

counts = Stores.key_value("counts", key=str, value=int, caching=True)
builder.add_state_store(counts)
builder.add_state_store("counts")  # error: Argument 1 to "add_state_store"
Stores.window("w", key=str, value=int)  # error: Missing named argument "window_size"
Stores.key_value("w", key=str, value=int, cached=True)  # error: Unexpected keyword argument "cached"

def keep(context: ProcessorContext[str, int]) -> None:
    context.state_store(counts).put("ann", 1)
    context.state_store(counts).put(3, 1)  # error: Argument 1 to "put" of "KeyValueStore"
    context.state_store("counts").put(3, 1)
    context.state_store(3)  # error: No overload variant of "state_store"

def use(
    kv: KeyValueStore[str, int],
    windows: WindowStore[str, Order],
    sessions: SessionStore[str, Order],
    versions: VersionedKeyValueStore[str, User],
    timed: TimestampedKeyValueStore[str, int],
    timed_windows: TimestampedWindowStore[str, int],
) -> None:
    count = timed.get("a")
    count.value  # error: Item "None" of "ValueAndTimestamp[int] | None" has no attribute "value"
    if count is not None:
        count.value + count.timestamp_ms
        count + 1  # error: No overload variant of "__add__"
    timed.put("a", 1)  # error: Missing positional argument "timestamp_ms"
    for key, found in timed.all():
        key.upper(), found.value.bit_length()
    in_window = timed_windows.fetch("a", 0)
    if in_window is not None:
        in_window.timestamp_ms + in_window.value
    plain: KeyValueStore[str, int] = timed  # error: Incompatible types in assignment
    with_times: TimestampedKeyValueStore[str, int] = kv  # error: Incompatible types in assignment
    plain_windows: WindowStore[str, int] = timed_windows  # error: Incompatible types in assignment
    kv.put("a", None)
    kv.put("a", "b")  # error: Argument 2 to "put" of "KeyValueStore"
    kv.get("a") + 1  # error: Unsupported operand types for + ("None" and "int")
    for key, value in kv.all():
        key.upper(), value.bit_length()
    windows.put("a", Order("1", Decimal(1)), 0)
    windows.put("a", 1, 0)  # error: Argument 2 to "put" of "WindowStore"
    for window, order in windows.all():
        window.key.upper(), order.amount
        order.name  # error: "Order" has no attribute "name"
    for window, order in sessions.fetch("a"):
        window.end_ms, order.amount
    version = versions.get("a")
    version.value  # error: Item "None" of "VersionedRecord[User] | None" has no attribute "value"
    if version is not None:
        version.value.name
        version.value.amount  # error: "User" has no attribute "amount"
""",
    "timestamps and details": """
from deltaworks import ConsumedRecord, Materialized, Stores, WallclockTimestampExtractor

def when(record: ConsumedRecord, partition_time_ms: int) -> int:
    return max(record.timestamp_ms, partition_time_ms)

def whence(record: ConsumedRecord) -> int:
    return record.timestamp_ms

builder.stream("a", key=str, value=Order, timestamp_extractor=when).filter(lambda _, order: order.amount > 0)
builder.stream("a", key=str, value=Order, timestamp_extractor=WallclockTimestampExtractor())
builder.stream("a", key=str, value=Order, timestamp_extractor=WallclockTimestampExtractor)  # error: incompatible type
builder.stream("a", key=str, value=Order, timestamp_extractor=whence)  # error: incompatible type
builder.stream("a", key=str, value=Order, timestamp_extractor=lambda record, time: record.value.time)
versioned = builder.table("b", key=str, value=User, store=Materialized("b", history=timedelta(hours=1)))
versioned.filter(lambda _, user: user.name != "")
Materialized("b", history=60)  # error: Argument "history" to "Materialized"
orders.group_by_key().count(store=Stores.key_value("b", key=str, value=int))  # error: Argument "store" to "count"
orders.join(users, enrich, grace=60)  # error: No overload variant of "join" of "KStreamJoins"
orders.to(lambda key, order, context: "out")  # error: Argument 1 to "to" of "KStream"
orders.to_extracted(lambda key, order, context: order.order_id)
orders.to_extracted(lambda key, order, context: order.user)  # error: "Order" has no attribute "user"
orders.to_extracted(lambda key, order, context: order.amount)  # error: Incompatible return value
""",
    "names that a handle lacks": """
orders.windowed_by(hourly)  # error: "KStream[str, Order]" has no attribute "windowed_by"
users.to("out")  # error: "KTable[str, User]" has no attribute "to"
orders.mapValues(str)  # error: "KStream[str, Order]" has no attribute "mapValues"
""",
    "columns of tables": """
from deltaworks import Column

orders.to_delta("a", key=Column("user_id", "The user"), doc="Orders")
orders.to_delta("b", key=("store", Column("item", "The item")))
orders.group_by_key().count(store="c").to_delta("c", key="user_id", value=Column("orders", type=int))
orders.to_delta("d", key=str)  # error: Argument "key" to "to_delta" of "KStream"
users.to_delta("e", value=User)  # error: Argument "value" to "to_delta" of "KTable"
users.to_delta("f", doc=3)  # error: Argument "doc" to "to_delta" of "KTable"
""",
    "types that do not fit": """
orders.merge(enriched)  # error: Argument 1 to "merge" of "KStream" has
orders.map_values(lambda order: order.amount, value=Json(User))  # error: expected "User"
orders.to("out", value=Json(User))  # error: "type[User]"
orders.map_values(enrich)  # error: Argument 1 to "map_values"
orders.peek(print).foreach(lambda key, order: None)
""",
}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, list[str]]]:
    """Snippet -> line -> errors."""
    folder = tmp_path_factory.mktemp("snippets")
    names = {name: f"snippet_{number}.py" for number, name in enumerate(SNIPPETS)}
    for name, text in SNIPPETS.items():
        (folder / names[name]).write_text(PREAMBLE + text)
    root = Path(__file__).parents[3]
    run = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports"),
            *("--hide-error-context", "--no-error-summary", "--no-pretty"),
            *("--config-file", "", "--cache-dir", str(root / ".mypy_cache" / "typed"), str(folder)),
        ],
        env={"MYPYPATH": str(root / "lib")},
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert run.returncode in (0, 1), run.stdout + run.stderr
    errors: dict[str, dict[int, list[str]]] = {name: {} for name in SNIPPETS}
    by_file = {file: name for name, file in names.items()}
    for match in re.finditer(r"(\w+\.py):(\d+): error: (.*)", run.stdout):
        assert match[1] in by_file, match[0]
        errors[by_file[match[1]]].setdefault(int(match[2]), []).append(match[3])
    return errors


@pytest.mark.thorough
@pytest.mark.parametrize("snippet", SNIPPETS)
def test_mypy_finds_each_mistake_and_nothing_else(reported: dict[str, dict[int, list[str]]], snippet: str) -> None:
    lines = (PREAMBLE + SNIPPETS[snippet]).splitlines()
    expected = {
        number: line.partition("# error: ")[2] for number, line in enumerate(lines, start=1) if "# error: " in line
    }

    found = reported[snippet]

    assert found.keys() == expected.keys(), found
    for number, text in expected.items():
        assert any(text in message for message in found[number]), found[number]
