"""`Answers` of the hosts: a live task asks and records, a replay reads what was recorded.

A live batch runs in passes. In the first, questions that nobody has answered yet are collected, and their records go no
further. Then all of them are asked at once, and the batch runs again from the same state, with the answers. So records
are processed in the same order, and with the same results, as if each call had been waited for, but calls overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from deltaworks.errors import AnswersError
from deltaworks.faults import reach
from deltaworks.kernel.call_outs import Answer, Call, Counted, Place
from deltaworks.runtime.call_outs.asking import Asker
from deltaworks.runtime.call_outs.books import Books
from deltaworks.runtime.task_loop import TaskId


class LiveAnswers:
    """Of one task; `begin` and `record` bracket each pass of a batch.

    Args:
        books: of the pipeline.
        task: which one.
        asker: asks.
        attend: called every second while it waits for an answer in the middle of a pass; may raise.
    """

    def __init__(self, books: Books, task: TaskId, asker: Asker, attend: Callable[[], None]) -> None:
        self._books, self._task, self._asker, self._attend = books, task, asker, attend
        self._batch, self._intent = -1, ""
        self._counted = Counted()
        self._recorded: dict[Place, Answer] | None = None
        """What an earlier attempt has recorded; None: nobody has looked yet."""
        self._is_recorded = False
        self._known: dict[Place, Answer] = {}
        """What was answered in earlier passes."""
        self._used: dict[Place, Answer] = {}
        """What this pass has been given."""
        self._open: list[tuple[Place, Call, bytes]] = []
        self._open_digests: set[tuple[str, bytes]] = set()

    def begin(self, batch: int, intent: str) -> None:
        """Begins a pass."""
        if (batch, intent) != (self._batch, self._intent):
            self._batch, self._intent = batch, intent
            self._recorded, self._is_recorded = None, False
            self._known = {}
        self._counted.begin()
        self._used, self._open, self._open_digests = {}, [], set()

    @property
    def is_waiting(self) -> bool:
        """Whether the pass has questions without an answer."""
        return bool(self._open)

    @property
    def open(self) -> list[tuple[Call, bytes]]:
        """Those questions, with their digests."""
        return [(call, digest) for _, call, digest in self._open]

    def take(self, answers: Collection[Answer]) -> None:
        """Takes the answers to the open questions, for the next pass."""
        self._known |= {place: answer for (place, *_), answer in zip(self._open, answers, strict=True)}

    def answer(self, call: Call) -> Answer | None:
        digest = call.digest()
        place = self._counted.place(call, digest)
        if self._recorded is None:
            book = self._books.read(self._batch, *self._task)
            self._is_recorded = book is not None and book.intent == self._intent
            self._recorded = dict(book.answers) if book is not None and self._is_recorded else {}
        found = self._recorded.get(place)
        if found is None and self._is_recorded:
            raise AnswersError(
                f"'{place.operator}' asks something about {place} that it has not asked when the answers of batch "
                f"{self._batch} were recorded.",
                hint="a function before it is not deterministic: it gives another result for the same record",
            )
        if found is None:
            found = self._known.get(place)
        if found is None:
            found = self._asker.remembered(call, digest)
        if found is None:
            if self._open and not call.certain:
                return None  # what it asks may depend on an answer that is not there
            if call.certain:
                self._collect(place, call, digest)
                return None
            (found,) = self._asker.ask([(call, digest)], self._attend)
        self._known[place] = self._used[place] = found
        return found

    def record(self) -> bool:
        """Makes the answers of a complete pass durable; False if others count, with which the batch has to run again.

        Raises:
            IncompatibleCheckpointError, AnswersError: what is recorded cannot be read.
        """
        if self._is_recorded or not self._used:
            return True
        reach("answers.before_record")
        counting = self._books.record(self._batch, *self._task, self._intent, self._used)
        reach("answers.recorded")
        self._recorded, self._is_recorded = dict(counting), True
        return self._recorded == self._used

    def _collect(self, place: Place, call: Call, digest: bytes) -> None:
        """Adds an open question; with a cache, the same question is asked once."""
        asked = call.node.name, digest
        if call.node.asking.cache and asked in self._open_digests:
            return
        self._open_digests.add(asked)
        self._open.append((place, call, digest))


class ReplayedAnswers:
    """Of one task in a replay.

    Args:
        folder: of the pipeline's books; None: the replay has none.
        task: which one.
        asker: asks for operators that say `ask_again`.
    """

    def __init__(self, folder: Path | None, task: TaskId, asker: Asker) -> None:
        self._books = None if folder is None else Books(folder)
        self._task, self._asker = task, asker
        self._batch = -1
        self._counted = Counted()
        self._recorded: dict[Place, Answer] | None = None

    def begin(self, batch: int) -> None:
        """Begins a batch."""
        if batch != self._batch:
            self._batch, self._recorded = batch, None
            self._counted.begin()

    def answer(self, call: Call) -> Answer:
        digest = call.digest()
        place = self._counted.place(call, digest)
        if call.node.ask_again:
            found = self._asker.remembered(call, digest)
            return self._asker.ask([(call, digest)])[0] if found is None else found
        if self._recorded is None:
            book = None if self._books is None else self._books.read(self._batch, *self._task)
            self._recorded = {} if book is None else dict(book.answers)
        found = self._recorded.get(place)
        if found is None:
            raise AnswersError(
                f"'{place.operator}' asks something about {place} that the stream has not asked in batch "
                f"{self._batch}, so there is no recorded answer.",
                hint="has the code changed since? ask_again=True of the operator lets the replay ask",
            )
        return found
