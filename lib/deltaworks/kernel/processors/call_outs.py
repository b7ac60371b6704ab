"""Records that wait for the answer of another system."""

from __future__ import annotations

from typing import Any

from deltaworks.kernel.call_outs import Call, certain, value_of
from deltaworks.kernel.context import Process
from deltaworks.kernel.processors.wiring import Wiring
from deltaworks.kernel.records import Headers
from deltaworks.topology.nodes.call_outs import CallOut


def calling_out(node: CallOut, wiring: Wiring) -> Process:
    """Hands the question to the host. Without an answer, the record goes no further: the batch will run again."""
    name, joiner, makes_key = node.name, node.joiner, node.key is not None
    context, answers = wiring.context, wiring.answers
    forward, failed = wiring.forward(name), context.failed
    is_certain = certain(node, wiring.nodes)

    def process(key: Any, value: Any, timestamp_ms: int, headers: Headers) -> None:
        try:
            place = context.coordinates
            is_unique = place.topic != "" and place.topic not in context.exchanges
            call = Call(node, key, value, timestamp_ms, place, context.source_key, is_unique, is_certain)
            answer = answers.answer(call)
            if answer is None:
                return None
            new_key, new = value_of(node, answer)
            if joiner is not None:
                new = joiner(value, new)
        except Exception as error:
            return failed(name, error, key, value, timestamp_ms, headers)
        return forward(new_key if makes_key else key, new, timestamp_ms, headers)

    return process
