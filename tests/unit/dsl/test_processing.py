"""How processors and stores get into a topology: what is refused, what comes along, what is known of types."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any, Generic, TypeVar

import pytest

from deltaworks import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
    TopologyError,
    Windowed,
)
from deltaworks.testing import TopologyTestDriver

COUNTS = Stores.key_value("counts", key=str, value=int)


class Count(Processor[str, str, str, int]):
    stores = (COUNTS,)

    def process(self, record: Record[str, str]) -> None:
        counts = self.context.state_store("counts")
        counts.put(record.key, (counts.get(record.key) or 0) + 1)
        self.context.forward(record.with_value(counts.get(record.key)))


class Length(FixedKeyProcessor[str, str, int]):
    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.forward(record.with_value(len(record.value)))


def problems_of(builder: StreamsBuilder | Topology) -> str:
    with pytest.raises(TopologyError) as error:
        builder.build()
    return str(error.value)


def test_stores_and_types_come_along_with_the_class() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).process(Count).to("out")
    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("in").pipe_key_value_list([("a", "x"), ("a", "y")])

    assert driver.create_output_topic("out").read_key_values_to_list() == [("a", 1), ("a", 2)]
    assert driver.store("counts").all() == [("a", 2)]


class Prefixed(Count):
    """Types and stores are those of its base."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix


K = TypeVar("K")


class Numbered(Processor[K, str, K, int], Generic[K]):
    def process(self, record: Record[K, str]) -> None:
        self.context.forward(record.with_value(1))


class NumberedText(Numbered[str]):
    pass


def make() -> Prefixed:
    return Prefixed("x")


@pytest.mark.parametrize(
    "supplier",
    [Prefixed, lambda: Prefixed("x"), functools.partial(Prefixed, "x"), make],
    ids=lambda each: repr(each)[:10],
)
def test_stores_and_types_come_along_with_every_supplier(supplier: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).process(supplier).to("out")
    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("in").pipe_key_value_list([("a", "x"), ("a", "y")])

    assert driver.create_output_topic("out").read_key_values_to_list() == [("a", 1), ("a", 2)]


def test_types_come_through_generic_bases() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).process(lambda: NumberedText()).to("out")
    builder.build()


def test_a_supplier_of_your_own_brings_its_stores_along() -> None:
    class Supplier:
        stores = (COUNTS,)

        def __call__(self) -> Processor[str, str, str, str]:
            return Plain()

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).process(Supplier()).to("out")

    assert [store.name for store in builder.build().stores] == ["counts"]


def test_an_attribute_of_an_object_does_not_count_as_stores() -> None:
    class Holds(Processor[str, str, str, str]):
        def __init__(self) -> None:
            self.stores = {"a": 1}

        def process(self, record: Record[str, str]) -> None: ...

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).process(lambda: Holds()).to("out")

    assert builder.build().stores == ()


def test_two_processors_that_bring_the_same_store_share_it_and_a_stage() -> None:
    builder = StreamsBuilder()
    for topic in ("x", "y"):
        builder.stream(topic, key=str, value=str).process(Count, name=f"count-{topic}")
    plan = builder.build()

    assert [[store.name for store in stage.stores] for stage in plan.stages] == [["counts"]]


def test_the_key_may_have_changed_behind_process_and_not_behind_process_values() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    stream.process(Count).group_by_key().count(store="rekeyed")
    stream.process_values(Length).group_by_key().count(store="same")
    plan = builder.build()

    assert [exchange for stage in plan.stages for exchange in stage.exchanges_out] == ["rekeyed-repartition"]


def test_a_given_name_uses_up_no_number() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).process(Count, name="mine").process_values(Length2, value=int)

    assert [node.name for node in builder.build().nodes] == [
        "KSTREAM-SOURCE-0000000000",
        "mine",
        "KSTREAM-PROCESSVALUES-0000000001",
    ]


class Length2(FixedKeyProcessor[str, int, int]):
    def process(self, record: FixedKeyRecord[str, int]) -> None: ...


def test_every_wrong_supplier_is_told_at_once() -> None:
    one = Count()
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    stream.process(one, key=str, value=int)  # type: ignore[arg-type]
    stream.process(lambda: one, key=str, value=int)
    stream.process(Length, key=str, value=int)  # type: ignore[arg-type]
    stream.process(Count, "missing", key=str, value=int)
    stream.process(Count, 7, key=str, value=int)  # type: ignore[arg-type]

    problems = problems_of(builder)

    assert "process needs a supplier that makes a Processor, but got a Count: each task has its own." in problems
    assert "process: the supplier returns the same object each time; tasks cannot share a processor." in problems
    assert "process needs a supplier that makes a Processor, but got one that makes a Length." in problems
    assert "names the store 'missing', but there is none of that name." in problems
    assert "a store is given by its name or its declaration, but got 7." in problems
    assert problems.startswith("5 problems in topology")


def test_a_store_is_declared_in_the_call_that_uses_it() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    for name in ("one", "two"):  # the same declaration twice is one store
        stream.process(Plain, COUNTS, name=name, key=str, value=int).to(name)
    plan = builder.build()

    assert [store.name for store in plan.stores] == ["counts"]
    assert [node.stores for node in plan.nodes if node.name in ("one", "two")] == [("counts",)] * 2


@pytest.mark.parametrize(
    ("holder", "name", "hint"),
    [
        (Stores, "key_value_store_builder", "Stores.key_value('name', key=str, value=int)"),
        (Stores, "keyValueStoreBuilder", "Stores.key_value('name', key=str, value=int)"),
        (Stores, "persistent_key_value_store", "Stores.key_value('name', key=str, value=int)"),
        (Stores, "inMemoryWindowStore", "Stores.window('name', key=str, value=int, window_size="),
        (Stores, "timestampedKeyValueStoreBuilder", "Stores.timestamped_key_value('name', key=str, value=int)"),
        (Stores, "persistentVersionedKeyValueStore", "Stores.versioned('name', key=str, value=int, history="),
        (Stores, "lruMap", "Stores.lru('name', key=str, value=int, max_entries=100)"),
        (Stores, "sessionStoreBuilder", "Stores.session('name', key=str, value=int, retention="),
        (Stores, "custom_store_builder", "Stores.custom('name', MyStore)"),
        (COUNTS, "withCachingEnabled", "Stores.key_value('name', key=str, value=int, caching=True)"),
        (COUNTS, "with_logging_disabled", "Stores.key_value('name', key=str, value=int, logging=False)"),
    ],
)
def test_a_name_of_kafka_streams_says_what_to_call(holder: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(holder, name)
    assert f"Hint: {hint}" in str(error.value)
    assert "test_processing.py:" in str(error.value)


def test_another_option_is_refused_with_those_that_exist() -> None:
    assert Stores.key_value("s", key=str, value=int, caching=True, logging=False, in_memory=True) == (
        Stores.key_value("s", key=str, value=int)
    )
    with pytest.raises(TypeError, match=r"no option 'cached'; .* it takes record_key=, caching=, logging=, in_memory="):
        Stores.key_value("s", key=str, value=int, cached=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="a store is declared with its name"):
        Stores.key_value(str, key=str, value=int)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="store 's' needs a function that makes it of its bytes, but got 5"):
        Stores.custom("s", 5)  # type: ignore[arg-type]


def test_two_stores_of_one_name_are_refused_unless_they_are_the_same() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(COUNTS).add_state_store(COUNTS)
    builder.stream("in", key=str, value=str).process(Count)
    builder.build()

    builder.add_state_store(Stores.lru("counts", key=str, value=int, max_entries=5))

    assert "two stores are named 'counts'" in problems_of(builder)


def test_a_global_store_needs_no_connection() -> None:
    builder = StreamsBuilder()
    builder.add_global_store(COUNTS, "rows", Count, key=str, value=str)
    builder.stream("in", key=str, value=str).process(Plain, "counts", key=str, value=str)

    assert "names the store 'counts', which is global." in problems_of(builder)


class Plain(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


def test_a_low_level_topology_tells_what_does_not_fit() -> None:
    topology = Topology("broken")
    topology.add_source("s", key=str, value=str)
    topology.add_processor("p", Plain, "nobody")
    topology.add_processor("q", Plain)
    topology.add_processor("r", Plain, "r")
    topology.add_sink("t", "out", "p", key=str, value=str)
    topology.add_sink("u", "out", "t", key=str, value=str)
    topology.add_state_store(COUNTS, "s")
    topology.connect_processor_and_state_stores("p")
    topology.connect_processor_and_state_stores("p", "others")

    problems = problems_of(topology)

    for expected in (
        "the source 's' reads no topic.",
        "'p': its parent 'nobody' is not added yet.",
        "'q' has no parent.",
        "'r' cannot be its own parent.",
        "'u': the sink 't' cannot be a parent.",
        "the store 'counts' cannot be connected: 's' is not a processor.",
        "'p' is connected to no store.",
        "'p' names the store 'others', but there is none of that name.",
    ):
        assert expected in problems


def test_a_fixed_key_processor_fits_into_a_low_level_topology() -> None:
    topology = Topology()
    topology.add_source("in", "in", key=str, value=str)
    topology.add_processor("length", Length, "in")
    topology.add_sink("out", lambda key, value, context: f"long-{value}", "length", key=str, value=int)
    driver = TopologyTestDriver(topology.build())
    driver.create_input_topic("in").pipe_input("k", "four")

    assert driver.create_output_topic("long-4").read_key_value() == ("k", 4)


def test_stores_check_what_they_are_given() -> None:
    minute = timedelta(minutes=1)
    with pytest.raises(ValueError, match="store 's' keeps 60000 ms, which is less than a window of 120000 ms"):
        Stores.window("s", key=str, value=int, window_size=2 * minute, retention=minute)
    with pytest.raises(ValueError, match="the retention must not be negative, but is -60000 ms"):
        Stores.session("s", key=str, value=int, retention=-minute)
    with pytest.raises(ValueError, match="store 's' cannot keep -1 entries"):
        Stores.lru("s", key=str, value=int, max_entries=-1)
    with pytest.raises(ValueError, match="there is no serde for value=object"):
        Stores.key_value("s", key=str, value=object)


def test_windowed_keys_keep_both_bounds_in_a_store() -> None:
    """In the order of the key, the end and the start."""

    class Remember(Processor[str, int, str, int]):
        stores = (Stores.key_value("seen", key=Windowed[str], value=int),)

        def process(self, record: Record[str, int]) -> None:
            seen = self.context.state_store("seen")
            seen.put(Windowed(record.key, 0, record.value), record.value)

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).process(Remember)
    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("in").pipe_key_value_list([("b", 7), ("a", 9), ("a", 8)])

    assert driver.store("seen").all() == [(Windowed("a", 0, 8), 8), (Windowed("a", 0, 9), 9), (Windowed("b", 0, 7), 7)]
    assert driver.store("seen").get(Windowed("a", 0, 9)) == 9


def test_a_windowed_key_says_of_what() -> None:
    with pytest.raises(ValueError, match=r"there is no serde for key=Windowed; give Windowed\[str\]"):
        Stores.key_value("seen", key=Windowed, value=int)


def test_a_checkpoint_depends_on_what_the_bytes_of_a_store_look_like() -> None:
    def fingerprint(duplicates: bool) -> Any:
        minute, nothing = timedelta(minutes=1), timedelta(0)
        windows = Stores.window(
            "w", key=str, value=int, window_size=nothing, retention=minute, retain_duplicates=duplicates
        )
        builder = StreamsBuilder()
        builder.stream("in", key=str, value=int).process(Plain, windows, key=str, value=int)
        return builder.build().fingerprint()["stores"]["w"]

    assert fingerprint(False)["kind"] == "plain window"
    assert fingerprint(True)["kind"] == "plain window with duplicates"
    assert fingerprint(True)["filled_by"] == "processor"
