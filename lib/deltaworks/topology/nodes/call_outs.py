"""Records that wait for the answer of another system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deltaworks.serdes.base import Serde
from deltaworks.topology.call_outs import Asking
from deltaworks.topology.nodes.base import Node


@dataclass(frozen=True, kw_only=True)
class CallOut(Node):
    """Asks another system about each record, and records what it says."""

    function: Callable[[Any, Any], Any]
    """`(key, value) -> answer`, or an awaitable of it."""
    question: Callable[[Any, Any], Any]
    """`(key, value)` -> what the answer depends on."""
    answer: Serde[Any]
    """Of what is recorded."""
    key: Serde[Any] | None = None
    """Of the new key, if the function answers with a key and a value; None: the key stays."""
    joiner: Callable[[Any, Any], Any] | None = None
    """`(value, answer) -> value`; None: the answer is the new value."""
    instead: Callable[[Any, Any], Any] | None = None
    """The answer while the system is down and `Asking.when_down` is `skip`; None: a null."""
    asking: Asking
    is_async: bool = False
    """The function does not block: it is called in the event loop, and returns an awaitable."""
    ask_again: bool = False
    """A replay asks anew, instead of using the recorded answers."""
