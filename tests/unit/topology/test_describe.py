"""The text is that of Kafka Streams, to the letter; the vectors of `tests/conformance` hold many more."""

from __future__ import annotations

from textwrap import dedent

from deltaworks import StreamsBuilder


def test_stages_stores_and_exchanges_are_shown() -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", key=str, value=str)
    words.group_by(lambda _, word: word, key=str).count(store="counts").to_stream().to("totals")

    assert builder.build().describe() == dedent("""\
        Topologies:
           Sub-topology: 0
            Source: KSTREAM-SOURCE-0000000000 (topics: [words])
              --> KSTREAM-KEY-SELECT-0000000001
            Processor: KSTREAM-KEY-SELECT-0000000001 (stores: [])
              --> counts-repartition-filter
              <-- KSTREAM-SOURCE-0000000000
            Processor: counts-repartition-filter (stores: [])
              --> counts-repartition-sink
              <-- KSTREAM-KEY-SELECT-0000000001
            Sink: counts-repartition-sink (topic: counts-repartition)
              <-- counts-repartition-filter

          Sub-topology: 1
            Source: counts-repartition-source (topics: [counts-repartition])
              --> KSTREAM-AGGREGATE-0000000002
            Processor: KSTREAM-AGGREGATE-0000000002 (stores: [counts])
              --> KTABLE-TOSTREAM-0000000006
              <-- counts-repartition-source
            Processor: KTABLE-TOSTREAM-0000000006 (stores: [])
              --> KSTREAM-SINK-0000000007
              <-- KSTREAM-AGGREGATE-0000000002
            Sink: KSTREAM-SINK-0000000007 (topic: totals)
              <-- KTABLE-TOSTREAM-0000000006

        """)


def test_children_are_in_the_order_of_kafka_streams_even_where_it_is_an_accident() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=str)
    for topic in ("o1", "o2", "o3"):
        stream.map_values(str.upper).to(topic)

    assert (
        "--> KSTREAM-MAPVALUES-0000000001, KSTREAM-MAPVALUES-0000000005, KSTREAM-MAPVALUES-0000000003\n"
        in builder.build().describe()
    )


def test_delta_tables_are_sinks() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).to_delta("lines")

    assert "    Sink: KSTREAM-TODELTA-0000000001 (table: lines)\n" in builder.build().describe()
