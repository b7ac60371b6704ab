"""What a pipeline may say about the topic of its corrections."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deltaworks import Corrections, DeadLetters, Pipeline, StreamsBuilder, TopologyError


class Nothing(msgspec.Struct, frozen=True):
    """A key without columns."""


def topology(builder: StreamsBuilder) -> None:
    orders = builder.stream("orders", key=str, value=int)
    orders.to("out")
    orders.to_delta("amounts")
    builder.stream("odd", key=Nothing, value=int).to_delta("keyless")
    builder.global_table("users", key=str, value=str, store="users")
    orders.group_by_key().count(store="counts").to_delta("counts")


def pipeline(corrections: Any, **options: Any) -> Pipeline:
    return Pipeline(
        name="shop",
        topology=topology,
        dead_letters=DeadLetters(topic="letters", table="letters"),
        corrections=corrections,
        **options,
    )


def test_the_tables_are_those_that_are_named_or_all() -> None:
    plan = pipeline(Corrections("changes", tables=("counts", "amounts"))).plan()
    assert Corrections("changes").tables_of(plan) == ("amounts", "counts", "keyless")
    assert Corrections("changes", tables=("counts",)).tables_of(plan) == ("counts",)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("changes", "corrections= is 'changes', not Corrections"),
        (Corrections("a/b", tables=("counts",)), "names the topic 'a/b', which cannot be the name of a topic"),
        (Corrections("orders", tables=("counts",)), "'orders' is read by the topology"),
        (Corrections("users", tables=("counts",)), "'users' is read by the topology"),
        (Corrections("out", tables=("counts",)), "'out' is also written by the stream"),
        (Corrections("letters", tables=("counts",)), "'letters' is also written by the stream"),
        (Corrections("changes", tables=("counts_changelog",)), "counts_changelog, the updates of a KTable"),
        (Corrections("changes", tables=("letters",)), "'letters', which is no table of the topology"),
        (Corrections("changes", tables="counts"), "tables='counts'"),  # type: ignore[arg-type]
        (Corrections("changes"), "'keyless', a table without a key"),
    ],
)
def test_what_cannot_be_is_refused(given: Any, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        pipeline(given).plan()


def test_a_topology_without_tables_has_nothing_to_tell() -> None:
    def streams(builder: StreamsBuilder) -> None:
        builder.stream("orders", key=str, value=int).to("out")

    with pytest.raises(TopologyError, match="the topology writes none"):
        Pipeline(name="shop", topology=streams, corrections=Corrections("changes")).plan()
