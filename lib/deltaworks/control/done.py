"""Compares the committed outputs of a stream with its intents.

A task's marker in Kafka and a table's transaction name their last batch and its intent. A checkpoint goes on only if it
knows that batch, because then repeated work gives the same output and is recognised.
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
    """The output, for people: `table 'orders'`."""
    batch: int
    intent: int
    """The `intents.token` of the batch's intent."""


def require_known(done: Iterable[Done], intents: Intents, pipeline: str, first_batch: int = 0) -> None:
    """Checks that this stream committed every output, for batches that it knows.

    Args:
        done: the last batches of all tasks and tables with output of this checkpoint.
        intents: intents of this checkpoint.
        pipeline: name of the pipeline.
        first_batch: first batch of this checkpoint; older batches were handed over to it.

    Raises:
        IntentError: an output holds a batch that this checkpoint does not know, or one with another intent.
    """
    known = intents.batches()
    for each in done:
        if each.batch < (known[0] if known else first_batch):
            continue  # its intent has expired, but the chain to the last one leads through it
        intent = intents.get(each.batch)
        if intent is None:
            raise IntentError(
                f"{each.where} holds batch {each.batch} of pipeline {pipeline!r}, but this home "
                f"knows batches up to {known[-1] if known else 'none'}: the home is older than its outputs.",
                hint="was it restored from a copy? Bring back the home that wrote that batch. Without it, start over: "
                "move the pipeline's folder and its tables away; its output topics then get everything again",
            )
        if token(intent.digest) != each.intent:
            raise IntentError(
                f"{each.where} holds batch {each.batch} of pipeline {pipeline!r}, but with other records or another "
                "time than in this home.",
                hint="did two copies of this home run? Continue with the one that wrote that batch",
            )
    for _ in intents.chain(min(known, default=0) - 1):
        pass
