"""Which stages a host runs together."""

from __future__ import annotations

from deltaworks import Plan, StreamsBuilder


def grouped(plan: Plan) -> list[tuple[tuple[int, ...], bool]]:
    return [(group.stages, group.cyclic) for group in plan.groups]


def test_stages_follow_each_other_unless_records_come_back() -> None:
    builder = StreamsBuilder()
    counts = (
        builder.stream("in", key=str, value=str).group_by(lambda _, value: value, key=str, name="a").count(store="a")
    )
    counts.to_stream().group_by(lambda _, count: str(count), key=str, name="b").count(store="b").to_delta("b")

    assert grouped(builder.build()) == [((0,), False), ((1,), False), ((2,), False)]


def test_the_stages_of_a_foreign_key_join_are_one_group_and_what_follows_is_another() -> None:
    builder = StreamsBuilder()
    orders, users = (builder.table(name, key=str, value=str, store=name) for name in ("orders", "users"))
    joined = orders.join(users, lambda order, user: order + user, foreign_key=lambda _, user: user, value=str, name="j")
    joined.to_stream().group_by(lambda _, value: value, key=str, name="by-value").count(store="counts").to_delta("c")

    assert grouped(builder.build()) == [((0, 1), True), ((2,), False)]


def test_a_stage_that_writes_to_itself_is_a_cycle_of_its_own() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    table = stream.select_key(lambda _, value: value, key=str).to_table(store="latest", name="exchange")
    stream.join(table, lambda value, row: value + row, value=str).to("out")

    (group,) = builder.build().groups
    assert group.cyclic
