"""The chart shows stages, stores, topics, tables and exchanges."""

from __future__ import annotations

from deltaworks import StreamsBuilder


def test_everything_is_drawn_and_connected() -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", key=str, value=str)
    words.to("copy")
    words.group_by(lambda _, word: word, key=str).count(store="counts").to_delta("totals")

    chart = builder.build().mermaid()

    assert chart.startswith("flowchart LR\n")
    for part in ('["stage 1"]', '[("counts")]', '(["topic words"])', '(["topic copy"])', '[/"table totals"/]'):
        assert part in chart
    assert "-. counts-repartition .->" in chart


def test_a_topic_that_is_read_and_written_is_one_node() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).to("middle")
    builder.stream("middle", key=str, value=str).to("out")

    assert builder.build().mermaid().count('(["topic middle"])') == 1
