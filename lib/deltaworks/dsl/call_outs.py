"""The call-outs of a `KStream`: operators that ask another system about each record.

They have their own class only because they fill a file; users find them on `KStream`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from deltaworks.dsl.graph import call_site
from deltaworks.dsl.kstream_joins import KStreamJoins
from deltaworks.dsl.mistakes import check_function, named, need_value
from deltaworks.dsl.point import Typed, settle
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
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)

USUAL = Asking()


class System(Protocol[A_co]):
    """Who is asked: `Http`, or a class of the author's own. It is sent to the workers, so it holds no connections."""

    @property
    def answer(self) -> Any:
        """Type or serde of its answers."""

    def question(self, key: Any, value: Any) -> Any:
        """What the answer depends on, of numbers, texts, lists or fields."""

    def ask(self, key: Any, value: Any, timeout_s: float) -> A_co | None:
        """Asks once, in a thread; `OSError` is tried again."""


class KStreamCallOuts(KStreamJoins[K, V]):
    """The call-outs of a `KStream`."""

    @overload
    def map_values_async(
        self,
        mapper: Callable[[V], Awaitable[VR]],
        *,
        name: str,
        value: Typed[VR] | None = None,
        question: Callable[[V], Any] | None = None,
        asking: Asking = USUAL,
        instead: Callable[[V], VR | None] | None = None,
        ask_again: bool = False,
    ) -> KStream[K, VR]: ...

    @overload
    def map_values_async(
        self,
        mapper: Callable[[V], VR],
        *,
        name: str,
        value: Typed[VR] | None = None,
        question: Callable[[V], Any] | None = None,
        asking: Asking = USUAL,
        instead: Callable[[V], VR | None] | None = None,
        ask_again: bool = False,
    ) -> KStream[K, VR]: ...

    def map_values_async(
        self,
        mapper: Callable[[V], Any],
        *,
        name: str,
        value: Typed[VR] | None = None,
        question: Callable[[V], Any] | None = None,
        asking: Asking = USUAL,
        instead: Callable[[V], Any] | None = None,
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

    @overload
    def map_async(
        self,
        mapper: Callable[[K, V], Awaitable[tuple[KR, VR]]],
        *,
        name: str,
        key: Typed[KR] | None = None,
        value: Typed[VR] | None = None,
        question: Callable[[K, V], Any] | None = None,
        asking: Asking = USUAL,
        instead: Callable[[K, V], tuple[KR, VR | None]] | None = None,
        ask_again: bool = False,
    ) -> KStream[KR, VR]: ...

    @overload
    def map_async(
        self,
        mapper: Callable[[K, V], tuple[KR, VR]],
        *,
        name: str,
        key: Typed[KR] | None = None,
        value: Typed[VR] | None = None,
        question: Callable[[K, V], Any] | None = None,
        asking: Asking = USUAL,
        instead: Callable[[K, V], tuple[KR, VR | None]] | None = None,
        ask_again: bool = False,
    ) -> KStream[KR, VR]: ...

    def map_async(
        self,
        mapper: Callable[[K, V], Any],
        *,
        name: str,
        key: Typed[KR] | None = None,
        value: Typed[VR] | None = None,
        question: Callable[[K, V], Any] | None = None,
        asking: Asking = USUAL,
        instead: Callable[[K, V], Any] | None = None,
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
        return self._call_out(
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
        )

    def enrich_from(
        self,
        system: System[A],
        joiner: Callable[[V, A | None], VR],
        *,
        name: str,
        value: Typed[VR] | None = None,
        asking: Asking = USUAL,
        instead: Callable[[K, V], A | None] | None = None,
        ask_again: bool = False,
    ) -> KStream[K, VR]:
        """Adds what another system says about each record, such as one that speaks HTTP; see `map_values_async`.

        Shape: `KStream[K, V] -> KStream[K, VR]`; 1 record -> 1.
        Args:
            system: who is asked: an `Http`.
            joiner: `(value, answer) -> value`; the answer is None if the system knows nothing. It is not recorded what
                the joiner makes, so a replay may have another one.
            name: name of the node; keep it when the topology changes. A fake of a test has the arguments
                `(key, value)`, or `(value)`, and returns an answer.
            value: type or serde of the new value, if the joiner has no return annotation.
            asking: time-out, retries, concurrency, cache, and what happens while the system is down.
            instead: `(key, value) -> answer` if `asking.when_down` is `skip`; None: the answer None.
            ask_again: a replay asks anew.
        Source: none; Flink's `AsyncDataStream.orderedWait`.
        """
        operator, where = "enrich_from", call_site()
        graph = self.at.graph
        need_value(graph, asking, Asking, "..., asking=Asking(retries=2)", operator)
        timeout_s = asking.timeout.total_seconds()
        if not all(hasattr(system, each) for each in ("ask", "question", "answer")) or isinstance(system, type):
            graph.refuse(f"{operator} needs an Http, but got {named(system)}.", where, "Http(url=..., answer=...)")
        check_function(graph, joiner, "joiner(value, answer)", operator=operator, where=where)
        answer = settle(graph, system.answer, None, operator=operator, argument="answer", where=where)
        result = self.at.settle(value, returned(joiner), operator=operator, argument="value", where=where)
        return self._call_out(
            operator,
            where,
            name=name,
            function=lambda key, old: system.ask(key, old, timeout_s),
            question=system.question,
            answer=answer,
            asking=asking,
            is_async=False,
            instead=instead,
            ask_again=ask_again,
            joiner=joiner,
            result=result,
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
