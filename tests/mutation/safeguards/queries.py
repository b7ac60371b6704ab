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


def _idle_task_not_shown_again(patch: Patch) -> None:
    from deltaworks.runtime.state import published
    from deltaworks.runtime.state.recovery import local_path
    from deltaworks.runtime.worker import Worker

    original = Worker.show

    def show(self: Any, task: Any, committed: Any, batch: Any) -> None:
        if not published.is_there(local_path(self.config.local_folder, *task)):
            original(self, task, committed, batch)

    patch(Worker, "show", show)


def _told_when_it_ends(patch: Patch) -> None:
    from deltaworks.control.served import Announcer

    original = Announcer.ended

    def ended(self: Any, intent: Any, places: Any) -> None:
        original(self, intent, places)
        self.committed(intent.batch)

    patch(Announcer, "ended", ended)


def _servers_of_the_driver_before(patch: Patch) -> None:
    from pathlib import Path

    from deltaworks.control import served

    class Kept(type(Path())):  # type: ignore[misc]
        def unlink(self, missing_ok: bool = False) -> None:
            pass

    original = served.Announcer.__init__

    def init(self: Any, path: Path, *arguments: Any, **options: Any) -> None:
        original(self, Kept(path), *arguments, **options)

    patch(served.Announcer, "__init__", init)


_ELSEWHERE = "tests/hosts/test_queries_elsewhere.py::"
_BACK = (
    f"{_ELSEWHERE}test_a_task_that_comes_back_is_not_read_from_the_store_that_it_had_left",
    f"{_ELSEWHERE}test_a_stream_that_comes_back_to_a_machine_is_not_read_from_the_stores_that_it_had_left",
)
_SEEN = f"{_HOSTS}test_a_batch_is_seen_when_it_is_committed_and_not_before"
_WAITS = f"{_HOSTS}test_one_waits_for_a_batch_and_says_if_it_does_not_come"
MUTATIONS = {
    "changes that are not committed shown": Mutation(Breach.TOO_SOON, _uncommitted, (_SEEN,)),
    "changes of the newest batch not shown": Mutation(Breach.OTHER, _newest_left_out, (_SEEN,)),
    "another task asked for a key": Mutation(Breach.OTHER, _another_task, (_SEEN,)),
    "a batch not waited for": Mutation(Breach.TOO_SOON, _not_waited_for, (_WAITS,)),
    "an idle task that has moved not shown again": Mutation(Breach.OTHER, _idle_task_not_shown_again, _BACK),
    "a batch told when it ends": Mutation(
        Breach.TOO_SOON, _told_when_it_ends, (f"{_ELSEWHERE}test_only_the_batch_that_has_ended_is_told",)
    ),
    "servers of the driver before asked": Mutation(
        Breach.OTHER,
        _servers_of_the_driver_before,
        (f"{_ELSEWHERE}test_a_new_driver_says_nothing_before_it_has_committed_a_batch",),
    ),
}
"""Mutations that each take one safeguard of the product away, and the tests that must turn red."""
