"""What tables and topics hold of a stream, compared with what the stream has meant to do.

A task's marker in Kafka and a table's transaction name the last batch that is in them, and its intent. A checkpoint
goes on only if it knows that batch: then whatever is done again is the same, and is recognised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deltaworks.control.intents import Intents, token
from deltaworks.errors import IntentError


@dataclass(frozen=True)
class Done:
    """The last batch that an output holds."""

    where: str
    """For people: `table 'orders'`."""
    batch: int
    intent: int
    """`intents.token` of its intent."""


def require_known(done: Iterable[Done], intents: Intents, pipeline: str, first_batch: int = 0) -> None:
    """Checks that everything that was committed was committed by this stream, for batches that it knows.

    Args:
        done: of every task and table that holds anything of this checkpoint.
        intents: of this checkpoint.
        pipeline: its name.
        first_batch: of this checkpoint; what is older was handed over to it.

    Raises:
        IntentError: an output holds a batch that this checkpoint does not know, or means otherwise.
    """
    known = intents.batches()
    for each in done:
        if each.batch < (known[0] if known else first_batch):
            continue  # so old that its intent is gone; the chain up to the last one leads through it
        intent = intents.get(each.batch)
        if intent is None:
            raise IntentError(
                f"{each.where} holds batch {each.batch} of pipeline {pipeline!r}, but this home "
                f"knows batches up to {known[-1] if known else 'none'}: it is older than what it has written.",
                hint="was it restored from a copy? Bring back the home that wrote that batch. Without it, start over: "
                "move the pipeline's folder and its tables away; its output topics then get everything once more",
            )
        if token(intent.digest) != each.intent:
            raise IntentError(
                f"{each.where} holds batch {each.batch} of pipeline {pipeline!r}, but made of other records, or at "
                "another time, than this home says.",
                hint="did two copies of this home run? Go on with the one that wrote that batch",
            )
    for _ in intents.chain(min(known, default=0) - 1):
        pass
