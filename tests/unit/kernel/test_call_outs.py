"""Which questions do not depend on answers that are missing."""

from __future__ import annotations

import pytest

from deltaworks import KStream, StreamsBuilder
from deltaworks.kernel.call_outs import certain
from deltaworks.topology.nodes import CallOut


def ask(stream: KStream[str, int], name: str) -> KStream[str, int]:
    return stream.map_values_async(lambda value: value, value=int, name=name)


def chained(stream: KStream[str, int]) -> None:
    ask(ask(stream, "yes"), "yes too").to("out")


def behind_own_state(stream: KStream[str, int]) -> None:
    ask(stream.group_by_key().count(store="c").to_stream(), "yes").to("out")


def behind_state_of_answers(stream: KStream[str, int]) -> None:
    ask(ask(stream, "yes").group_by_key().count(store="c").to_stream(), "no").to("out")


def beside_state_of_answers(stream: KStream[str, int]) -> None:
    ask(stream, "yes").group_by_key().count(store="c").to_stream().to("out")
    ask(stream.group_by_key().count(store="d").to_stream(), "no: another operator may write the store").to("out")


def behind_an_exchange(stream: KStream[str, int]) -> None:
    counts = ask(stream, "yes").group_by_key().count(store="c").to_stream()
    ask(counts.repartition(name="apart"), "yes too").to("out")


@pytest.mark.parametrize(
    "topology", [chained, behind_own_state, behind_state_of_answers, beside_state_of_answers, behind_an_exchange]
)
def test_names_say_whether_questions_are_certain(topology: object) -> None:
    builder = StreamsBuilder()
    assert callable(topology)
    topology(builder.stream("in", key=str, value=int))
    for stage in builder.build().stages:
        nodes = {node.name: node for node in stage.nodes}
        for node in stage.nodes:
            if isinstance(node, CallOut):
                assert certain(node, nodes) is node.name.startswith("yes"), node.name
