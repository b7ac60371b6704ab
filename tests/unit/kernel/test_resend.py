"""Records that failed and are sent again count once, on every host and however batches are cut."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaworks import DeadLetters, Materialized, Pipeline, StreamsBuilder, ValueTransformer
from deltaworks.kernel.records import Coordinates, DeadLetter, Headers, RecordBatch
from deltaworks.kernel.resend import BLOCK, MOST_BLOCKS, FailedRecords
from deltaworks.kernel.stores.memory import MemoryState
from deltaworks.kernel.stores.state import StoreChanges
from deltaworks.kernel.task_times import TASK_STORE
from deltaworks.testing import TopologyTestDriver
from deltaworks.testing.recorded import MicroBatch, Recording, run_recorded
from deltaworks.topology.resend import HEADER, SentAgain, paths, target


class Code:
    """What the author's functions do at the moment."""

    def __init__(self) -> None:
        self.fixed = False
        self.spoiled = False

    def price(self, text: str) -> int:
        if text.startswith("x"):
            if not self.fixed:
                raise ValueError(f"{text} is no price")
            text = text[1:]
        return int(text)

    def wants(self, key: str, value: str) -> bool:
        if self.spoiled:
            raise RuntimeError("it is spoiled")
        return key != "unwanted"

    def topology(self, builder: StreamsBuilder) -> None:
        """The whole stream is counted; of the prices of wanted keys a sum is made, and they are written."""
        lines = builder.stream("in", key=str, value=str, name="lines")
        lines.group_by_key().count(store="all")
        wanted = lines.filter(self.wants, name="wanted")
        prices = wanted.map_values(self.price, value=int, name="price")
        prices.group_by_key().reduce(lambda total, price: total + price, store="sums")
        prices.to("out")

    def pipeline(self, name: str = "p", table: str | None = "letters") -> Pipeline:
        return Pipeline(
            name=name,
            topology=self.topology,
            on_error="continue",
            dead_letters=DeadLetters(table=table, keep_bytes=True),
        )


def again(letter: DeadLetter, pipeline: str = "p") -> Headers:
    said = SentAgain(pipeline=pipeline, operator=letter.operator, offset=letter.source.offset)
    return (("trace", b"1"), (HEADER, said.encode()))


def resend(driver: TopologyTestDriver, letter: DeadLetter, headers: Headers | None = None) -> None:
    assert letter.key is not None
    topic = driver.create_input_topic("in")
    topic.pipe_raw(letter.key, letter.value, timestamp_ms=letter.timestamp_ms, headers=headers or again(letter))


def sums(driver: TopologyTestDriver) -> dict[str, Any]:
    return {name: dict(driver.key_value_store(name, key=str, value=int).all()) for name in ("all", "sums")}


@pytest.fixture
def code() -> Code:
    return Code()


def failed_once(code: Code) -> tuple[TopologyTestDriver, DeadLetter]:
    driver = TopologyTestDriver(code.pipeline())
    topic = driver.create_input_topic("in")
    for value in ("1", "x2", "4"):
        topic.pipe_input("k", value)
    (letter,) = driver.dead_letters
    return driver, letter


def test_only_the_operator_and_those_behind_it_see_the_record(code: Code) -> None:
    driver, letter = failed_once(code)
    assert sums(driver) == {"all": {"k": 3}, "sums": {"k": 5}}
    code.fixed = True

    resend(driver, letter)

    assert sums(driver) == {"all": {"k": 3}, "sums": {"k": 7}}
    records = driver.produced["out"]
    assert [record.headers for record in records] == [(), (), (("trace", b"1"),)], "nobody downstream sees the header"
    assert records[-1].timestamp_ms == letter.timestamp_ms


def test_a_record_that_is_sent_twice_counts_once(code: Code) -> None:
    driver, letter = failed_once(code)
    code.fixed = True

    for _ in range(2):
        resend(driver, letter)

    assert sums(driver) == {"all": {"k": 3}, "sums": {"k": 7}}
    assert len(driver.dead_letters) == 1


def test_one_that_fails_again_is_told_apart_and_can_be_sent_again(code: Code) -> None:
    driver, letter = failed_once(code)

    resend(driver, letter)

    first, second = driver.dead_letters
    assert first == letter
    assert (second.source.offset, second.operator, second.value) == (3, "price", b"x2")
    assert second.headers == again(letter), "it says for which record it stands"
    code.fixed = True
    resend(driver, letter)
    assert sums(driver)["sums"] == {"k": 5}, "the second one has taken the place of the first"
    resend(driver, second)
    assert sums(driver) == {"all": {"k": 3}, "sums": {"k": 7}}


def test_one_that_fails_before_its_operator_goes_there_the_next_time(code: Code) -> None:
    """Those beside its operator have had it: the operator before it may not hand it to them, nor may the source."""
    driver, letter = failed_once(code)
    code.fixed, code.spoiled = True, True
    resend(driver, letter)
    _, second = driver.dead_letters
    assert (second.operator, second.headers) == ("wanted", again(letter))
    code.spoiled = False

    nodes = {node.name: node for stage in code.pipeline().plan().stages for node in stage.nodes}
    assert target(nodes, second.operator, second.headers) == "price"
    assert target(nodes, "lines", again(msgspec.structs.replace(letter, operator="renamed"))) == "renamed"
    resend(driver, second)
    assert sums(driver)["sums"] == {"k": 5}, "the operator that failed is not the one to which it goes"
    resend(driver, msgspec.structs.replace(second, operator="price"))
    assert sums(driver) == {"all": {"k": 3}, "sums": {"k": 7}}


@pytest.mark.parametrize("fixed", [False, True])
def test_with_the_same_history_code_that_never_failed_counts_it_once_too(code: Code, fixed: bool) -> None:
    """A replay of both records: if the first does not fail any more, the second is skipped."""
    live, letter = failed_once(code)
    code.fixed = True
    resend(live, letter)

    code.fixed = fixed
    replay = TopologyTestDriver(code.pipeline())
    topic = replay.create_input_topic("in")
    for value in ("1", "x2", "4"):
        topic.pipe_input("k", value)
    code.fixed = True
    resend(replay, letter)

    assert sums(replay) == sums(live)


def test_other_pipelines_skip_it(code: Code) -> None:
    _, letter = failed_once(code)
    for other in (code.pipeline("other"), code.pipeline(table=None)):
        code.fixed = False
        driver = TopologyTestDriver(other)
        topic = driver.create_input_topic("in")
        for value in ("1", "x2", "4"):
            topic.pipe_input("k", value)
        before = sums(driver)
        code.fixed = True

        resend(driver, letter)

        assert sums(driver) == before
        assert driver.metrics.dropped == 2, "its own failure, and this one"


def test_a_record_that_did_not_decode_goes_the_whole_way() -> None:
    seen: list[int] = []

    def topology(builder: StreamsBuilder) -> None:
        builder.stream("in", key=str, value=int, name="lines").peek(lambda _, value: seen.append(value)).to("out")

    letters = DeadLetters(table="letters")
    driver = TopologyTestDriver(Pipeline(name="p", topology=topology, on_error="continue", dead_letters=letters))
    topic = driver.create_input_topic("in")
    topic.pipe_raw(b"k", b"no number", timestamp_ms=5)
    (letter,) = driver.dead_letters
    assert letter.operator == "lines"

    topic.pipe_raw(b"k", b"8 bytes!", timestamp_ms=5, headers=again(letter))

    assert len(seen) == 1
    assert len(driver.dead_letters) == 1


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b"", "cannot be read"),
        (None, "cannot be read"),
        (b'{"pipeline":"p"}', "cannot be read"),
        (b'{"format":2,"pipeline":"p","operator":"price","offset":1}', "has format 2; this version reads format 1"),
    ],
)
def test_a_header_that_is_not_understood_makes_a_dead_letter(code: Code, header: bytes | None, says: str) -> None:
    driver, letter = failed_once(code)

    resend(driver, letter, ((HEADER, header),))

    assert says in driver.dead_letters[1].message
    assert sums(driver) == {"all": {"k": 3}, "sums": {"k": 5}}


def kinds_of_join(builder: StreamsBuilder, kind: str) -> Callable[..., Any]:
    """A join of a stream with the table `rows`."""
    if kind == "global":
        table = builder.global_table("rows", key=str, value=str, store="rows")
        return lambda lines, joiner: lines.join(table, joiner, selector=lambda key, _: key, value=str, name="join")
    history = timedelta(hours=1) if kind == "versioned" else None
    rows = builder.table("rows", key=str, value=str, store=Materialized("rows", history=history))
    return lambda lines, joiner: lines.left_join(rows, joiner, value=str, name="join")


@pytest.mark.parametrize("kind", ["table", "versioned", "global"])
def test_behind_a_join_it_meets_the_row_of_its_new_place(kind: str) -> None:
    """Another branch behind the join has had the record with the row of then, and does not get it again."""
    fixed = [False]

    def strict(value: str) -> str:
        if value == "x+a" and not fixed[0]:
            raise ValueError(value)
        return value

    def topology(builder: StreamsBuilder) -> None:
        join = kinds_of_join(builder, kind)
        joined = join(builder.stream("in", key=str, value=str, name="lines"), lambda value, row: f"{value}+{row}")
        joined.to("all")
        joined.map_values(strict, value=str, name="strict").to("out")

    letters = DeadLetters(table="letters", keep_bytes=True)
    driver = TopologyTestDriver(Pipeline(name="p", topology=topology, on_error="continue", dead_letters=letters))
    rows, lines = driver.create_input_topic("rows"), driver.create_input_topic("in")
    rows.pipe_input("k", "a", timestamp_ms=5)
    lines.pipe_input("k", "x", timestamp_ms=10)
    rows.pipe_input("k", "b", timestamp_ms=20)
    lines.pipe_input("k", "y", timestamp_ms=30)
    (letter,) = driver.dead_letters
    fixed[0] = True

    for _ in range(2):
        resend(driver, letter)

    written = {topic: [(record.value or b"").decode() for record in driver.produced[topic]] for topic in ("all", "out")}
    met = "x+a" if kind == "versioned" else "x+b"  # a versioned table has the row as of the record's time
    assert written == {"all": ["x+a", "y+b"], "out": ["y+b", met]}
    assert len(driver.dead_letters) == 1


def batch(first: int, *records: tuple[bytes, Headers]) -> RecordBatch:
    offsets = list(range(first, first + len(records)))
    values: list[bytes | None] = [value for value, _ in records]
    headers = [each for _, each in records]
    times = [5 if each else offset * 10 for offset, each in zip(offsets, headers, strict=True)]
    return RecordBatch("in", 0, offsets, times, [b"k"] * len(records), values, headers)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_cut_into_batches_and_any_restart_give_the_same(data: st.DataObject) -> None:
    """Resends of failed, processed and unknown records, once or more, between others."""
    code = Code()
    kinds = st.sampled_from(["1", "x2", "bad", "again"])
    records: list[tuple[bytes, Headers]] = []
    for offset, kind in enumerate(data.draw(st.lists(kinds, min_size=1, max_size=30))):
        if kind != "again" or offset == 0:
            records.append((kind.replace("again", "1").encode(), ()))
            continue
        of = data.draw(st.integers(0, offset - 1))
        value = b"40" if data.draw(st.booleans()) else b"bad"
        said = SentAgain(pipeline="p", operator="price", offset=of)
        records.append((value, ((HEADER, said.encode()),)))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(records)), max_size=6)) | {0, len(records)})
    restarts = data.draw(st.booleans())
    pipeline = code.pipeline()

    def run(ends: list[int]) -> Recording:
        batches = [MicroBatch(0, (batch(a, *records[a:b]),)) for a, b in pairwise(ends)]
        return run_recorded(pipeline.plan(), {"in": 1}, batches, errors=pipeline.errors, restarts=lambda *_: restarts)

    whole, parts = run([0, len(records)]), run(cuts)
    assert parts.topic("out") == whole.topic("out")
    assert parts.stores == whole.stores
    assert parts.tasks[0, 0].dead_letters == whole.tasks[0, 0].dead_letters
    failed: set[int] = set()
    total = 0
    for offset, (value, headers) in enumerate(records):
        if headers:
            of = SentAgain.decode(headers[0][1]).offset
            if of not in failed:
                continue
            failed.discard(of)
        if value in (b"x2", b"bad"):
            failed.add(offset)
        else:
            total += int(value)
    assert sum(int.from_bytes(record.value or b"", "big") for record in parts.topic("out")) == total


def reopened(failed: FailedRecords, state: MemoryState) -> FailedRecords:
    changes: dict[str, StoreChanges] = {}
    failed.add_to(changes)
    state.apply(changes)
    return FailedRecords(state.reader(TASK_STORE))


@pytest.mark.parametrize("offsets", [range(BLOCK + 5), range(0, 3 * BLOCK, 97), [0], [BLOCK - 1], [5 * 10**12]])
def test_failed_records_are_remembered(offsets: Any) -> None:
    state = MemoryState()
    failed = reopened(FailedRecords(state.reader(TASK_STORE)), state)
    for offset in offsets:
        failed.add("a/b", Coordinates("t", 1, offset))

    failed = reopened(failed, state)

    assert not failed.take("a/b", Coordinates("t", 0, offsets[0]))
    assert not failed.take("b", Coordinates("t", 1, offsets[0]))
    assert all(failed.take("a/b", Coordinates("t", 1, offset)) for offset in offsets)
    failed = reopened(failed, state)
    assert not any(failed.take("a/b", Coordinates("t", 1, offset)) for offset in offsets)
    assert list(state.reader(TASK_STORE).scan(b"", None)) == []


def test_memory_of_failed_records_is_bounded() -> None:
    state = MemoryState()
    failed = FailedRecords(state.reader(TASK_STORE))
    for number in range(MOST_BLOCKS + 2):
        failed.add("op", Coordinates("t", 0, number * BLOCK))
    failed.add("op", Coordinates("other", 0, 0))

    failed = reopened(failed, state)

    taken = [number for number in range(MOST_BLOCKS + 2) if failed.take("op", Coordinates("t", 0, number * BLOCK))]
    assert taken == list(range(2, MOST_BLOCKS + 2)), "the earliest go first"
    assert failed.take("op", Coordinates("other", 0, 0))


def at(build: Callable[[StreamsBuilder], None], operator: str) -> dict[str, tuple[str, ...]] | str:
    plan = Pipeline(name="p", topology=build).plan()
    stage = next(stage for stage in plan.stages if any(node.name == operator for node in stage.nodes))
    return paths({node.name: node for node in stage.nodes}, operator)


def test_ways_to_an_operator() -> None:
    def build(builder: StreamsBuilder) -> None:
        one, two = (builder.stream(topic, key=str, value=str, name=name) for topic, name in ("aA", "bB"))
        merged = one.filter(lambda *_: True, name="F").merge(two, name="M")
        merged.map_values(str, value=str, name="V").to("out", name="sink")

    assert at(build, "A") == {"A": ()}
    assert at(build, "V") == {"A": ("A", "F", "M"), "B": ("B", "M")}
    assert at(build, "sink") == {"A": ("A", "F", "M", "V"), "B": ("B", "M", "V")}
    assert at(build, "F") == {"A": ("A",)}


class Doubled(ValueTransformer[str, str | None, str]):
    def transform(self, key: str, value: str | None) -> str:
        return (value or "") * 2


def test_operators_that_take_no_record_again() -> None:
    def build(builder: StreamsBuilder) -> None:
        lines = builder.stream("a", key=str, value=str, name="A")
        twice = lines.filter(lambda *_: True, name="F").merge(lines.filter(lambda *_: True, name="G"), name="M")
        twice.peek(print, name="twice")
        words = lines.flat_map_values(str.split, value=str, name="words")
        words.map_values(len, value=int, name="lengths")
        counts = lines.group_by_key().count(store="counts", name="count")
        counts.to_stream(name="changes").peek(print, name="behind-count")
        moved = lines.select_key(lambda _, value: value, key=str, name="K").repartition(name="moved")
        moved.peek(print, name="elsewhere")
        table = builder.table("rows", key=str, value=str, store=Materialized("rows", history=timedelta(hours=1)))
        waiting = lines.join(table, lambda value, _: value, value=str, grace=timedelta(minutes=1), name="waiting")
        waiting.peek(print, name="behind-waiting")
        made = table.transform_values(Doubled, value=str).filter(lambda *_: True)
        lines.join(made, lambda value, _: value, value=str, name="made").peek(print, name="behind-made")
        builder.table("t", key=str, value=str, name="T").to_stream().peek(print, name="of-table")

    reasons = {
        "twice": "in several ways",
        "words": "may have forwarded results",
        "lengths": "words before it keeps what it makes of a record, or makes several",
        "behind-count": "before it keeps",
        "behind-waiting": "waiting before it keeps the records that wait",
        "behind-made": "made before it reads rows that a transformer makes",
        "elsewhere": "another stage has sent",
    }
    for operator, reason in reasons.items():
        found = at(build, operator)
        assert isinstance(found, str), operator
        assert reason in found
    assert paths({}, "gone") == "the topology has no such operator"
