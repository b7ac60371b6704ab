"""Questions to other systems and their answers, as an operator sees them. The host asks; the kernel does no I/O.

An answer is bytes, recorded at the place where it was asked: operator, record, and question. So a batch that runs
again, and a replay, find it, and never take it for the answer to another question. Behind an exchange, and where no
record has caused the question, the offset is left out: there it only counts what came before, and a replay may leave
records out, such as those of a person whose data was erased.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from deltaworks.errors import CallOutError, ConfigurationError
from deltaworks.kernel.errors import class_name
from deltaworks.kernel.records import Coordinates
from deltaworks.topology.nodes import (
    AnyNode,
    CallOut,
    FixedKeyProcessorNode,
    ProcessorNode,
    TableSource,
    TableTransformValues,
)
from deltaworks.topology.nodes.base import Table

_NO_DIGEST = "give question=, a function that says what the answer depends on as numbers, texts, lists or fields"


class Place(NamedTuple):
    """Where a question was asked."""

    operator: str
    topic: str
    partition: int
    offset: int
    """-1 if it does not tell records apart."""
    digest: bytes
    """Of the question."""
    nth: int
    """How often the operator has asked it about the same record before, in its batch."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}" + ("" if self.offset < 0 else f"@{self.offset}")


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What was said, or how the call failed."""

    data: bytes | None = None
    """The answer; None is a null."""
    key: bytes | None = None
    """The new key, if the operator makes one."""
    failure: str | None = None
    """Why there is no answer; None: there is one."""
    skipped: bool = False
    """The system was down, so that nobody has asked it."""
    about: bytes | None = None
    """The key of the record, as it was read: whose data it is."""


@dataclass(frozen=True, slots=True)
class Call:
    """A question, with what is needed to ask it."""

    node: CallOut
    key: Any
    value: Any
    timestamp_ms: int
    place: Coordinates
    """The record in process."""
    about: bytes | None
    is_unique: bool
    """`place` tells records of the task apart, in every replay."""
    certain: bool
    """It will be asked in just this way, whatever the answers to questions before it are."""

    def digest(self) -> bytes:
        """What tells questions apart.

        Raises:
            TypeError: the question consists of something that has no lasting bytes.
        """
        asked = self.node.question(self.key, self.value)
        try:
            data = msgspec.msgpack.encode(asked, enc_hook=_plain, order="deterministic")
        except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
            raise TypeError(f"the question of '{self.node.name}' cannot be recorded: {error}; {_NO_DIGEST}") from error
        return hashlib.blake2b(data, digest_size=16).digest()


class Answers(Protocol):
    """Where a task gets its answers; a host implements it."""

    def answer(self, call: Call) -> Answer | None:
        """The answer; None: it is not there yet, so the host will run the batch again.

        Raises:
            AnswersError: it must have been recorded, and is not.
            ConfigurationError: nobody can be asked here.
        """


class NobodyAnswers:
    """`Answers` of a host that asks nobody."""

    def answer(self, call: Call) -> Answer | None:
        raise ConfigurationError(
            f"'{call.node.name}' asks another system, and nothing answers for it here.",
            hint="TopologyTestDriver(pipeline, call_outs={" + repr(call.node.name) + ": function}), with a function of "
            "the same arguments that answers in its place",
        )


class Counted:
    """Counts the questions about each record, which makes their places."""

    def __init__(self) -> None:
        self._asked: Counter[Place] = Counter()

    def begin(self) -> None:
        """A batch begins, or begins anew."""
        self._asked.clear()

    def place(self, call: Call, digest: bytes) -> Place:
        """The place of the next question about a record."""
        record = call.place
        offset = record.offset if call.is_unique else -1
        first = Place(call.node.name, record.topic, record.partition, offset, digest, 0)
        nth = self._asked[first]
        self._asked[first] += 1
        return first._replace(nth=nth)


def of_result(call: Call, result: Any, *, skipped: bool = False) -> Answer:
    """The answer that a function has returned; a failure if it is not of its type."""
    node = call.node
    try:
        key = None
        if node.key is not None:
            new_key, result = result
            key = None if new_key is None else node.key.serialize(new_key)
        data = None if result is None else node.answer.serialize(result)
    except Exception as error:
        return of_error(call, error)
    return Answer(data, key, skipped=skipped, about=call.about)


def of_error(call: Call, error: BaseException) -> Answer:
    """The record of a call that has failed for good."""
    return Answer(failure=f"{class_name(error)}: {error}", about=call.about)


def value_of(node: CallOut, answer: Answer) -> tuple[Any, Any]:
    """The new key (None if the operator makes none) and what was answered.

    Raises:
        CallOutError: the call has failed.
        SerializationError: the recorded bytes are not of the type.
    """
    if answer.failure is not None:
        raise CallOutError(f"'{node.name}' has got no answer: {answer.failure}")
    key = None if answer.key is None or node.key is None else node.key.deserialize(answer.key)
    return key, None if answer.data is None else node.answer.deserialize(answer.data)


def certain(node: CallOut, nodes: Mapping[str, AnyNode]) -> bool:
    """Whether the questions of an operator do not depend on state that waits for answers.

    A batch runs again until all of its answers are there. Before that, records are missing behind call-outs, so what
    stateful operators there say is not final yet.

    Args:
        node: the operator.
        nodes: those of its stage.
    """
    behind = {name for name in nodes if any(isinstance(nodes[up], CallOut) for up in _above(name, nodes))}
    if not any(_remembers(nodes[name]) for name in behind):
        return True
    return not any(_remembers(nodes[up]) for up in _above(node.name, nodes))


def _remembers(node: AnyNode) -> bool:
    kinds = Table | TableSource | TableTransformValues | ProcessorNode | FixedKeyProcessorNode
    return bool(node.stores) or isinstance(node, kinds)


def _above(name: str, nodes: Mapping[str, AnyNode]) -> set[str]:
    """The nodes of the stage from which records come to a node."""
    found: set[str] = set()
    left = [name]
    while left:
        for parent in nodes[left.pop()].parents:
            if parent in nodes and parent not in found:
                found.add(parent)
                left.append(parent)
    return found


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump()
    raise NotImplementedError(f"{type(value).__name__} has no lasting bytes")
