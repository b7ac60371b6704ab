"""The recorded answers of other systems, as files that outlive everything that was made of them.

A task that has asked somebody in a batch writes one file, its *book* of that batch, before anything of the batch is
committed anywhere. So a batch that runs again finds the answers on which its transactions and tables may be based, and
a replay finds those of every batch. A book is put if absent and never changed, apart from an erasure; one that another
intent has left, of which nothing was committed, is replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deltaworks.errors import AnswersError, IncompatibleCheckpointError
from deltaworks.files import files_in, swap
from deltaworks.kernel.call_outs import Answer, Place

FORMAT = 1
_PER_FOLDER = 1_000


class Book(msgspec.Struct, frozen=True, array_like=True):
    """The answers that a task has got in a batch."""

    format: int
    intent: str
    """Digest of the batch's intent."""
    answers: list[tuple[Place, Answer]]


@dataclass(frozen=True)
class Books:
    """The books of a pipeline.

    Args:
        folder: of all of them.
    """

    folder: Path

    def read(self, batch: int, stage: int, task: int) -> Book | None:
        """The book of a task; None if it has asked nobody in the batch.

        Raises:
            IncompatibleCheckpointError: another version of deltaworks wrote it.
            AnswersError: it cannot be read.
        """
        name = _name(batch, stage, task)
        stored = files_in(self.folder).get(name)
        return None if stored is None else _decode(name, stored.data)

    def record(
        self, batch: int, stage: int, task: int, intent: str, answers: Mapping[Place, Answer]
    ) -> Mapping[Place, Answer]:
        """Writes the book of a batch durably, unless another attempt has; returns the answers that count.

        Args:
            batch: nothing of it may be committed, unless its book exists.
            stage: of the task.
            task: its number.
            intent: digest of the batch's intent.
            answers: of the task in the batch.
        """
        files, name = files_in(self.folder), _name(batch, stage, task)
        data = msgspec.msgpack.encode(Book(FORMAT, intent, sorted(answers.items(), key=lambda each: each[0])))
        while True:
            stored = files.get(name)
            if stored is not None and (found := _decode(name, stored.data)).intent == intent:
                return dict(found.answers)
            if swap(files, name, data, stored):
                return answers

    def erase(self, is_theirs: Callable[[Place, Answer], bool]) -> Iterator[int]:
        """Removes answers from all books while nothing else runs; yields how many, book by book.

        Args:
            is_theirs: says whether an answer has to go.
        """
        files = files_in(self.folder)
        for name in files.names():
            stored = files.get(name)
            if stored is None:
                continue
            book = _decode(name, stored.data)
            kept = [each for each in book.answers if not is_theirs(*each)]
            if len(kept) < len(book.answers):
                data = msgspec.msgpack.encode(Book(FORMAT, book.intent, _counted_again(kept)))
                if not files.replace(name, data, stored.version):
                    raise AnswersError(
                        f"The answers in {self.folder / name} were changed by another process.",
                        hint="does a driver run this pipeline? See `deltaworks status`",
                    )
                yield len(book.answers) - len(kept)


def _counted_again(answers: list[tuple[Place, Answer]]) -> list[tuple[Place, Answer]]:
    """Closes gaps between those to the same question: a replay leaves the records out, and counts without them."""
    counts: Counter[Place] = Counter()
    found = []
    for place, answer in answers:
        if place.offset < 0:
            first = place._replace(nth=0)
            place, counts[first] = place._replace(nth=counts[first]), counts[first] + 1
        found.append((place, answer))
    return found


def _name(batch: int, stage: int, task: int) -> str:
    return f"{batch // _PER_FOLDER * _PER_FOLDER:012d}/{batch:012d}-{stage}-{task}.answers"


def _decode(name: str, data: bytes) -> Book:
    try:
        version, *_ = msgspec.msgpack.decode(data, type=list[msgspec.Raw])
        if (found := msgspec.msgpack.decode(version)) != FORMAT:
            raise IncompatibleCheckpointError(
                f"The answers {name} have format {found}; this deltaworks reads format {FORMAT}.",
                hint="deploy the version that wrote them",
            )
        return msgspec.msgpack.decode(data, type=Book)
    except (msgspec.DecodeError, ValueError) as error:
        raise AnswersError(
            f"The answers {name} cannot be read: {error}.",
            hint="they were synced before anybody relied on them, so the disk is damaged; restore a copy of the home",
        ) from error
