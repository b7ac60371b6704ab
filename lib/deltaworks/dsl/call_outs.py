"""The call-outs of a `KStream`: operators that ask another system about each record.

They have their own class only because they fill a file; users find them on `KStream`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from deltaworks.dsl.graph import call_site
from deltaworks.dsl.kstream_joins import KStreamJoins
from deltaworks.dsl.mistakes import check_function, need_value
from deltaworks.dsl.point import Typed
from deltaworks.serdes.inference import pair, returned
from deltaworks.topology.call_outs import Asking
from deltaworks.topology.nodes import CallOut
from deltaworks.topology.nodes.base import Origin

if TYPE_CHECKING:
    from deltaworks.dsl.kstream import KStream

K = TypeVar("K")
V = TypeVar("V")
KR = TypeVar("KR")
VR = TypeVar("VR")

USUAL = Asking()


class KStreamCallOuts(KStreamJoins[K, V]):
    """The call-outs of a `KStream`."""

    def map_values_async(
        self,
        mapper: Callable[[V], Awaitable[VR] | VR],
        *,
        name: str,
        value: Typed[VR] | None = None,
        question: Callable[[V], Any] | None = None,
        asking: Asking = USUAL,
        instead: Callable[[V], VR | None] | None = None,
        ask_again: bool = False,
    ) -> KStream[K, VR]:
        """Asks another system about each value, several at a time; the answers are the new values, in the old order.

        Every answer is recorded before its batch has any effect. A batch that runs again, and every replay, use the
        recorded answers, whatever the system would say by then. So the mapper is called at least once for a record, and
        only one of its answers ever counts.

        A call that fails is tried again as `asking` says. One that has failed for good is a processing error of its
        record. With `on_error="continue"` the failure is recorded, too, and the record becomes a dead letter.

        Shape: `KStream[K, V] -> KStream[K, VR]`; 1 record -> 1.
        Args:
            mapper: `value -> value`, an `async def` or a plain function, which gets a thread.
            name: name of the node. Answers are recorded under it, so keep it when the topology changes.
            value: type or serde of the answer, if the mapper has no return annotation.
            question: `value -> what the answer depends on`, of numbers, texts, lists or fields; None: the whole value.
                The cache goes by it, and a recorded answer is only used for the same question.
            asking: time-out, retries, concurrency, cache, and what happens while the system is down.
            instead: `value -> value`: the answer if `asking.when_down` is `skip`; None: a null.
            ask_again: a replay asks anew. It needs that if it has questions that the stream has not asked.
        State: none in stores; the recorded answers, as long as the record of batches.
        Source: none; Flink's `AsyncDataStream.orderedWait`.
        """
        operator, where = "map_values_async", call_site()
        check_function(self.at.graph, mapper, "mapper(value)", operator=operator, where=where)
        known = self.at.settle(value, returned(mapper), operator=operator, argument="value", where=where)
        return self._call_out(
            operator,
            where,
            name=name,
            function=lambda _, old: mapper(old),
            question=None if question is None else _of_value(question),
            answer=known,
            asking=asking,
            is_async=_is_async(mapper),
            instead=None if instead is None else _of_value(instead),
            ask_again=ask_again,
        )

    def map_async(
        self,
        mapper: Callable[[K, V], Awaitable[tuple[KR, VR]] | tuple[KR, VR]],
        *,
        name: str,
        key: Typed[KR] | None = None,
        value: Typed[VR] | None = None,
        question: Callable[[K, V], Any] | None = None,
        asking: Asking = USUAL,
        instead: Callable[[K, V], tuple[KR, VR]] | None = None,
        ask_again: bool = False,
    ) -> KStream[KR, VR]:
        """`map_values_async` with a mapper `(key, value) -> (key, value)`; the next operator by key makes an exchange.

        Args:
            mapper: `(key, value) -> (key, value)`, an `async def` or a plain function, which gets a thread.
            name: name of the node; keep it when the topology changes.
            key: type or serde of the new key, if the mapper has no return annotation.
            value: type or serde of the new value, likewise.
            question: `(key, value) -> what the answer depends on`; None: both.
            asking: time-out, retries, concurrency, cache, and what happens while the system is down.
            instead: `(key, value) -> (key, value)`: the answer if `asking.when_down` is `skip`; None: the same key and
                a null.
            ask_again: a replay asks anew.
        Source: none; Flink's `AsyncDataStream.orderedWait`.
        """
        operator, where = "map_async", call_site()
        check_function(self.at.graph, mapper, "mapper(key, value)", operator=operator, where=where)
        new_key, new_value = pair(returned(mapper))
        known_key = self.at.settle(key, new_key, operator=operator, argument="key", where=where)
        known = self.at.settle(value, new_value, operator=operator, argument="value", where=where)
        return cast(
            "KStream[KR, VR]",
            self._call_out(
                operator,
                where,
                name=name,
                function=mapper,
                question=question or _both,
                answer=known,
                key=known_key,
                asking=asking,
                is_async=_is_async(mapper),
                instead=instead or (lambda old_key, _: (old_key, None)),
                ask_again=ask_again,
            ),
        )

    def _call_out(
        self,
        operator: str,
        where: Origin,
        *,
        name: str,
        function: Callable[[Any, Any], Any],
        question: Callable[[Any, Any], Any] | None,
        answer: Any,
        asking: Asking,
        is_async: bool,
        instead: Callable[[Any, Any], Any] | None,
        ask_again: bool,
        key: Any = None,
        joiner: Callable[[Any, Any], Any] | None = None,
        result: Any = None,
    ) -> KStream[Any, Any]:
        """Adds the node.

        Args:
            answer: the type of what is recorded, which must be known.
            result: the type of the new value; None: that of the answer.
        """
        from deltaworks.dsl.kstream import KStream

        at = self.at
        need_value(at.graph, name, str, "..., name='prices'", operator)
        need_value(at.graph, asking, Asking, "..., asking=Asking(retries=2)", operator)
        node = CallOut(
            name=name,
            parents=(at.node,),
            function=function,
            question=question or _value,
            answer=at.need(answer, operator=operator, argument="value", where=where),
            key=None if key is None else at.need(key, operator=operator, argument="key", where=where),
            joiner=joiner,
            instead=instead,
            asking=asking,
            is_async=is_async,
            ask_again=ask_again,
            origin=where,
        )
        return KStream(at.then(node, key=key, value=result or answer, rekeyed=key is not None))


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _value(key: Any, value: Any) -> Any:
    return value


def _both(key: Any, value: Any) -> Any:
    return [key, value]


def _of_value(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda _, value: function(value)
