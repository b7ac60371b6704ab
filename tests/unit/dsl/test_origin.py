"""Every node knows the user's line that made it."""

from __future__ import annotations

import inspect

from deltaworks import StreamsBuilder


def test_a_node_knows_the_line_of_its_call() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    frame = inspect.currentframe()
    assert frame is not None
    line = frame.f_lineno + 1
    stream.group_by_key().count(store="counts").to_stream().to("out")

    *_, aggregate, to_stream, sink = builder.build().nodes

    for node in (aggregate, to_stream, sink):
        assert node.origin is not None
        assert node.origin.file.endswith("tests/unit/dsl/test_origin.py")
        assert node.origin.line == line


def test_the_path_is_relative_to_where_the_user_works() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).to("out")

    assert all(not str(node.origin).startswith("/") for node in builder.build().nodes)


def test_moving_a_line_does_not_change_a_node() -> None:
    def build() -> StreamsBuilder:
        return StreamsBuilder()

    first, second = build(), build()
    first.stream("in", key=str, value=str).to("out")
    second.stream("in", key=str, value=str).to("out")

    assert first.build() == second.build()
