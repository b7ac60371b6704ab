"""Which pipelines can go on with more partitions, and why others cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest

from deltaworks import Pipeline, Processor, Record, Stores, StreamsBuilder, TimeWindows
from deltaworks.errors import TopologyError
from deltaworks.topology.rescaling import StageMove, Widths, can_follow, children, stage_moves

OWN = Stores.key_value("own", key=str, value=int)
KEYED = Stores.key_value("keyed", key=str, value=int, record_key=lambda key: key)
BYTES = Stores.custom("bytes", lambda entries: entries)


def moves(topology: Callable[[StreamsBuilder], None], before: dict[str, int], after: dict[str, int]) -> list[StageMove]:
    plan = Pipeline(name="moving", topology=topology).plan()
    return list(stage_moves(plan, Widths.of(plan, before), Widths.of(plan, after)))


def problem(topology: Callable[[StreamsBuilder], None], before: dict[str, int], after: dict[str, int]) -> str:
    plan = Pipeline(name="moving", topology=topology).plan()
    assert not can_follow(plan, before, after)
    with pytest.raises(TopologyError) as found:
        moves(topology, before, after)
    return str(found.value)


def joined(builder: StreamsBuilder) -> None:
    users = builder.table("users", key=str, value=str, store="users")
    visits = builder.stream("visits", key=str, value=str)
    visits.join(users, lambda a, b: a + b, value=str).to("named")
    visits.group_by(lambda _, page: page, key=str, name="by-page").count(store="pages").to_delta("pages")


def test_a_store_moves_with_the_topics_that_fill_and_meet_it() -> None:
    first, second = moves(joined, {"users": 2, "visits": 2}, {"users": 4, "visits": 4})
    users, pages = first.stores["users"].keys, second.stores["pages"].keys
    assert (first.before, first.after, users.before, users.after) == (2, 4, 2, 4)
    assert users.topics == ("users", "visits"), "records of visits meet the rows of users"
    assert (pages.before, pages.after, pages.topics) == (2, 4, ()), "an exchange decides"
    assert first.is_needed and second.is_needed


def test_nothing_moves_if_nothing_grew() -> None:
    assert not any(move.is_needed for move in moves(joined, {"users": 2, "visits": 2}, {"users": 2, "visits": 2}))


def merged(builder: StreamsBuilder) -> None:
    """One store behind one topic, and another one behind another topic, in one stage."""
    a = builder.stream("a", key=str, value=str)
    b = builder.stream("b", key=str, value=str)
    a.group_by_key().count(store="as").to_delta("as")
    b.group_by_key().count(store="bs").to_delta("bs")
    a.merge(b).to("all")


def test_a_store_stays_if_its_own_topic_did_not_grow() -> None:
    (move,) = moves(merged, {"a": 2, "b": 2}, {"a": 4, "b": 2})
    assert (move.before, move.after) == (2, 4)
    assert (move.stores["as"].keys.before, move.stores["as"].keys.after) == (2, 4)
    assert move.stores["bs"].keys.before == move.stores["bs"].keys.after


def counted_together(builder: StreamsBuilder) -> None:
    a, b = (builder.stream(name, key=str, value=str) for name in ("a", "b"))
    a.merge(b).group_by_key().count(store="both").to_delta("both")


def test_a_key_must_not_be_in_two_tasks() -> None:
    said = problem(counted_together, {"a": 2, "b": 2}, {"a": 4, "b": 2})
    assert "store 'both' is fed by sources of different widths ('a' 2 -> 4, 'b' 2 -> 2 partitions)" in said
    assert "give all of these topics the same number of partitions" in said


def counted(builder: StreamsBuilder) -> None:
    builder.stream("a", key=str, value=str).group_by_key().count(store="counts").to_delta("counts")


def test_only_multiples_leave_keys_where_they_are() -> None:
    said = problem(counted, {"a": 4}, {"a": 6})
    assert "topic 'a' went from 4 to 6 partitions, which is no multiple" in said
    assert "give it 8 partitions" in said and "test_rescaling.py:" in said


def stateless(builder: StreamsBuilder) -> None:
    builder.stream("a", key=str, value=str).map_values(len, value=int).to("b")


def test_without_state_any_number_will_do() -> None:
    (move,) = moves(stateless, {"a": 4}, {"a": 6})
    assert move.is_needed and not move.stores


class _Owner(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None: ...


class Unkeyed(_Owner):
    stores = (OWN,)


class Keyed(_Owner):
    stores = (KEYED,)


class Raw(_Owner):
    stores = (BYTES,)


def processed_by(processor: type[_Owner]) -> Callable[[StreamsBuilder], None]:
    return lambda builder: builder.stream("a", key=str, value=str).process(processor, value=str).to("b")


def test_a_processor_must_say_which_records_its_entries_belong_to() -> None:
    said = problem(processed_by(Unkeyed), {"a": 1}, {"a": 2})
    assert "store 'own' is filled by a processor with keys of its own" in said
    assert "Stores...('own', ..., record_key=lambda key: key)" in said
    assert "store 'bytes' has bytes of your own" in problem(processed_by(Raw), {"a": 1}, {"a": 2})
    (move,) = moves(processed_by(Keyed), {"a": 1}, {"a": 2})
    assert move.stores["keyed"].keys.topics == ("a",)


def with_partitioner(builder: StreamsBuilder) -> None:
    stream = builder.stream("a", key=str, value=str)
    spread = stream.repartition(name="spread", partitioner=lambda topic, key, value, partitions: 0)
    spread.group_by_key().count(store="counts").to_delta("counts")


def test_a_partitioner_of_ones_own_is_refused() -> None:
    said = problem(with_partitioner, {"a": 2}, {"a": 4})
    assert re.search(r"store 'counts' is fed by '.*', whose partitioner chooses the tasks", said)


def test_a_pattern_is_refused() -> None:
    def topology(builder: StreamsBuilder) -> None:
        named, matched = builder.stream("a", key=str, value=str), builder.stream(pattern="x-.*", key=str, value=str)
        named.merge(matched).group_by_key().count(store="counts").to_delta("counts")

    said = problem(topology, {"a": 2, "x-1": 2}, {"a": 4, "x-1": 2})
    assert "store 'counts' is fed by topics that a pattern matches" in said


def test_subscriptions_know_the_tasks_of_the_left_table() -> None:
    def topology(builder: StreamsBuilder) -> None:
        orders = builder.table("orders", key=str, value=str, store="orders")
        pages = builder.table("pages", key=str, value=str, store="pages")
        found = orders.join(pages, foreign_key=lambda _, row: row, joiner=lambda a, b: a + b, value=str, name="ref")
        found.to_stream().to("all")

    found = moves(topology, {"orders": 2, "pages": 3}, {"orders": 4, "pages": 3})
    (subscriptions,) = (store for move in found for store in move.stores.values() if store.spec.kind == "subscriptions")
    assert subscriptions.left is not None
    assert (subscriptions.left.before, subscriptions.left.after, subscriptions.left.topics) == (2, 4, ("orders",))
    assert subscriptions.keys.before == subscriptions.keys.after
    stage = next(move for move in found if subscriptions.spec.name in move.stores)
    assert stage.before == stage.after and stage.is_needed


def test_windows_move_by_the_key_without_the_window() -> None:
    def topology(builder: StreamsBuilder) -> None:
        groups = builder.stream("a", key=str, value=str).group_by_key()
        groups.windowed_by(TimeWindows(size=timedelta(minutes=1), grace=timedelta(0))).count(store="w").to_delta("w")

    (move,) = moves(topology, {"a": 1}, {"a": 3})
    assert (move.stores["w"].keys.before, move.stores["w"].keys.after) == (1, 3)


@pytest.mark.parametrize(
    ("task", "before", "after", "expected"),
    [(0, 1, 3, [0, 1, 2]), (1, 2, 6, [1, 3, 5]), (1, 4, 6, [1, 3, 5]), (3, 4, 2, [1]), (2, 3, 5, [0, 1, 2, 3, 4])],
)
def test_the_tasks_that_may_get_keys_of_another_one(task: int, before: int, after: int, expected: list[int]) -> None:
    assert list(children(task, before, after)) == expected
    assert {number % after for number in range(1000) if number % before == task} == set(expected)
