"""Books of answers: what is durable counts, whoever wrote it; an erasure leaves what is not the person's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from deltaworks import Asking, Long
from deltaworks.errors import AnswersError, IncompatibleCheckpointError
from deltaworks.kernel.call_outs import Answer, Call, Place
from deltaworks.kernel.records import Coordinates
from deltaworks.runtime.call_outs.answers import LiveAnswers, ReplayedAnswers
from deltaworks.runtime.call_outs.asking import Asker
from deltaworks.runtime.call_outs.books import Books
from deltaworks.topology.nodes import CallOut

ASKED: list[int] = []


def ten_times(key: str, value: int) -> int:
    ASKED.append(value)
    return value * 10


NODE = CallOut(
    name="system", function=ten_times, question=lambda _, value: value, answer=Long(), asking=Asking()
)  # fmt: skip


def call(value: int, offset: int = 0, *, is_unique: bool = True, certain: bool = True) -> Call:
    place = Coordinates("in" if is_unique else "exchange", 0, offset)
    return Call(NODE, "k", value, 0, place, b"k%d" % value, is_unique, certain)


def number(value: int) -> Answer:
    return Answer(Long().serialize(value), about=b"k%d" % (value // 10))


@pytest.fixture
def asker() -> Iterator[Asker]:
    ASKED.clear()
    made = Asker()
    yield made
    made.close()


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path / "answers")


def live(books: Books, asker: Asker) -> LiveAnswers:
    return LiveAnswers(books, (0, 0), asker, lambda: None)


def passed(answers: LiveAnswers, asker: Asker, calls: list[Call], intent: str = "i") -> list[Answer | None]:
    """Passes until every question is answered; then what they have got is recorded."""
    while True:
        answers.begin(7, intent)
        found = [answers.answer(each) for each in calls]
        if not answers.is_waiting and answers.record():
            return found
        answers.take(asker.ask(answers.open))


def test_what_is_recorded_is_used_by_later_attempts_and_by_replays(books: Books, asker: Asker) -> None:
    calls = [call(1, 0), call(2, 1), call(1, 0), call(3, 5, is_unique=False)]
    first = passed(live(books, asker), asker, calls)
    assert first == [number(10), number(20), number(10), number(30)]
    ASKED.clear()

    assert passed(live(books, asker), asker, calls) == first
    replayed = ReplayedAnswers(books.folder, (0, 0), asker)
    replayed.begin(7)
    moved = [call(1, 0), call(2, 1), call(1, 0), call(3, 4, is_unique=False)]  # records before it were left out
    assert [replayed.answer(each) for each in moved] == first
    assert ASKED == []


def test_a_question_behind_state_waits_for_those_before_it(books: Books, asker: Asker) -> None:
    answers = live(books, asker)
    answers.begin(7, "i")

    assert answers.answer(call(1, 0)) is None
    assert answers.answer(call(2, 1, certain=False)) is None
    assert [each.value for each, _ in answers.open] == [1] and ASKED == []
    answers.take(asker.ask(answers.open))
    answers.begin(7, "i")
    assert answers.answer(call(1, 0)) == number(10)
    assert answers.answer(call(2, 1, certain=False)) == number(20)


def test_the_answers_of_a_faster_attempt_count(books: Books, asker: Asker) -> None:
    slow = live(books, asker)
    slow.begin(7, "i")
    slow.answer(call(1))
    slow.take([number(11)])
    slow.begin(7, "i")
    assert slow.answer(call(1)) == number(11)
    passed(live(books, asker), asker, [call(1)])

    assert not slow.record()

    slow.begin(7, "i")
    assert slow.answer(call(1)) == number(10)
    assert slow.record()


def test_the_book_of_another_intent_does_not_count_and_is_replaced(books: Books, asker: Asker) -> None:
    passed(live(books, asker), asker, [call(1), call(2, 1)], intent="before")

    passed(live(books, asker), asker, [call(1)], intent="after")

    book = books.read(7, 0, 0)
    assert book is not None and (book.intent, len(book.answers)) == ("after", 1)
    assert ASKED == [1, 2, 1]


def test_other_questions_than_the_recorded_ones_are_refused(books: Books, asker: Asker) -> None:
    passed(live(books, asker), asker, [call(1)])
    again = live(books, asker)
    again.begin(7, "i")
    with pytest.raises(AnswersError, match=r"asks something about in-0@0 that it has not asked.*batch 7"):
        again.answer(call(2))
    replayed = ReplayedAnswers(books.folder, (0, 0), asker)
    for batch, value in ((7, 2), (8, 1)):
        replayed.begin(batch)
        with pytest.raises(AnswersError, match=f"the stream has not asked in batch {batch}"):
            replayed.answer(call(value))


def test_a_batch_without_questions_has_no_book(books: Books, asker: Asker) -> None:
    passed(live(books, asker), asker, [])

    assert not books.folder.exists()


def test_an_erasure_leaves_the_others_where_a_replay_finds_them(books: Books, asker: Asker) -> None:
    theirs = call(1, 1, is_unique=False)
    other = Call(NODE, "k", 1, 0, theirs.place, b"other", is_unique=False, certain=True)
    passed(live(books, asker), asker, [theirs, other, call(2)])

    assert list(books.erase(lambda place, answer: answer.about == b"k1")) == [1]

    assert list(books.erase(lambda place, answer: answer.about == b"k1")) == []
    replayed = ReplayedAnswers(books.folder, (0, 0), asker)
    replayed.begin(7)
    assert replayed.answer(other).about == b"other"
    assert replayed.answer(call(2)) == number(20)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (msgspec.msgpack.encode([2, "i", [], "more"]), IncompatibleCheckpointError), (b"", AnswersError),
        (msgspec.msgpack.encode([1, "i", [[]]]), AnswersError), (b"\x90", AnswersError), (b"oops", AnswersError),
    ],
)  # fmt: skip
def test_a_book_that_cannot_be_read_is_refused(
    books: Books, asker: Asker, content: bytes, error: type[Exception]
) -> None:
    passed(live(books, asker), asker, [call(1)])
    (file,) = books.folder.rglob("*.answers")
    file.write_bytes(content)

    with pytest.raises(error, match="000000000007-0-0"):
        books.read(7, 0, 0)


def test_places_are_shown_without_what_does_not_tell_them_apart() -> None:
    assert str(Place("system", "in", 1, 5, b"", 0)) == "in-1@5"
    assert str(Place("system", "exchange", 1, -1, b"", 0)) == "exchange-1"
