"""A name of Kafka Streams that does not exist here is answered with what to write, on every public class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import deltaworks
from deltaworks import (
    FixedKeyProcessor,
    Materialized,
    Processor,
    Stores,
    StreamsBuilder,
    StreamsError,
    ValueAndTimestamp,
    Windowed,
)
from deltaworks.dsl import kafka_names
from deltaworks.dsl.mistakes import Handle
from deltaworks.testing import TopologyTestDriver
from deltaworks.topology.java_names import instead
from tests.coverage_table.mapping import read_mapping

WINDOWS = {
    "Windows",
    "TimeWindows",
    "SlidingWindows",
    "SessionWindows",
    "UnlimitedWindows",
    "JoinWindows",
    "EmitStrategy",
}
"""They answer for themselves."""
OPERATORS = {"__eq__": "==", "__hash__": "hash(", "__repr__": "str(", "__str__": "str(", "__call__": "extractor("}
COUNTS = Stores.timestamped_key_value("counts", key=str, value=int)


def counterparts() -> Iterator[tuple[type, str, set[str]]]:
    """A class of ours, a name that its counterpart in Kafka Streams has, and what that is called here."""
    for part in read_mapping():
        for each in part.classes:
            for row in each.rows:
                owners: dict[str, set[str]] = {}
                for ours in row.ours:
                    owner, _, member = ours.partition("(")[0].partition(".")
                    owners.setdefault(owner, set()).add(OPERATORS.get(member, member))
                for owner, members in owners.items():
                    kind = getattr(deltaworks, owner, None) if owner not in WINDOWS else None
                    same = each.name.rpartition(".")[2] in (owner, f"ReadOnly{owner}")
                    if isinstance(kind, type) and same and row.method.name not in dir(kind):
                        yield kind, row.method.name, members


COUNTERPARTS = {f"{kind.__name__}.{theirs}": (kind, theirs, ours) for kind, theirs, ours in counterparts()}


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_a_member_of_kafka_streams_is_answered_with_ours(name: str) -> None:
    kind, theirs, ours = COUNTERPARTS[name]
    if issubclass(kind, Handle):
        with pytest.raises(AttributeError) as error:
            getattr(kind.__new__(kind), theirs)
        told = str(error.value)
    else:
        told = instead(kind, theirs) or ""

    assert any(name in told for name in ours), told


def test_there_are_many() -> None:
    assert len(COUNTERPARTS) > 100


@pytest.mark.parametrize(
    ("owner", "name", "hint"),
    [
        (Stores, "keyValueStoreBuilder", "Stores.key_value('name', key=str, value=int)"),
        (Stores, "persistentKeyValueStore", "Stores.key_value('name', key=str, value=int)"),
        (Stores, "inMemoryWindowStore", "Stores.window('name', key=str, value=int, window_size=..., retention=...)"),
        (Materialized, "as_", "store='name', or Materialized('name', ...)"),
        (Materialized, "with_", "Materialized(key=..., value=...), with serdes"),
        (Materialized, "withKeySerde", "Materialized(..., key=...)"),
        (Materialized("a"), "withValueSerde", "Materialized(..., value=...)"),
        (Materialized("a"), "withCachingDisabled", "Materialized(..., caching=False)"),
        (COUNTS, "withCachingEnabled", "Stores.key_value('name', key=str, value=int, caching=True)"),
        (COUNTS, "build", "builder.add_state_store(store); each task builds its own"),
    ],
)
def test_stores_and_their_details_answer_where_they_are_asked(owner: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match="has no method") as error:
        getattr(owner, name)

    assert str(error.value).endswith(f"Hint: {hint}")
    assert f"at {__file__.rpartition('tests/')[1]}" in str(error.value)


@pytest.mark.parametrize("name", ["Consumed", "Produced", "Grouped", "Serdes", "KeyValue", "ProcessorSupplier"])
def test_a_class_of_kafka_streams_is_answered_where_it_is_imported(name: str) -> None:
    with pytest.raises(ImportError) as error:
        exec(f"from deltaworks import {name}")

    assert str(error.value) == f"deltaworks has no '{name}'. Use instead: {kafka_names.INSTEAD[name]}"


def test_a_misspelled_class_is_answered_with_the_one_that_is_meant() -> None:
    with pytest.raises(ImportError, match=r"deltaworks has no 'StreamBuilder'\. Did you mean: 'StreamsBuilder'\?"):
        exec("from deltaworks import StreamBuilder")


def test_a_name_like_no_other_is_an_error_of_pythons() -> None:
    with pytest.raises(AttributeError, match="module 'deltaworks' has no attribute 'Xyzzy'"):
        getattr(deltaworks, "Xyzzy")  # noqa: B009


def told_of(action: Any, base: Any = Processor) -> str:
    """What the author of a processor is told if this fails in it."""

    class Acts(base):  # type: ignore[misc]
        stores = (COUNTS,)

        def process(self, record: Any) -> None:
            action(self, record)

    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    if base is Processor:
        stream.process(Acts)
    else:
        stream.process_values(Acts)
    with pytest.raises(StreamsError) as error:
        TopologyTestDriver(builder.build()).create_input_topic("in").pipe_input("k", "v")
    return error.value.message


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (lambda self, record: record.withValue(1), "write with_value(...)"),
        (lambda self, record: record.timestamp(), "write timestamp_ms"),
        (lambda self, record: record.key(), "write record.key, without parentheses"),
        (lambda self, record: self.context(), "write self.context, without parentheses"),
        (lambda self, record: self.context.getStateStore("counts"), "write state_store('name')"),
        (lambda self, record: self.context.currentStreamTimeMs(), "write current_stream_time_ms"),
        (lambda self, record: self.context.forward(record.key, record.value), "forward takes a Record"),
        (lambda self, record: self.context.state_store("counts").putIfAbsent("a", 1), "write put_if_absent(...)"),
        (lambda self, record: self.context.state_store("counts").get_with_timestamp("a"), "write get(key), which has"),
        (lambda self, record: ValueAndTimestamp.make(1, 2), "write ValueAndTimestamp(value, timestamp_ms)"),  # type: ignore[attr-defined]
        (lambda self, record: Windowed("a", 0, 1).window(), "write start_ms and end_ms"),  # type: ignore[attr-defined]
    ],
)
def test_a_processor_is_told_what_to_write(action: Any, told: str) -> None:
    assert told in told_of(action)


def test_a_processor_of_fixed_keys_is_told_who_may_change_them() -> None:
    told = told_of(lambda self, record: record.withKey("other"), FixedKeyProcessor)

    assert told.endswith("write Processor, which may change keys, in process(...)")


def test_other_errors_are_left_as_they_are() -> None:
    assert told_of(lambda self, record: record.value.missing) == (
        "a record failed: AttributeError: 'str' object has no attribute 'missing'"
    )
    assert "write" not in told_of(lambda self, record: int("a"))
