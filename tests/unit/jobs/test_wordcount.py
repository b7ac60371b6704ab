from __future__ import annotations

import doctest

import pytest

import jobs.wordcount
from deltaworks import Windowed
from deltaworks.testing import TopologyTestDriver
from jobs.wordcount import pipeline, words

MINUTE, HOUR = 60_000, 3_600_000


class Text:
    """The pipeline, and lines written into it."""

    def __init__(self) -> None:
        self.driver = TopologyTestDriver(pipeline)
        self.lines = self.driver.create_input_topic("wordcount-lines", key=bytes, value=str)

    def write(self, *lines: str, at: int = 0) -> None:
        for line in lines:
            self.lines.pipe_input(b"a book", line, timestamp_ms=at)

    @property
    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = self.driver.table("wordcount_counts").rows
        return counts


def test_words_are_counted_over_all_lines() -> None:
    text = Text()

    text.write("to be or not to be", "that is the question")
    text.write("to sleep")

    assert text.counts == {"to": 3, "be": 2, "or": 1, "not": 1, "that": 1, "is": 1, "the": 1, "question": 1, "sleep": 1}


def test_the_topic_gets_every_update() -> None:
    text = Text()

    text.write("echo", "echo", "echo")

    updates = text.driver.create_output_topic("wordcount-counts", key=str, value=int).read_key_values_to_list()
    assert updates == [("echo", 1), ("echo", 2), ("echo", 3)]


def test_the_table_has_a_changelog() -> None:
    text = Text()

    text.write("echo", at=5)
    text.write("echo", at=3)

    changes = text.driver.table("wordcount_counts").changes
    assert [(row.key, row.value, row.timestamp_ms) for row in changes] == [("echo", 1, 5), ("echo", 2, 5)]


def test_words_are_counted_per_hour_with_ten_minutes_of_grace() -> None:
    text = Text()

    text.write("tick", at=HOUR - 1)
    text.write("tick", at=HOUR + 10 * MINUTE - 1)
    text.write("tick", at=HOUR - 2)  # in time: grace ends one millisecond later
    text.write("tick", at=HOUR + 10 * MINUTE)
    text.write("tick", at=HOUR - 3)  # late

    hours = text.driver.table("wordcount_hours")
    assert hours.rows == {Windowed("tick", 0, HOUR): 2, Windowed("tick", HOUR, 2 * HOUR): 2}
    assert list(hours.final_rows) == [Windowed("tick", 0, HOUR)]
    assert text.counts == {"tick": 5}


@pytest.mark.parametrize("line", ["", " \t\u00a0\u3000", "... !? 👍🏽 — '' «»", "\x00"])
def test_a_line_without_words_counts_nothing(line: str) -> None:
    text = Text()

    text.write(line)

    assert text.counts == {}
    assert text.driver.dead_letters == []


def test_a_record_without_value_is_dropped() -> None:
    text = Text()

    text.lines.pipe_raw(b"a book", None)

    assert (text.counts, text.driver.dead_letters) == ({}, [])


@pytest.mark.parametrize("key", [None, b"", b"\xff\x00"])
def test_the_key_of_a_line_does_not_matter(key: bytes | None) -> None:
    text = Text()

    text.lines.pipe_raw(key, b"word")

    assert text.counts == {"word": 1}


def test_a_line_that_is_no_utf_8_is_set_aside_and_the_stream_goes_on() -> None:
    text = Text()

    text.lines.pipe_raw(b"a book", "été".encode("latin-1"))
    text.write("été")

    (letter,) = text.driver.dead_letters
    assert (letter.value, letter.operator) == (b"\xe9t\xe9", "lines")
    assert letter.error_class == "deltaworks.errors.SerializationError"
    assert text.counts == {"été": 1}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("The THE the", ["the", "the", "the"]),
        ("Straße STRASSE ΟΔΟΣ οδός", ["strasse", "strasse", "οδοσ", "οδόσ"]),
        ("\u00e9t\u00e9 e\u0301te\u0301", ["été", "été"]),
        ("l'été don\u2019t 'quoted' rock 'n' roll", ["l'été", "don't", "quoted", "rock", "n", "roll"]),
        ("привет,мир!नमस्ते दुनिया", ["привет", "мир", "नमस्ते", "दुनिया"]),
        ("42 1984 3.14", ["42", "1984", "3", "14"]),
        ("🎉naïve🎉mir☕", ["naïve", "mir"]),
        ("東京 大阪へ", ["東京", "大阪へ"]),
        ("snake_case mid\u200bword", ["snake", "case", "mid", "word"]),
    ],
)
def test_words_of_a_line(line: str, expected: list[str]) -> None:
    assert words(line) == expected


def test_the_example_in_the_docstring_runs() -> None:
    assert doctest.testmod(jobs.wordcount).failed == 0
