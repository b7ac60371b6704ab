"""Mutations of queries: what is committed, which task has a key, what is waited for."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutation import Breach, Mutation, Patch

_HOSTS = "tests/hosts/test_queries.py::"


def _uncommitted(patch: Patch) -> None:
    from deltaworks.runtime.state import task_reader

    original = task_reader._Opened.state_of

    def state_of(self: Any, found: Any, version: Any, batch: int, intent_of: Any) -> Any:
        newest = batch if found is None else max(batch, found.head.batch)
        return original(self, found, version, newest, lambda _: None if found is None else found.head.intent)

    patch(task_reader._Opened, "state_of", state_of)


def _newest_left_out(patch: Patch) -> None:
    from deltaworks.runtime.state import task_reader

    patch(task_reader._Opened, "_with", lambda self, found: None)


def _another_task(patch: Patch) -> None:
    from deltaworks.queries.places import Places

    original = Places.asked

    def asked(self: Any, key: bytes) -> Any:
        first, *_ = original(self, key)
        return [(first + 1) % self.tasks]

    patch(Places, "asked", asked)


def _not_waited_for(patch: Patch) -> None:
    from deltaworks.queries import stream

    original = stream._Checkpoint.answer
    patch(stream._Checkpoint, "answer", lambda self, owned, min_batch, answer: original(self, owned, None, answer))


_SEEN = f"{_HOSTS}test_a_batch_is_seen_when_it_is_committed_and_not_before"
_WAITS = f"{_HOSTS}test_one_waits_for_a_batch_and_says_if_it_does_not_come"
MUTATIONS = {
    "changes that are not committed shown": Mutation(Breach.TOO_SOON, _uncommitted, (_SEEN,)),
    "changes of the newest batch not shown": Mutation(Breach.OTHER, _newest_left_out, (_SEEN,)),
    "another task asked for a key": Mutation(Breach.OTHER, _another_task, (_SEEN,)),
    "a batch not waited for": Mutation(Breach.TOO_SOON, _not_waited_for, (_WAITS,)),
}
"""Mutations that each take one safeguard of the product away, and the tests that must turn red."""
