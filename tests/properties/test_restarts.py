"""Several tasks, joins and exchanges: for the same recorded batches, restarts and small caches change nothing."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltaworks import BufferConfig, JoinWindows, StreamsBuilder, Suppressed
from deltaworks.kernel.task import ErrorPolicy
from deltaworks.testing.recorded import MicroBatch, Recording, cut, run_recorded
from tests.properties import cases
from tests.properties.cases import TOPIC, Build, Record


def join_then_count(builder: StreamsBuilder) -> None:
    """Two co-partitioned topics, a left join, an exchange, an aggregate."""
    table = builder.table("rows", key=str, value=int, store="rows")
    stream = builder.stream(TOPIC, key=str, value=int)
    joined = stream.left_join(table, lambda value, row: value * 100 + (row or 0), value=int)
    counts = joined.group_by(lambda _, value: str(value % 5), key=str, name="by-rest").count(store="counts")
    counts.to_delta("counts")
    counts.to_stream().to("counts")


def streams_and_global_table(builder: StreamsBuilder) -> None:
    """An exchange on one side of an outer join of streams, a look into a global table behind it."""
    rows = builder.global_table("rows", key=str, value=int, store="rows")
    stream = builder.stream(TOPIC, key=str, value=int)
    rekeyed = stream.select_key(lambda key, value: "ab"[value % 2] if value is not None else key, key=str)
    windows = JoinWindows(difference=cases.ms(5), grace=cases.ms(4))
    joined = rekeyed.outer_join(
        rekeyed.filter(lambda _, value: value is not None and value % 3 == 0),
        lambda one, other: (one or 0) * 100 + (other or 0),
        windows,
        value=int,
        store="pairs",
        name="pairs",
    )
    joined.left_join(rows, lambda value, row: value * 100 + (row or 0), selector=lambda key, _: key, value=int).to(
        "out"
    )


def foreign_keys(builder: StreamsBuilder) -> None:
    """Two stages in a cycle; a result that is joined again by another foreign key; updates that are held back."""
    left = builder.table(TOPIC, key=str, value=int, store="left")
    right = builder.table("rows", key=str, value=int, store="right").map_values(cases.failing, value=int)
    inner = left.join(
        right,
        lambda one, other: one * 16 + other,
        foreign_key=lambda _, value: ["a", "b", "ab", None][value % 4],
        value=int,
        name="in",
        store="inner",
    )
    inner.to_delta("inner")
    outer = inner.left_join(
        right,
        lambda one, other: one * 16 + (other or 0),
        foreign_key=lambda key, _: key[:1],
        value=int,
        name="out",
        store="outer",
    )
    waits = Suppressed.until_time_limit(cases.ms(5), BufferConfig.unbounded())
    outer.suppress(waits, name="waiting").to_stream().to("outer")


WITH_ROWS = {"foreign keys", "join, exchange, count", "streams, global table"}
TOPOLOGIES: dict[str, Build] = {
    "foreign keys": foreign_keys,
    "join, exchange, count": join_then_count,
    "streams, global table": streams_and_global_table,
    "exchange, count": cases.rekeyed_count,
    "grouped table": cases.grouped_table,
}


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("record_cache", [False, True], ids=["uncached", "cached"])
@settings(max_examples=30, deadline=None)
@given(
    left=cases.records(max_size=25),
    right=cases.records(max_size=25),
    rows=cases.records(max_size=10),
    cuts=st.lists(st.tuples(*[st.integers(0, 25)] * 4), max_size=4),
    restarts=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 1))),
    max_cached_entries=st.sampled_from([0, 1, 3]),
)
@example(
    left=[(time_ms, key, cases.encoded(0), ()) for time_ms, key in ((0, b"a"), (5, b"ab"), (6, b"b"))],
    right=[(0, b"a", cases.encoded(0), ())],
    rows=[(time_ms, b"a", cases.encoded(time_ms), ()) for time_ms in (1, 2, 7)],
    cuts=[(1, 1, 1, 1), (2, 1, 2, 2)],
    restarts={(batch_id, 1, task) for batch_id in (1, 2) for task in (0, 1)},
    max_cached_entries=0,
)
def test_restarts_and_small_caches_change_nothing(
    name: str,
    record_cache: bool,
    left: list[Record],
    right: list[Record],
    rows: list[Record],
    cuts: list[tuple[int, ...]],
    restarts: set[tuple[int, int, int]],
    max_cached_entries: int,
) -> None:
    partitions = [cases.batch(left), cases.batch(right, partition=1)]
    topics = {TOPIC: 2}
    if name in WITH_ROWS:
        partitions += [cases.batch(rows, "rows"), cases.batch(rows, "rows", partition=1)]
        topics["rows"] = 2
    sizes = [len(each.offsets) for each in partitions]
    ends = [[min(end, size) for end, size in zip(each, sizes, strict=False)] for each in sorted(cuts)]
    batches = [MicroBatch(0, records) for records in cut(partitions, ends)]

    def run(restarted: set[tuple[int, int, int]], cached: int) -> Recording:
        return run_recorded(
            cases.plan(TOPOLOGIES[name], record_cache=record_cache),
            topics,
            batches,
            errors=ErrorPolicy.of("continue"),
            restarts=lambda batch_id, task: (batch_id, *task) in restarted,
            max_cached_entries=cached,
        )

    whole, other = run(set(), 200_000), run(restarts, max_cached_entries)

    assert other.tasks == whole.tasks
    assert other.exchanges == whole.exchanges
    assert other.stores == whole.stores
    assert other.metrics == whole.metrics
