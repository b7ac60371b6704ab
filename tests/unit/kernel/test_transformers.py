"""Value transformers of tables: their context, their stores, and the rows that joins look up."""

from __future__ import annotations

import pytest

from deltaworks import KeyValueStore, Stores, StreamsBuilder, StreamsError, ValueTransformer
from deltaworks.testing import TopologyTestDriver

Seen = list[tuple[int | None, str | None]]


class Numbered(ValueTransformer[str, int | None, int]):
    """How many updates a key has had; remembered in a store."""

    def transform(self, key: str, value: int | None) -> int:
        updates: KeyValueStore[str, int] = self.context.state_store("updates")
        count = (updates.get(key) or 0) + 1
        updates.put(key, count)
        return count


class Forwarding(ValueTransformer[str, int | None, int]):
    def transform(self, key: str, value: int | None) -> int:
        self.context.forward(None)  # type: ignore[attr-defined]
        return 0


def with_updates(builder: StreamsBuilder) -> StreamsBuilder:
    return builder.add_state_store(Stores.key_value("updates", key=str, value=int))


def test_deletes_are_transformed_too() -> None:
    builder = with_updates(StreamsBuilder())
    builder.table("in", key=str, value=int).transform_values(Numbered, "updates").to_stream().to("out")

    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("in").pipe_key_value_list([("k", 7), ("k", None), ("other", None)])

    rows = driver.create_output_topic("out").read_key_values_to_list()
    assert rows == [("k", 1), ("k", 2), ("other", 1)]


def test_a_transformer_forwards_nothing() -> None:
    builder = StreamsBuilder()
    builder.table("in", key=str, value=int).transform_values(Forwarding).to_stream().to("out")

    with pytest.raises(StreamsError, match="a ValueTransformer returns the new value"):
        TopologyTestDriver(builder.build()).create_input_topic("in").pipe_input("k", 1)


def test_a_row_that_is_looked_up_is_the_record_in_process() -> None:
    seen: Seen = []

    class Watching(ValueTransformer[str, int | None, int]):
        def transform(self, key: str, value: int | None) -> int:
            metadata = self.context.record_metadata
            seen.append((value, None if metadata is None else metadata.topic))
            return -1 if value is None else value

    builder = StreamsBuilder()
    rows = builder.table("rows", key=str, value=int, store="rows").transform_values(Watching)
    joined = builder.stream("in", key=str, value=int).join(rows, lambda left, right: left + right, value=int)
    joined.to("out")

    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("rows").pipe_input("k", 10)
    driver.create_input_topic("in").pipe_key_value_list([("k", 1), ("nobody", 1)])

    assert seen == [(10, "rows"), (10, None), (None, None)]
    assert driver.create_output_topic("out").read_key_values_to_list() == [("k", 11), ("nobody", 0)]


def test_with_a_store_rows_are_not_made_again() -> None:
    builder = with_updates(StreamsBuilder())
    rows = builder.table("rows", key=str, value=int).transform_values(Numbered, "updates", store="numbered")
    builder.stream("in", key=str, value=int).join(rows, lambda left, right: left + right, value=int).to("out")

    driver = TopologyTestDriver(builder.build())
    driver.create_input_topic("rows").pipe_input("k", 10)
    driver.create_input_topic("in").pipe_key_value_list([("k", 100), ("k", 200)])

    assert driver.create_output_topic("out").read_key_values_to_list() == [("k", 101), ("k", 201)]
    assert driver.store("numbered").all() == [("k", 1)]
