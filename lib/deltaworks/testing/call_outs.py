"""What answers in the place of other systems in a test."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from deltaworks.kernel.call_outs import Answer, Answers, Call, NobodyAnswers, of_error, of_result
from deltaworks.topology.nodes import CallOut
from deltaworks.topology.plan import Plan

Fake = Callable[..., Any]
"""Has the arguments of the operator's own function."""


class Fakes:
    """`Answers` of a test: a function for each call-out. It is called once per record, without retries and cache.

    Args:
        functions: name of the operator -> what answers; what it raises is a call that has failed for good.
    """

    def __init__(self, functions: Mapping[str, Fake]) -> None:
        self._functions = functions

    def answer(self, call: Call) -> Answer:
        node = call.node
        if node.name not in self._functions:
            raise_nobody(call)
        call.digest()  # as a stream does, so that a question that cannot be recorded fails here too
        try:
            result = _called(self._functions[node.name], call)
        except Exception as error:
            return of_error(call, error)
        return of_result(call, result)


def fakes_for(plan: Plan, functions: Mapping[str, Fake] | None) -> Answers:
    """The fakes of a test.

    Raises:
        KeyError: there is no such call-out.
    """
    known = {node.name for node in plan.nodes if isinstance(node, CallOut)}
    for name in functions or {}:
        if name not in known:
            raise KeyError(f"the topology has no call-out '{name}'; it has: {_listed(known)}")
    return Fakes(functions) if functions else NobodyAnswers()


def raise_nobody(call: Call) -> None:
    """Raises that nobody answers for a call-out."""
    NobodyAnswers().answer(call)


def _called(function: Fake, call: Call) -> Any:
    result = function(call.key, call.value) if _takes_both(function) else function(call.value)
    if inspect.isawaitable(result):
        return asyncio.run(_finished(result))
    return result


def _takes_both(function: Fake) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


async def _finished(result: Any) -> Any:
    return await result


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
